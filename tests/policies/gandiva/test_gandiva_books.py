"""Gandiva's mirror of the servers agrees with the scheduler at every instant, and an event's cost ignores the queue."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from builders import SilentWorld, Spec, calls, cluster, mixed_cluster, play, watched_steps
from dally.catalog.interference import CatalogInterference
from dally.core import events as ev
from dally.core.job import Job, Truth
from dally.core.journal import Journal
from dally.core.plan import Start
from dally.core.scheduler import Scheduler
from dally.core.sharing import Groups
from dally.policies.gandiva import Gandiva
from dally.policies.options import make_policy
from dally.simulator.faults import Faults
from dally.simulator.meter import NoisyMeter

MODELS = ("lstm", "resnet50", "mobilenetv3-small", "recommendation", "a3c", "vgg16", None)


def drawn(seed: int, types: tuple[str, ...]) -> list[Spec]:
    chance = random.Random(seed)
    specs = []
    for i in range(80):
        gpus = chance.choice([1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 12])
        limits = (1, 2 * gpus) if chance.random() < 0.3 else (None, None)
        job = Job(f"j{i}", float(chance.randint(0, 3000)), gpus, gpu_type=chance.choice([None, None, *types]),
                  model=chance.choice(MODELS), priority=chance.choice([0, 0, 0, 1, 2]), min_gpus=limits[0],
                  max_gpus=limits[1])  # fmt: skip
        specs.append(Spec(job, Truth(float(chance.choice([30, 300, 1000, 2000])))))
    return specs


def who(groups: Groups) -> set[object]:
    return {(g.placement, tuple(sorted(tuple(sorted(turn)) for turn in g.turns))) for g in groups}


@pytest.mark.parametrize("options", ["", "[starvation=10m]", "[slicing=false]", "[variant=dally-paper]", "[height=2]"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_mirror_agrees_with_the_scheduler_in_overload_with_failures(options: str, seed: int) -> None:
    topology = mixed_cluster(V100=(4, 4, 4, 2), P100=(4, 4, 8)) if seed else cluster(3, 3, 4, gpu_type="V100")
    policy = make_policy(f"gandiva{options}")
    assert isinstance(policy, Gandiva)
    tallest = 0

    def check(scheduler: Scheduler, now: float) -> None:
        nonlocal tallest
        servers = policy.servers
        assert servers is not None
        assert who(servers.groups) == who(scheduler.view.groups)
        for machine in topology.machines:
            held: Counter[int] = Counter()
            for group in scheduler.view.groups.on(machine.index):
                size = scheduler.jobs[next(iter(group.members))].gpus
                held[size] += len(group.turns) * dict(group.placement.slices)[machine.index].bit_count()
            assert servers.height(machine.index) == -(-sum(held.values()) // machine.gpus)
            affinity = servers.affinity(machine.index)
            assert held[affinity] == max(held.values(), default=0)
            assert bool(servers.idle >> machine.index & 1) == (not held)
        tallest = max([tallest, *(len(group.turns) for group in scheduler.view.groups)])
        for group in scheduler.view.groups:
            assert all(len(turn) <= 2 for turn in group.turns)

    faults = Faults(len(topology.machines), mtbf=20_000, mttr=500, job_mtbf=20_000, retries=10_000,
                    checkpoint_interval=50, seed=seed) if seed else None  # fmt: skip
    with watched_steps(check):
        played = play(drawn(seed, topology.gpu_types), topology, policy, network="level-penalty", cost="gandiva",
                      faults=faults, interference=CatalogInterference(), meter=NoisyMeter(0.02, seed))  # fmt: skip
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    limit = {"[slicing=false]": 2, "[variant=dally-paper]": 1, "[height=2]": 2, "": 4}.get(options)
    assert limit is None or tallest <= limit


def one_end(policy: str, queue: int) -> int:
    """64 GPUs, all busy and taking turns, a queue of gangs; one job ends and another starts."""
    world = SilentWorld()
    scheduler = Scheduler(cluster(1, 8, 8, gpu_type="V100"), make_policy(policy), world, Journal(),
                          interference=CatalogInterference())  # fmt: skip
    running = [Job(f"r{i}", 0.0, 1, model=("lstm", "resnet50")[i % 2]) for i in range(64)]
    waiting = [Job(f"w{i}", 1.0, (1, 2, 4, 8)[i % 4], model=("vgg16", "a3c")[i // 4 % 2]) for i in range(queue)]
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(1.0, [ev.Arrived(job) for job in waiting])
    before = len(world.done)
    counted = calls(lambda: scheduler.step(2.0, [ev.Finished("r0")]))
    assert any(isinstance(action, Start) for action in world.done[before:]), "the freed GPU found nobody"
    return counted


@pytest.mark.parametrize("options", ["", "[slicing=false]", "[starvation=2h]", "[variant=dally-paper]"])
def test_an_end_costs_as_many_calls_with_thousands_waiting_as_with_a_thousand(options: str) -> None:
    counted = [one_end(f"gandiva{options}", queue) for queue in (1000, 2000, 5000)]
    assert max(counted) < 1.5 * min(counted), counted
