"""What Gandiva indexes agrees with the scheduler at every instant, and an event's cost ignores the queue."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from builders import SilentWorld, Spec, calls, cluster, mixed_cluster, play, watched_steps
from dally.catalog.interference import CatalogInterference
from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.job import Job, Truth
from dally.core.journal import Journal
from dally.core.plan import Start
from dally.core.scheduler import Scheduler
from dally.policies.gandiva import Gandiva
from dally.policies.gandiva.introspection import Introspection
from dally.policies.gandiva.memory import Class, GandivaMemory
from dally.policies.gandiva.peers import Peers
from dally.policies.gandiva.ready import Ready
from dally.policies.options import make_policy
from dally.simulator.faults import Faults, StartRules
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


def index(policy: Gandiva) -> dict[str, object]:
    """All that is worked out from the view and the memory; empty orders are as good as none."""
    servers, ready = policy.servers, policy.ready
    return {
        "groups": {peers.wanted: list(peers.groups) for peers in servers.peers if peers.groups},
        "high": {peers.wanted: peers.high for peers in servers.peers if peers.high},
        "packed": {peers.wanted: list(peers.packed) for peers in servers.peers if peers.packed},
        "listed": dict(servers._listed.items()), "kept": dict(servers._kept.items()),
        "where": dict(servers._where.items()),
        "affine": {size: bits for size, bits in servers._affine.items() if bits},
        "ready": {peers.wanted: ready.first(peers, 8) for peers in servers.peers if ready.count(peers)},
        "places": {job_id: place.peers.wanted for job_id, place in ready._places.items()},
    }  # fmt: skip


def check_index(policy: Gandiva, scheduler: Scheduler) -> None:
    """What is kept in step with every plan and event is what would be worked out from nothing."""
    fresh = make_policy(policy.name)
    assert isinstance(fresh, Gandiva)
    before = scheduler.memory.save(scheduler.books.view.topology)
    fresh.attach(scheduler.books.view, scheduler.memory)
    assert index(policy) == index(fresh)
    assert scheduler.memory.save(scheduler.books.view.topology) == before, "to look is not to change"


def check_servers(policy: Gandiva, scheduler: Scheduler) -> None:
    """Heights and affinities are those of the jobs that are there."""
    view = scheduler.books.view
    for machine in view.topology.machines:
        held: Counter[int] = Counter()
        for group in view.groups.on(machine.index):
            size = view.job(next(iter(group.members))).gpus
            held[size] += len(group.turns) * dict(group.placement.slices)[machine.index].bit_count()
        assert policy.servers.height(machine.index) == -(-sum(held.values()) // machine.gpus)
        affinity = policy.servers.affinity(machine.index)
        assert held[affinity] == max(held.values(), default=0)
        assert bool(policy.servers.idle >> machine.index & 1) == (not held)


def check_memory(scheduler: Scheduler) -> None:
    """Only jobs that hold GPUs are remembered, but for what was learned of models and gangs."""
    memory, groups = scheduler.memory, scheduler.books.view.groups
    assert isinstance(memory, GandivaMemory)
    for table in (memory.alone, memory.watched, memory.packed, memory.trials, memory.apart, memory.grown,
                  memory.could_grow, memory.rescued):  # fmt: skip
        assert all(job_id in groups for job_id in table)
    assert {entry[2] for entry in memory.looks} == set(memory.watched)
    assert {(order, job_id) for job_id, order in memory.apart.items()} == set(memory.apart_first)
    assert {(*place, job_id) for job_id, place in memory.could_grow.items()} == set(memory.growing_on)
    for job_id, trial in memory.trials.items():
        assert memory.trials[trial.partner].partner == job_id
        assert groups.of(job_id).placement == trial.placement and trial.partner in groups.of(job_id).turn(job_id)


@pytest.mark.parametrize("starts", [None, StartRules(20.0, 0.1)], ids=["at once", "late and refused"])
@pytest.mark.parametrize("options", ["", "[starvation=10m]", "[slicing=false]", "[variant=dally-paper]", "[height=2]"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_indexes_agree_with_the_scheduler_in_overload_with_failures(
    options: str, seed: int, starts: StartRules | None
) -> None:
    topology = mixed_cluster(V100=(4, 4, 4, 2), P100=(4, 4, 8)) if seed else cluster(3, 3, 4, gpu_type="V100")
    policy = make_policy(f"gandiva{options}")
    assert isinstance(policy, Gandiva)
    tallest = 0

    def check(scheduler: Scheduler, now: float) -> None:
        nonlocal tallest
        check_index(policy, scheduler)
        check_servers(policy, scheduler)
        check_memory(scheduler)
        groups = scheduler.books.view.groups
        tallest = max([tallest, *(len(group.turns) for group in groups)])
        for group in groups:
            assert all(len(turn) <= 2 for turn in group.turns)

    faults = Faults(len(topology.machines), mtbf=20_000, mttr=500, job_mtbf=20_000, retries=10_000,
                    checkpoint_interval=50, seed=seed) if seed else None  # fmt: skip
    with watched_steps(check):
        played = play(drawn(seed, topology.gpu_types), topology, policy, network="level-penalty", cost="gandiva",
                      faults=faults, interference=CatalogInterference(), meter=NoisyMeter(0.02, seed),
                      starts=starts)  # fmt: skip
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    limit = {"[slicing=false]": 2, "[variant=dally-paper]": 1, "[height=2]": 2, "": 4}.get(options)
    assert limit is None or tallest <= limit


def test_who_uses_least_is_found_without_working_out_everybodys_utilisation() -> None:
    chance = random.Random(0)
    jobs = [ActiveJob(Job(f"j{i}", 0.0, 1, model=chance.choice(MODELS)), i, 0.0) for i in range(300)]
    view = Scheduler(cluster(1, 1, 8), make_policy("gandiva"), SilentWorld(), Journal()).books.view
    view._jobs = {job.id: job for job in jobs}
    watch, memory = Introspection(20, 0, 60.0), GandivaMemory()
    ready, peers = Ready(view, memory.draft, watch), Peers(memory.draft, Class("V100", 1))
    for job in jobs:
        ready.put(peers, job)
    told = Introspection(20, 0, 60.0)
    expected = sorted((told.utilization(job), job.number, job.id) for job in jobs)
    assert ready.first(peers, 8) == expected[:8]
    assert 8 <= len(watch._utilization) < 150
    for _, _, job_id in expected[:4]:
        ready.drop(job_id)
    assert ready.first(peers, 8) == expected[4:12]
    assert ready.first(peers, 300) == expected[4:] and ready.count(peers) == 296


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
