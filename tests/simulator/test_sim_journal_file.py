"""Experiments write journals; journals give the figures back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from builders import cluster, seeded_trace
from dally.core.errors import UserError
from dally.core.ledger import Ledger
from dally.core.row import FIELDS, Row
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED
from dally.simulator.experiment import Experiment, FaultRules
from dally.simulator.sweep import run_all
from dally.store.journal_file import read_journal

TREE = cluster(2, 2, 4)
EXPERIMENT = Experiment(seeded_trace(1), TREE, preemption_cost="5s", faults=FaultRules(mtbf=3000.0, mttr=60.0))


def figures(row: Row) -> list[object]:
    return [getattr(row, name) for name in FIELDS]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_journal_read_back_gives_the_same_ledger_as_the_run(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    run = EXPERIMENT.run("srtf", journal=str(file))
    again = Ledger(TREE)
    for instant in read_journal(file):
        again(instant)
    assert [figures(row) for row in again.rows] == [figures(row) for row in run.ledger.rows]
    assert again.segments == run.ledger.segments
    assert (again.time, again.busy, again.queue) == (run.ledger.time, run.ledger.busy, run.ledger.queue)
    assert again.leaving_gpu_seconds == run.ledger.leaving_gpu_seconds
    assert again.lost_work_gpu_seconds == run.lost_work_gpu_seconds > 0


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_the_same_run_is_the_same_bytes(tmp_path: Path, name: str) -> None:
    written = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / name
        EXPERIMENT.run("las", journal=str(file))
        written.append(file.read_bytes())
    assert written[0] == written[1]


def test_another_seed_is_another_journal(tmp_path: Path) -> None:
    files = [tmp_path / "1", tmp_path / "2"]
    for seed, file in enumerate(files):
        dataclasses.replace(EXPERIMENT, seed=seed).run("fifo", journal=str(file))
    assert files[0].read_text() != files[1].read_text()


def test_a_journal_that_cannot_be_written_or_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        EXPERIMENT.run("fifo", journal=str(tmp_path / "no" / "where"))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_journal(tmp_path / "nothing"))


def test_several_policies_side_by_side_give_what_each_gives_alone() -> None:
    policies = ["fifo", "srtf", "las"]
    apart = [EXPERIMENT.run(policy) for policy in policies]
    together = run_all(EXPERIMENT, policies, workers=2)
    assert [run.policy for run in together] == policies
    for one, other in zip(apart, together, strict=True):
        assert [figures(row) for row in one.ledger.rows] == [figures(row) for row in other.ledger.rows]


def test_an_unknown_policy_stops_a_sweep_with_its_sentence() -> None:
    with pytest.raises(UserError, match="there is no policy 'fiffo'"):
        run_all(EXPERIMENT, ["fifo", "fiffo"], workers=2)


def test_noise_changes_what_srtf_does_and_nothing_else() -> None:
    noisy = dataclasses.replace(EXPERIMENT, knowledge="noisy=2.0")

    def jcts(experiment: Experiment, policy: str) -> list[float | None]:
        return [row.jct for row in experiment.run(policy).ledger.rows]

    assert jcts(noisy, "srtf") != jcts(EXPERIMENT, "srtf")
    assert jcts(noisy, "fifo") == jcts(EXPERIMENT, "fifo")


def test_jobs_that_have_ended_leave_the_books_and_nothing_of_the_journal_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[int] = []
    files = [tmp_path / "all", tmp_path / "few"]
    for file, remembers in zip(files, (4096, 5), strict=True):
        monkeypatch.setattr("dally.simulator.run._REMEMBERS", remembers)
        alive: list[int] = []

        class Watching(Scheduler):
            def decide(self, now: float, seen: list[int] = alive) -> None:
                super().decide(now)
                seen.append(sum(job.state in ENDED for job in self.jobs.values()))

        monkeypatch.setattr("dally.simulator.run.Scheduler", Watching)
        EXPERIMENT.run("dally", journal=str(file))
        remembered.append(max(alive))
    assert remembered[0] == len(EXPERIMENT.trace.jobs) > remembered[1]
    assert remembered[1] <= 10  # five, and those that end until the next instant at which nothing is left to be said
    assert files[0].read_bytes() == files[1].read_bytes()
