"""What a result rests on is said first, at the table and on the page, and says what nobody had given."""

from __future__ import annotations

from pathlib import Path

import pytest

from dally.cli.main import main
from dally.experiments.assumed import assumed
from dally.simulator.scenario import Scenario

SMALL = {"trace": "synth:philly", "jobs": 12, "cluster": "1x2x8"}


@pytest.mark.parametrize(("changes", "links", "durations"), [
    ({}, "links: dally ASSUMED (--fabric says otherwise), model analytic", "durations: told to nobody"),
    ({"fabric": "ethernet-100g", "knowledge": "declared"}, "links: ethernet-100g as given, model analytic",
     "durations: told exactly, as no real cluster could"),
    ({"network": "ideal", "knowledge": "learned"}, "links: none (network ideal, distance costs nothing)",
     "durations: learned from jobs that have ended"),
    ({"cluster": "v100=16"}, "links: ethernet-100g ASSUMED (--fabric says otherwise), model analytic",
     "durations: told to nobody"),
])  # fmt: skip
def test_links_and_durations_are_named_with_who_said_so(changes: dict[str, object], links: str, durations: str) -> None:
    said = assumed(Scenario.of(SMALL | changes).prepare())
    assert said[0] == links and durations in said
    assert any(clause.startswith("models: ASSUMED, of 12 jobs") for clause in said) == (changes.get("network") is None)


def test_the_table_and_the_page_begin_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "-t", "synth:philly", "--jobs", "12", "-c", "1x2x8", "-p", "fifo,srtf", "--knowledge", "exact",
              "--quiet", "--out", str(tmp_path / "out")])  # fmt: skip
    assert not ended.value.code
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Rests on: links: dally ASSUMED") and shown.index("Rests on") < shown.index("policy")
    assert "told exact durations" in shown
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<strong>Rests on: links: dally ASSUMED" in page and "Told exact durations, srtf" in page
