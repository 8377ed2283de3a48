"""The scenario and the sweep that the pages show are ones."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dally.experiments.sweeps.spec import SweepSpec
from dally.simulator.scenario import Scenario

DOCS = Path(__file__).resolve().parents[2] / "docs"


def first_yaml(page: str) -> dict[str, object]:
    found = re.search(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.S)
    assert found is not None
    read = yaml.safe_load(found[1])
    assert isinstance(read, dict)
    return read


def test_the_scenario_on_its_page_can_be_prepared() -> None:
    assert Scenario.of(first_yaml("scenario.md") | {"jobs": 20}).prepare().topology.gpus == 256


def test_the_sweep_on_its_page_has_the_cells_it_seems_to_have() -> None:
    spec = SweepSpec.of(first_yaml("sweep.md"))
    assert len(spec) == 4 * 2 * 5 and spec.labels == ["fifo", "las[quantum=60]", "las[quantum=600]", "srtf, misled"]
    assert len(list(spec.cells())) == 40


def test_every_field_of_a_scenario_is_on_its_page() -> None:
    from dataclasses import fields

    text = (DOCS / "scenario.md").read_text()
    assert [each.name for each in fields(Scenario) if f"`{each.name}`" not in text] == []
