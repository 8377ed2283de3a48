"""A scenario is plain data: read, written, described, and the same experiment from wherever it is prepared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dally.core.errors import UserError
from dally.simulator.experiment import Experiment
from dally.simulator.scenario import Scenario
from tests.experiments.random_cases import TRACE, random_case

SMALL = Scenario(trace="synth:philly", cluster="1x2x8", jobs=30)


@pytest.mark.parametrize("number", range(20))
def test_what_is_written_makes_the_same_scenario_again(number: int, tmp_path: Path) -> None:
    fields, _ = random_case(number)
    scenario = Scenario.of(fields)
    assert Scenario.of(json.loads(json.dumps(scenario.as_dict()))) == scenario
    assert Scenario.of(scenario.changed()) == scenario
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario.changed()))
    assert Scenario.read(path) == scenario


@pytest.mark.parametrize("number", range(20))
def test_its_command_line_makes_it_again(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from dally.cli import simulate

    fields, _ = random_case(number)
    scenario = Scenario.of(fields)
    seen: list[Scenario] = []
    monkeypatch.setattr(simulate, "execute", lambda made, *_, **__: seen.append(made))
    done = CliRunner().invoke(simulate.command, [*scenario.arguments(), "--policy", "fifo"], catch_exceptions=False)
    assert done.exit_code == 0 and seen == [scenario]


def test_times_and_numbers_are_taken_as_people_write_them() -> None:
    made = Scenario.of({"trace": "synth:philly", "cluster": 8, "mtbf": "30d", "load": 1, "mttr": "2h"})
    assert (made.mtbf, made.load, made.mttr, made.cluster) == (30 * 86400.0, 1.0, 7200.0, "8")


def test_a_file_is_read_and_options_win_over_it(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    path.write_text("trace: synth:philly\ncluster: 1x2x8\nload: 0.9\nmtbf: 30d\n")
    made = Scenario.read(path, load=1.2, seed=None)
    assert (made.load, made.seed, made.mtbf) == (1.2, 0, 30 * 86400.0)


@pytest.mark.parametrize(("values", "says"), [
    ({"trace": "synth:philly"}, "needs a cluster"),
    ({"cluster": "4x8"}, "needs a trace"),
    ({"trace": "a", "cluster": "4x8", "sed": 1}, "no field 'sed'; did you mean seed"),
    ({"trace": "a", "cluster": "4x8", "seed": 1.5}, "seed: it must be a whole number, not 1.5"),
    ({"trace": "a", "cluster": "4x8", "seed": True}, "seed: it must be a whole number, not True"),
    ({"trace": "a", "cluster": "4x8", "load": "high"}, "load: it must be a number, not 'high'"),
    ({"trace": "a", "cluster": "4x8", "load": -1}, "an offered load is above 0"),
    ({"trace": "a", "cluster": "4x8", "jobs": 0}, "at least one job"),
    ({"trace": "a", "cluster": "4x8", "mtbf": "soon"}, "is not a time"),
    ({"trace": "a", "cluster": "4x8", "mtbf": "-3d"}, "it is negative"),
    ({"trace": "a", "cluster": "4x8", "mtbf": 0}, "must be above 0"),
    ({"trace": "a", "cluster": "4x8", "contention": "no"}, "contention: it must be true or false"),
    ({"trace": "a", "cluster": "4x8", "slices": "thick"}, "fluid or quanta"),
    ({"trace": "a", "cluster": "4x8", "duration_means": "x"}, "duration_means: write best-placement"),
    ({"trace": ["a"], "cluster": "4x8"}, "trace: it must be text"),
])  # fmt: skip
def test_what_is_wrong_with_it_is_one_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        Scenario.of(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "says"), [("- 1\n- 2\n", "must be a mapping"), ("a: [1\n", "is not YAML"), ("a: [1, 2026-01-01]\n", "it holds a date"), ("? [a]\n: 1\n", "is not YAML"), ("a: !!set {1}\n", "it holds a date"),
                          ("", "must be a mapping")])
def test_a_file_that_is_no_scenario_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        Scenario.read(tmp_path / "s.yaml")


def test_its_description_is_plain_json_with_version_configuration_and_digests(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    scenario = Scenario(trace=str(path), cluster="1x2x8")
    said = scenario.describe()
    assert json.loads(json.dumps(said)) == said
    assert said["scenario"]["preemption_cost"] == "model" and said["jobs"] == 60 and len(said["files"]["trace"]) == 64
    assert scenario.describe(scenario.prepare().trace) == said
    path.write_text(TRACE.replace("resnet50", "vgg16", 1))
    again = Scenario(trace=str(path), cluster="1x2x8").describe()
    assert again["files"]["trace"] != said["files"]["trace"] and again["trace_digest"] != said["trace_digest"]


def test_an_experiment_made_by_hand_gives_what_its_scenario_gives() -> None:
    """Models used to be assigned by the command line alone, and the same experiment in Python was another one."""
    prepared = SMALL.prepare()
    plain = replace(prepared.trace, jobs=[replace(job, model=None) for job in prepared.trace.jobs])
    by_hand = Experiment(plain, prepared.topology, prepared.network, "model", 0)
    assert [job.model for job in by_hand.trace.jobs] == [job.model for job in prepared.trace.jobs]
    ends = [[row.end for row in made.run("fifo").ledger.rows] for made in (prepared, by_hand)]
    assert ends[0] == ends[1]


def test_preparing_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    scenario = Scenario(trace=str(path), cluster="1x2x8", load=0.8)
    assert scenario.prepare().trace.notes == scenario.prepare().trace.notes
