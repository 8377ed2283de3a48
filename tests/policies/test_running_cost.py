"""An event costs the same however many jobs run: calls are counted, not seconds."""

from __future__ import annotations

import pytest

from builders import SilentWorld, calls, cluster
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.plan import Preempt
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy
from dally.simulator.knowledge import Perfect

pytestmark = pytest.mark.pure
MACHINES = (8, 32, 128)  # of 8 GPUs, a job on each
POLICIES = ["fifo", "fifo[backfill=true]", "smallest", "srtf", "las", "tiresias", "tiresias[placement=any]", "tiresias[variant=released]",
            "tiresias[continuous=true]", "gandiva", "gavel"]  # fmt: skip


def busy(policy: str, machines: int, queue: int, *, left: float) -> Scheduler:
    """All GPUs taken by jobs of one GPU with so much work left, and gangs that wait behind them."""
    work = {"new": 1e5}
    scheduler = Scheduler(cluster(1, machines, 8), make_policy(policy), SilentWorld(), Journal(), Perfect(work))
    running = [Job(f"r{i}", 0.0, 1, model="resnet50") for i in range(8 * machines)]
    waiting = [Job(f"w{i}", 1.0, (1, 2, 4, 8)[i % 4], model=("vgg16", "resnet50")[i // 4 % 2]) for i in range(queue)]
    work.update({job.id: left + i for i, job in enumerate(running)} | {job.id: 1e6 + i for i, job in enumerate(waiting)})
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(1.0, [ev.Arrived(job) for job in waiting])
    return scheduler


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("event", ["an end", "an arrival"])
def test_an_event_costs_as_many_calls_with_a_thousand_running_as_with_sixty_four(policy: str, event: str) -> None:
    happens = ev.Finished("r0") if event == "an end" else ev.Arrived(Job("new", 2.0, 8, model="vgg16"))
    counted = []
    for machines in (MACHINES[0], *MACHINES):  # the first one fills what is looked up once
        scheduler = busy(policy, machines, 100, left=100.0)
        counted.append(calls(lambda s=scheduler: s.step(2.0, [happens])))  # type: ignore[misc]
    assert max(counted[1:]) < 1.2 * min(counted[1:]), counted


@pytest.mark.parametrize("policy", ["srtf", "tiresias[placement=any]"])
def test_taking_gpus_costs_as_many_calls_with_a_thousand_running_as_with_sixty_four(policy: str) -> None:
    counted = []
    for machines in (MACHINES[0], *MACHINES):
        scheduler = busy(policy, machines, 0, left=1e6)
        world = scheduler.world
        assert isinstance(world, SilentWorld)
        scheduler.step(20_000.0, [ev.TimerDue()])
        before, new = len(world.done), ev.Arrived(Job("new", 20_001.0, 4))
        counted.append(calls(lambda s=scheduler, n=new: s.step(20_001.0, [n])))  # type: ignore[misc]
        assert sum(isinstance(action, Preempt) for action in world.done[before:]) == 4
    assert max(counted[1:]) < 1.2 * min(counted[1:]), counted


def split(policy: str, machines: int, queue: int) -> Scheduler:
    """Seven jobs on each machine that could lose their GPUs and one that could not, and gangs that wait for whole
    machines: everybody behind them would not be enough anywhere."""
    scheduler = Scheduler(cluster(1, machines, 8), make_policy(policy), SilentWorld(), Journal(), Perfect({}))
    running = [Job(f"r{i}", 0.0, 1, model="resnet50", preemptible=i % 8 > 0) for i in range(8 * machines)]
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(20_000.0, [ev.TimerDue()])  # all are demoted
    waiting = [Job(f"w{i}", 20_001.0, (8, 16, 24)[i % 3], model="vgg16") for i in range(queue)]
    scheduler.step(20_001.0, [ev.Arrived(job) for job in waiting])
    assert all(scheduler.jobs[job.id].placement is None for job in waiting)
    return scheduler


@pytest.mark.parametrize("policy", ["tiresias", "tiresias[placement=strict]", "tiresias[order=running]", "tiresias[promote=4]", "tiresias[continuous=true]"])  # fmt: skip
@pytest.mark.parametrize("event", ["an end", "an arrival"])
def test_to_look_for_machines_among_jobs_behind_costs_as_many_calls_with_a_thousand_of_them(policy: str, event: str) -> None:
    happens = ev.Finished("r9") if event == "an end" else ev.Arrived(Job("new", 20_002.0, 8, model="vgg16"))
    counted = []
    for machines, queue in ((8, 12), (8, 12), (32, 12), (128, 12), (32, 1200)):  # the first one fills what is looked up once
        scheduler = split(policy, machines, queue)
        counted.append(calls(lambda s=scheduler: s.step(20_002.0, [happens])))  # type: ignore[misc]
    assert max(counted[1:]) < 1.2 * min(counted[1:]), counted


@pytest.mark.parametrize("policy", ["tiresias", "tiresias[placement=strict]"])
def test_to_clear_a_machine_costs_as_many_calls_with_a_thousand_running(policy: str) -> None:
    counted = []
    for machines in (MACHINES[0], *MACHINES):
        scheduler = split(policy, machines, 12)
        world = scheduler.world
        assert isinstance(world, SilentWorld)
        before, new = len(world.done), ev.Arrived(Job("new", 20_002.0, 4, model="vgg16"))
        counted.append(calls(lambda s=scheduler, n=new: s.step(20_002.0, [n])))  # type: ignore[misc]
        assert sum(isinstance(action, Preempt) for action in world.done[before:]) == 4
    assert max(counted[1:]) < 1.2 * min(counted[1:]), counted
