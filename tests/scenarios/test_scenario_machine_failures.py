"""Machines that go down and come back."""

from __future__ import annotations

import pytest

from builders import Flat, cluster, job, outages, play
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.placement import Placement
from dally.network.model import Step
from dally.simulator.faults import Faults

ONE = cluster(1, 1)


# checkpoint every so many seconds → work kept by a job of 100 s that ran 0–25, so its end with repair at 40
@pytest.mark.parametrize(("interval", "kept"), [(0, 25), (10, 20), (25, 25), (30, 0), (4, 24)])
def test_work_since_the_last_checkpoint_is_lost_and_done_again(interval: float, kept: float) -> None:
    faults = outages(ONE, {0: [(25, 40)]}, checkpoint_interval=interval)
    played = play([job("a", 1, 100)], ONE, "fifo", faults=faults)
    assert played.of(ev.Interrupted) == [(25, ev.Interrupted("a", kept, "machine m0 went down", 25 - kept))]
    assert played.times(pl.Start, "a") == [0, 40]
    assert played.end("a") == 40 + 100 - kept
    assert played.run.lost_work_gpu_seconds == 25 - kept


def test_loading_after_a_fault_delays_the_checkpoints_that_follow() -> None:
    faults = outages(ONE, {0: [(25, 40), (58, 60)]}, checkpoint_interval=10)
    played = play([job("a", 1, 100)], ONE, "fifo", cost="5s", faults=faults)
    # 0–25: 20 kept; loads 40–45, runs 45–58: checkpoint at 55 holds 20 + 10
    assert [e.work_done for _, e in played.of(ev.Interrupted)] == [20, 30]  # type: ignore[union-attr]
    assert played.end("a") == 60 + 5 + 70


def test_a_fault_during_loading_loses_nothing_more() -> None:
    faults = outages(ONE, {0: [(25, 40), (42, 50)]}, checkpoint_interval=10)
    played = play([job("a", 1, 100)], ONE, "fifo", cost="5s", faults=faults)
    assert [e.work_done for _, e in played.of(ev.Interrupted)] == [20, 20]  # type: ignore[union-attr]
    assert played.end("a") == 50 + 5 + 80


def test_only_jobs_on_the_machine_are_hit_and_the_machine_is_empty_until_repaired() -> None:
    tree = cluster(2, 2)
    faults = outages(tree, {1: [(10, 50)]}, checkpoint_interval=0)
    played = play(
        [job("a", 2, 30), job("b", 2, 30), job("c", 2, 5, 12)], tree, "fifo[backfill=true]", faults=faults
    )
    assert played.end("a") == 30
    assert played.times(pl.Start, "b") == [0, 30]  # waits again, in the order of submission, on machine 0
    assert played.times(pl.Start, "c") == [50]
    placed = [(t, m) for t, e in played.of(pl.Start) for m, _ in e.placement.slices]  # type: ignore[union-attr]
    assert all(m != 1 for t, m in placed if 10 <= t < 50)


def test_a_gang_over_two_machines_dies_with_either() -> None:
    tree = cluster(2, 1)
    played = play([job("a", 2, 30)], tree, "fifo", faults=outages(tree, {1: [(10, 20)]}, checkpoint_interval=0))
    assert played.end("a") == 40


def test_a_machine_that_never_comes_back_leaves_its_job_unfinished() -> None:
    played = play([job("a", 1, 30)], ONE, "fifo", faults=outages(ONE, {0: [(10, None)]}))
    assert played.outcome("a") == "unfinished"


def test_a_job_that_ends_in_the_instant_of_the_failure_has_ended() -> None:
    played = play([job("a", 1, 10)], ONE, "fifo", faults=outages(ONE, {0: [(10, 20)]}))
    assert (played.outcome("a"), played.end("a"), played.of(ev.Interrupted)) == ("finished", 10, [])


def test_outages_that_touch_are_two_outages() -> None:
    faults = outages(ONE, {0: [(10, 20), (20, 30)]}, checkpoint_interval=0)
    played = play([job("a", 1, 30)], ONE, "fifo", faults=faults)
    assert played.times(pl.Start, "a") == [0, 30]
    assert played.end("a") == 50


# a (100 s) is preempted at 50 by b and saves until 60; the machine fails at 55 and is back at 70
def test_a_checkpoint_that_was_not_whole_when_the_machine_failed_is_worth_nothing() -> None:
    faults = outages(ONE, {0: [(55, 70)]}, checkpoint_interval=20)
    played = play([job("a", 1, 100), job("b", 1, 10, 50)], ONE, "srtf", cost=Flat(10, 0), faults=faults)
    kept = {e.job: e.work_done for _, e in played.of(ev.Interrupted)}  # type: ignore[union-attr]
    assert kept == {"a": 40, "b": 0}
    assert played.of(ev.Yielded) == []
    assert (played.end("b"), played.end("a")) == (80, 80 + 60)
    assert played.run.lost_work_gpu_seconds == 10


def test_a_failure_after_the_checkpoint_was_saved_takes_nothing_of_it() -> None:
    faults = outages(ONE, {0: [(60, 70)]}, checkpoint_interval=20)
    played = play([job("a", 1, 100), job("b", 1, 10, 50)], ONE, "srtf", cost=Flat(10, 0), faults=faults)
    assert played.times(ev.Yielded, "a") == [60]
    assert played.end("a") == 80 + 50


def test_gpus_of_a_save_that_a_fault_broke_off_are_free_at_once() -> None:
    # a holds three machines and saves 50–90; b was promised machine 0; machine 2 fails at 60 and a is gone
    tree = cluster(3, 1)
    faults = outages(tree, {2: [(60, 1000)]}, checkpoint_interval=1)
    jobs = [job("a", 3, 100), job("b", 1, 5, 50), job("c", 1, 5, 61)]
    played = play(jobs, tree, "smallest", cost=Flat(40, 0), faults=faults)
    assert played.end("b") == 95  # it was told 90 when it started
    assert (played.times(pl.Start, "c"), played.end("c")) == ([61], 66)


class Crowded:
    """Half speed while two jobs are there: the seam of a network model, with neighbours."""

    def __init__(self) -> None:
        self.here: dict[str, Job] = {}

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        return Step(1.0, 1.0, 0.0, 1.0)

    def moved(self, left, entered, now):  # type: ignore[no-untyped-def]
        for gone in left:
            del self.here[gone]
        self.here.update({job.id: job for job, _ in entered})
        slow = float(len(self.here))
        return {job_id: Step(slow, 1.0, slow - 1, 1.0) for job_id in self.here}


def test_what_a_checkpoint_holds_follows_the_speed_at_the_time_it_was_taken() -> None:
    # a alone 0–20 at speed 1, with b from 20 at speed ½: at 45 it has 32.5, the checkpoint of 40 holds 30
    tree = cluster(2, 1)
    faults = outages(tree, {0: [(45, 46)]}, checkpoint_interval=20)
    played = play([job("a", 1, 100), job("b", 1, 100, 20)], tree, "fifo", network=Crowded(), faults=faults)
    assert [(t, e.work_done) for t, e in played.of(ev.Interrupted, "a")] == [(45, 30)]  # type: ignore[union-attr]


def test_neighbours_change_speed_and_segments_stay_whole() -> None:
    tree = cluster(2, 1)
    played = play([job("a", 1, 100), job("b", 1, 10, 20)], tree, "fifo", network=Crowded())
    assert (played.end("b"), played.end("a")) == (40, 110)
    assert [(s.start, s.end) for s in played.run.ledger.segments] == [(20, 40), (0, 110)]
    assert played.run.ledger.row("a").neighbour_loss == 10


def test_failures_by_mean_time_are_the_same_for_every_policy_and_seed_and_differ_between_seeds() -> None:
    tree = cluster(4, 2)

    def downs(policy: str, seed: int) -> list[tuple[float, int]]:
        faults = Faults(4, mtbf=300.0, mttr=20.0, checkpoint_interval=10.0, seed=seed)
        jobs = [job(f"j{i}", 1 + i % 3, 40 + i, 5 * i) for i in range(30)]
        played = play(jobs, tree, policy, faults=faults)
        assert all(row.outcome == "finished" for row in played.run.ledger.rows)
        return [(t, e.machine) for t, e in played.of(ev.MachineDown) if t < 100]  # type: ignore[union-attr]

    first = downs("fifo", 1)
    assert first and first == downs("srtf", 1) == downs("fifo", 1)
    assert first != downs("fifo", 2)
