"""An event under Dally costs the same however many jobs wait, whether they fit or decline: calls are counted."""

from __future__ import annotations

import pytest

from builders import SilentWorld, calls, cluster
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.plan import Start
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy
from dally.simulator.knowledge import Perfect

POLICIES = ["dally[timers=auto]", "dally[timers=manual]", "dally[timers=infinite]", "dally[timers=none]",
            "dally[timers=value]"]  # fmt: skip


def one_end(policy: str, queue: int) -> int:
    """64 GPUs, all held by jobs of one GPU; one ends, and of the queue behind them a job of one starts."""
    world = SilentWorld()
    running = [Job(f"r{i}", 0.0, 1) for i in range(64)]
    waiting = [Job(f"w{i}", 1.0, (1, 2, 4, 8)[i % 4]) for i in range(queue)]
    work = {job.id: 1e6 for job in (*running, *waiting)}
    scheduler = Scheduler(cluster(2, 4, 8), make_policy(policy), world, Journal(), Perfect(work))
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(1.0, [ev.Arrived(job) for job in waiting])
    scheduler.step(2.0, [ev.Finished("r1")])
    before = len(world.done)
    counted = calls(lambda: scheduler.step(3.0, [ev.Finished("r9")]))
    assert any(isinstance(action, Start) for action in world.done[before:]), "the freed GPU found nobody"
    return counted


@pytest.mark.parametrize("policy", POLICIES)
def test_an_end_costs_as_many_calls_with_thousands_waiting_as_with_a_hundred(policy: str) -> None:
    one_end(policy, 10)  # tables that are computed once
    counted = [one_end(policy, queue) for queue in (100, 1_000, 5_000)]
    assert max(counted) < 1.5 * min(counted), counted


def test_gangs_that_decline_cost_nothing_each() -> None:
    counted = []
    for queue in (100, 1_000, 5_000):
        scheduler = Scheduler(cluster(2, 2, 4), make_policy("dally[timers=auto]"), SilentWorld(), Journal())
        for machine in range(4):
            scheduler.books.view.free.take_mask(machine, 0b1100)
        scheduler.step(0.0, [ev.Arrived(Job(f"w{i}", 0.0, 4)) for i in range(queue)])
        counted.append(calls(lambda s=scheduler: s.step(1.0, [ev.TimerDue()])))  # type: ignore[misc]
    assert max(counted) < 1.5 * min(counted), counted
