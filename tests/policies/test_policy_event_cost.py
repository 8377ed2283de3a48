"""The cost of one event does not grow with the queue: calls are counted, not seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders import SilentWorld, calls, cluster
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.plan import Start
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy
from dally.simulator.knowledge import Perfect

SIZES = (1, 2, 4, 8)
BUSY_GPUS = 64


def busy_scheduler(policy: str, queue: int) -> Scheduler:
    """A full cluster with a queue behind it; who waits is less urgent than who runs."""
    numbers: Iterator[int] = iter(range(queue + BUSY_GPUS))
    work: dict[str, float] = {}
    scheduler = Scheduler(cluster(1, 8, 8), make_policy(policy), SilentWorld(), Journal(), Perfect(work))
    running = [Job(f"r{next(numbers)}", 0.0, 1) for _ in range(BUSY_GPUS)]
    waiting = [Job(f"w{next(numbers)}", 1.0, SIZES[i % 4]) for i in range(queue)]
    work.update({job.id: 100.0 for job in running} | {job.id: 1e6 + i for i, job in enumerate(waiting)})
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(1.0, [ev.Arrived(job) for job in waiting])
    return scheduler


def one_end_and_its_successor(policy: str, queue: int) -> int:
    scheduler = busy_scheduler(policy, queue)
    world = scheduler.world
    assert isinstance(world, SilentWorld)
    ends = next(job for job in scheduler.books.jobs.values() if job.placement is not None)
    before = len(world.done)
    counted = calls(lambda: scheduler.step(2.0, [ev.Finished(ends.id)]))
    assert any(isinstance(action, Start) for action in world.done[before:]), "the freed GPU found nobody"
    return counted


@pytest.mark.parametrize("policy", ["fifo[backfill=true]", "srtf", "las", "fifo", "smallest"])
def test_an_end_costs_as_many_calls_with_ten_thousand_waiting_as_with_a_hundred(policy: str) -> None:
    counted = [one_end_and_its_successor(policy, queue) for queue in (100, 1_000, 10_000)]
    assert max(counted) < 1.5 * min(counted), counted


@pytest.mark.parametrize("policy", ["fifo[backfill=true]", "srtf", "las", "fifo", "smallest"])
def test_an_arrival_costs_as_many_calls_with_ten_thousand_waiting_as_with_a_hundred(policy: str) -> None:
    counted = []
    for queue in (100, 1_000, 10_000):
        scheduler = busy_scheduler(policy, queue)
        newcomer = Job("new", 2.0, 8)
        scheduler.books.view.estimates._work["new"] = 2e6  # type: ignore[attr-defined]
        counted.append(calls(lambda s=scheduler, n=newcomer: s.step(2.0, [ev.Arrived(n)])))  # type: ignore[misc]
    assert max(counted) < 1.5 * min(counted), counted
