"""The released simulators' completion times of jobs drawn here, job by job; and their programs, where they are at hand.

`tests/references` holds what the authors' programs said (tests/references/make.py). With TIRESIAS_REPOSITORY and PYTHON2,
or GAVEL_REPOSITORY, in the environment they are asked again, on other jobs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dally.cli.main import main
from dally.core.errors import UserError
from dally.experiments.released import gavel, tiresias
from dally.experiments.released.comparing import compared, jcts

REFERENCES = Path(__file__).parents[1] / "references"
TIRESIAS = json.loads((REFERENCES / "released-tiresias.json").read_text())
GAVEL = json.loads((REFERENCES / "released-gavel.json").read_text())


@pytest.mark.parametrize("schedule", TIRESIAS["jct"])
def test_every_job_ends_when_the_released_tiresias_says(schedule: str) -> None:
    run = tiresias.experiment_of(tiresias.draw(**TIRESIAS["drawn"])).run(tiresias.SCHEDULES[schedule])
    assert list(jcts(run).values()) == TIRESIAS["jct"][schedule]
    assert sum(TIRESIAS["jct"][schedule]) != sum(TIRESIAS["jct"]["fifo"]) or schedule == "fifo"  # it does something


@pytest.mark.parametrize("policy", GAVEL["jct"])
def test_the_released_gavel_is_matched_in_fifo_by_job_and_else_on_average(policy: str, tmp_path: Path) -> None:
    experiment = gavel.write_input(tmp_path, **GAVEL["drawn"])
    ours, theirs = list(jcts(experiment.run(gavel.POLICIES[policy])).values()), GAVEL["jct"][policy]
    if policy == "fifo_perf":
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert sum(ours) == pytest.approx(sum(theirs), rel=0.05)


def test_completion_times_are_compared_job_by_job() -> None:
    found = compared("a", "b", {"x": 10.0, "y": 20.0, "z": 5.0}, {"x": 10.0, "y": 20.5}, {"x": 0.0, "y": 5.0, "z": 0.0})
    assert (found.jobs, found.missing, found.same, found.within_a_second, found.exact) == (2, 1, 1, 2, False)
    assert (found.their_makespan, found.our_makespan) == (25.0, 25.5)
    with pytest.raises(UserError, match="no finished job in common"):
        compared("a", "b", {"x": 1.0}, {}, {"x": 0.0})


@pytest.mark.parametrize(("words", "said"), [
    (["tiresias", "--from", "."], "is not the repository SymbioticLab/Tiresias: it has no simulator/run_sim.py"),
    (["gavel", "--from", "."], "is not the repository stanford-futuredata/gavel: it has no scheduler/scheduler.py"),
    (["gavel", "--from", ".", "--only", "best"], "'best' is not one of fifo_perf"),
])  # fmt: skip
def test_what_is_not_their_repository_is_refused(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "released", *words])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_program_of_theirs_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    (tmp_path / "simulator").mkdir()
    (tmp_path / "simulator" / "run_sim.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "simulator" / "yarn-gput1000.csv").write_text("duration\n10\n")
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "released", "tiresias", "--from", str(tmp_path), "--python", sys.executable, "--jobs", "5"])
    assert ended.value.code == 2
    assert "their simulator with fifo failed: RuntimeError: no licence" in capsys.readouterr().err


@pytest.mark.reference
@pytest.mark.skipif("TIRESIAS_REPOSITORY" not in os.environ, reason="their repository is not at hand")
def test_their_tiresias_says_the_same_of_other_jobs() -> None:
    found = list(tiresias.against(Path(os.environ["TIRESIAS_REPOSITORY"]), os.environ.get("PYTHON2"), jobs=150, seed=5))
    assert len(found) == 7 and all(each.exact for each in found)


@pytest.mark.reference
@pytest.mark.skipif("GAVEL_REPOSITORY" not in os.environ, reason="their repository is not at hand")
def test_their_gavel_says_the_same_of_other_jobs() -> None:
    found = [each for each, _ in gavel.against(Path(os.environ["GAVEL_REPOSITORY"]), None, jobs=40, seed=5, policies=["fifo_perf"])]
    assert all(each.exact for each in found)
