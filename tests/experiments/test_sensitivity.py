"""How a comparison depends on models and fabric: one thing changed at a time, everything run again."""

from __future__ import annotations

import json

import pytest

from dally.cli.main import main
from dally.core.errors import UserError
from dally.experiments.sensitivity import conclusion, settings
from dally.simulator.scenario import Scenario

SMALL = {"trace": "synth:philly", "jobs": 30, "load": 1.2, "cluster": "1x2x8", "seed": 1}


def test_models_and_fabrics_are_changed_one_at_a_time_and_change_what_jobs_communicate() -> None:
    found = settings(Scenario.of(SMALL), ["fifo", "las"], models=("resnet50", "vgg16"), fabrics=("ethernet-10g",), workers=1)
    assert [(each.what, each.value) for each in found] == [
        ("as given", "–"), ("models", "all resnet50"), ("models", "all vgg16"), ("fabric", "ethernet-10g")]  # fmt: skip
    shares = [each.summaries[0].comm_share for each in found]
    assert len(set(shares)) == 4 and (shares[3] or 0) > (shares[0] or 0)
    said = conclusion(found)
    assert len(said) == 1 and said[0].startswith("Told nothing: ")


@pytest.mark.parametrize(("changes", "more", "said"), [
    ({}, {"models": ("nonsense",)}, "nonsense"), ({}, {"fabrics": ("nonsense",)}, "nonsense"),
    ({"model_mix": "mine.yaml"}, {}, "a model mix is given"),
])  # fmt: skip
def test_what_cannot_be_varied_is_refused_before_anything_runs(changes: dict[str, str], more: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(UserError, match=said):
        settings(Scenario.of({**SMALL, **changes}), ["fifo"], **more)  # type: ignore[arg-type]


def test_the_command_prints_the_settings_and_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sensitivity", "-t", "synth:philly", "--jobs", "20", "-c", "1x2x8", "-p", "fifo,las", "--models", "none",
             "--fabrics", "ethernet-10g", "--workers", "1", "-q"]  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main(words)
    out = capsys.readouterr().out
    assert ended.value.code == 0 and "ethernet-10g" in out and "Told nothing: " in out
    with pytest.raises(SystemExit):
        main([*words, "--json"])
    assert [each["what"] for each in json.loads(capsys.readouterr().out)] == ["as given", "fabric"]
