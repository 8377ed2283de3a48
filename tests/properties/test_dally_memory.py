"""Dally's memory is all there is to it: asked in vain, looked ahead, reborn or put in charge, it goes on the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from disturbed import disturbed

from builders import Flat, Played, SilentWorld, at, cluster, mixed_cluster, play, seeded_trace, watched_steps
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.scheduler import Scheduler
from dally.core.topology import MachineSpec, Topology
from dally.policies.options import make_policy
from dally.simulator.faults import Faults, StartRules
from dally.simulator.knowledge import Noisy, Nothing

HOUR = 3600.0
POLICIES = ["dally[lease=1m]", "dally[timers=auto,lease=3m,floors=0.5/1]", "dally[timers=manual,lease=5m]",
            "dally[timers=infinite,lease=10m]", "dally[timers=none,lease=3m]"]  # fmt: skip
each_policy = pytest.mark.parametrize("policy", POLICIES)


def run(policy: str, world: str, seed: int) -> Played:
    topology: Topology = [cluster(2, 2, 4), mixed_cluster(v100=(4, 2), a100=(4, 4)), cluster(1, 2, 4, islands=(2, 2))][
        seed % 3]  # fmt: skip
    types = (None, *topology.gpu_types) if seed % 3 == 1 else (None,)
    trace = seeded_trace(seed, jobs=24, sizes=(1, 2, 3, 4, 4, 8), span=2500, longest=2500, types=types)
    work = {job.id: truth.duration or 0.0 for job, truth in zip(trace.jobs, trace.truths, strict=True)}
    faults = Faults(len(topology.machines), mtbf=9000, mttr=400, job_mtbf=5000, retries=10_000, checkpoint_interval=200,
                    seed=seed) if "failing" in world else None  # fmt: skip
    return play(trace, topology, policy, network="level-penalty[rack=2,cluster=4]", cost=Flat(2 * (seed % 2), 3),
                faults=faults, starts=StartRules(30.0, 0.1) if "late" in world else None,
                estimates=[None, Nothing(), Noisy(work, 0.7, seed)][seed // 3 % 3])  # fmt: skip


@contextmanager
def looking_ahead(by: float) -> Iterator[None]:
    """Inside the block every scheduler is asked what it would do later, if nothing happened until then."""
    with watched_steps(lambda scheduler, now: None if scheduler.ask(now + by).broken is None else pytest.fail("broken")):
        yield


@each_policy
@pytest.mark.parametrize(("world", "seed"), [("failing", 4), ("late and failing", 6)])
def test_a_run_is_the_same_when_asked_in_vain_and_reborn_now_and_then(policy: str, world: str, seed: int) -> None:
    undisturbed = run(policy, world, seed)
    assert {row.outcome for row in undisturbed.run.ledger.rows} <= {"finished", "rejected"}
    with disturbed(seed, rebirths=0.3):
        assert run(policy, world, seed).entries == undisturbed.entries


@each_policy
def test_to_look_ahead_leaves_no_trace(policy: str) -> None:
    undisturbed = run(policy, "failing", 2)
    with looking_ahead(5000.0):
        assert run(policy, "failing", 2).entries == undisturbed.entries


@each_policy
@pytest.mark.parametrize(("before", "world"), [("las[quantum=2m]", "quiet"), ("dally[lease=2m]", "late and failing")])
def test_put_in_charge_of_a_cluster_in_operation_it_finishes_everything(policy: str, before: str, world: str) -> None:
    instants = 0

    def take_over(scheduler: Scheduler, now: float) -> None:
        nonlocal instants
        instants += 1
        if instants == 40:
            scheduler.put_in_charge(make_policy(policy), now)

    with watched_steps(take_over):
        played = run(before, world, 3)
    assert instants > 60
    assert {row.outcome for row in played.run.ledger.rows} <= {"finished", "rejected"}


def desk(policy: str, topology: Topology) -> Scheduler:
    return Scheduler(topology, make_policy(policy), SilentWorld(), Journal(), Nothing())


def test_a_wait_that_somebody_else_ended_is_noted_like_its_own() -> None:
    tree = cluster(1, 2, 4)
    scheduler = desk("dally[timers=auto]", tree)
    for machine in (0, 1):
        scheduler.books.view.free.take_mask(machine, 0b1111)
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 4)), ev.Arrived(Job("b", 0.0, 4))])
    scheduler.books.view.free.give_mask(0, 0b1111)
    start = pl.Start("a", at((0, 0b1111)), HOUR)
    scheduler.books.decided(7 * HOUR, [start])  # a record that is trusted
    scheduler.hear(7 * HOUR, [start])
    memory = scheduler.memory.save(tree)
    assert memory["taken"] == [[[4, None, None], [[[7 * HOUR, 7.0]], []]]]


@each_policy
def test_a_cluster_may_grow_and_shrink_under_it(policy: str) -> None:
    tree = cluster(1, 2, 4)
    names = [machine.name for machine in tree.machines]
    scheduler = desk(policy, tree)
    scheduler.step(0.0, [ev.Arrived(Job(f"j{i}", 0.0, 4)) for i in range(4)])
    jobs = scheduler.books.jobs
    assert sum(job.placement is not None for job in jobs.values()) == 2
    path = tuple(tree.machine_names[1].split("/"))
    scheduler.step(10.0, [ev.MachinesChanged(added=(MachineSpec((*path[:-1], "a new one"), 4, "gpu"),))])
    assert sum(job.placement is not None for job in jobs.values()) == 3
    gone = [job for job in jobs.values() if job.placement is not None and job.placement.slices[0][0] ==
            scheduler.books.view.topology.machine_by_name[names[0]]]  # fmt: skip
    scheduler.step(20.0, [ev.MachinesChanged(removed=(names[0],))])
    scheduler.step(21.0, [ev.Interrupted(job.id, 0.0, "its machine is gone") for job in gone])
    for time in range(4):
        for job in list(jobs.values()):
            if job.movable:
                scheduler.step(30.0 + time, [ev.Finished(job.id)])
    assert {job.state.value for job in jobs.values()} == {"finished"}
