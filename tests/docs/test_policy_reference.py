"""The reference on the page about writing a policy is what the code says."""

from __future__ import annotations

from pathlib import Path

from dally.experiments.checks.properties import PROPERTIES
from dally.policies.reference import reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writing-a-policy.md"
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->\n"


def test_the_reference_on_the_page_is_what_the_code_says(update_golden: bool) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    there, after = rest.split(END)
    if update_golden:
        PAGE.write_text(before + BEGIN + reference() + END + after)
        return
    assert there == reference(), "run `pytest tests/docs/test_policy_reference.py --update-golden`"


def test_every_property_is_explained_on_the_page() -> None:
    text = PAGE.read_text()
    assert all(f"`{each.name}`" in text for each in PROPERTIES)
