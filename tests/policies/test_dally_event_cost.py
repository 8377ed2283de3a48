"""An event under Dally costs the same however many jobs wait, whether they fit or decline, and however many run: calls
are counted."""

from __future__ import annotations

import pytest

from builders import SilentWorld, calls, cluster
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.plan import Preempt, Start
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


def an_end_among(policy: str, racks: int, *, waiting: int) -> int:
    """As many jobs of one GPU as there are GPUs, no lease protects them, and one ends; who waits has more left."""
    world = SilentWorld()
    topology = cluster(racks, 10, 8)
    running = [Job(f"r{i}", 0.0, 1) for i in range(topology.gpus)]
    queue = [Job(f"w{i}", 1.0, (1, 2, 4, 8)[i % 4]) for i in range(waiting)]
    work = {job.id: 1e6 + i for i, job in enumerate(running)} | {job.id: 1.1e6 for job in queue}
    work |= {"r1": 5002.0, "r9": 5003.0}  # as they have declared it: nobody learns from them
    scheduler = Scheduler(topology, make_policy(policy), world, Journal(), Perfect(work))
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(5000.0, [ev.LeaseEnded(job.id) for job in running])
    scheduler.step(5001.0, [ev.Arrived(job) for job in queue])
    scheduler.step(5002.0, [ev.Finished("r1")])
    before = len(world.done)
    counted = calls(lambda: scheduler.step(5003.0, [ev.Finished("r9")]))
    assert any(isinstance(action, Start) for action in world.done[before:]) == (waiting > 0)
    return counted


@pytest.mark.parametrize("waiting", [0, 40])
@pytest.mark.parametrize("policy", ["dally[timers=auto]", "dally"])
def test_an_end_costs_as_many_calls_among_thousands_that_run_as_among_a_hundred(policy: str, waiting: int) -> None:
    an_end_among(policy, 1, waiting=waiting)  # tables that are computed once
    counted = [an_end_among(policy, racks, waiting=waiting) for racks in (2, 8, 32)]
    assert max(counted) < 1.5 * min(counted), counted


def test_a_newcomer_that_would_take_others_gpus_costs_as_many_calls_among_thousands_that_run() -> None:
    counted = []
    for racks in (1, 2, 8, 32):
        topology = cluster(racks, 10, 8)
        running = [Job(f"r{i}", 0.0, 1) for i in range(topology.gpus)]
        work = {job.id: 1e6 + i for i, job in enumerate(running)} | {"first": 10.0, "new": 10.0}
        world = SilentWorld()
        scheduler = Scheduler(topology, make_policy("dally"), world, Journal(), Perfect(work))
        scheduler.step(0.0, [ev.Arrived(job) for job in running])
        scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
        scheduler.step(5000.0, [ev.LeaseEnded(job.id) for job in running])
        scheduler.step(5001.0, [ev.Arrived(Job("first", 5001.0, 4))])  # what is put in order only where somebody asks
        before = len(world.done)
        counted.append(calls(lambda s=scheduler: s.step(5002.0, [ev.Arrived(Job("new", 5002.0, 4))])))  # type: ignore[misc]
        assert sum(isinstance(action, Preempt) for action in world.done[before:]) == 4
    assert max(counted[1:]) < 1.5 * min(counted[1:]), counted
