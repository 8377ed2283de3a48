"""Killed at any byte of its journal, brought back from snapshot and tail, a scheduler goes on to the same end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from every_policy import NAMES, variants

from builders import Flat, SimulatedWorld, cluster, mixed_cluster, seeded_trace
from dally.core.journal import Instant, Journal
from dally.core.scheduler import Scheduler
from dally.experiments.checks.disturbed import kill as kill_run
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.faults import Faults, StartRules
from dally.simulator.knowledge import tell
from dally.simulator.profiles import Profiles
from dally.simulator.workload import prepare
from dally.simulator.world import WorldRules
from dally.store.recovery import replay_world, trust
from dally.store.store import Store

CLUSTERS = [cluster(2, 2, 4), mixed_cluster(v100=(4, 4), a100=(4, 4))]


def new(policy: str, seed: int, store: Store, seen: list[Instant]) -> tuple[SimulatedWorld, Scheduler]:
    """A world and a scheduler that have seen nothing yet, the same for the same seed."""
    topology = CLUSTERS[seed % 2]
    network = make_network("level-penalty", topology)
    made = tell(prepare(seeded_trace(seed, 20, span=300, longest=200), topology, network),
                ("declared", "none", "noisy=0.7")[seed % 3])  # fmt: skip
    faults = Faults(len(topology.machines), mtbf=600, mttr=60, job_mtbf=500, retries=1000, checkpoint_interval=20,
                    seed=seed) if seed % 5 else Faults()  # fmt: skip
    starts = StartRules(3.0, 0.2, seed) if seed % 4 == 1 else StartRules()
    world = SimulatedWorld(made, topology, network, WorldRules(Flat(1.5, 2.5), faults, starts=starts))
    return world, Scheduler(topology, make_policy(policy), world, Journal(store, seen.append),
                            Profiles(network, topology))  # fmt: skip


def kill(policy: str, seed: int, kills: int, folder: Path) -> int:
    """One run, killed at random bytes; returns how often."""
    chance = random.Random(f"{policy}/{seed}")
    return kill_run(lambda store, seen: new(policy, seed, store, seen), policy, CLUSTERS[seed % 2], chance, kills, folder)


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_any_byte_it_comes_to_the_same_end(name: str, tmp_path: Path) -> None:
    for seed, policy in enumerate(variants(name)[:8]):
        kill(policy, seed, 4, tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_a_thousand_bytes_it_comes_to_the_same_end(name: str, tmp_path: Path) -> None:
    kills = 0
    for seed in range(30):
        policies = variants(name)
        kills += kill(policies[seed % len(policies)], seed, 5, tmp_path / str(seed))
    assert kills >= 125  # of each of the eight policies


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("after", NAMES)
def test_a_record_is_trusted_by_another_policy_which_finishes_everything(name: str, after: str, tmp_path: Path) -> None:
    if name != after and make_policy(name).shares and not make_policy(after).shares:
        pytest.skip("jobs that share GPUs cannot be taken over by a policy that does not share")
    whole: list[Instant] = []
    with Store.create(tmp_path / "a", CLUSTERS[1], policy=name) as store:
        store.synced = False
        _, scheduler = new(name, 7, store, whole)
        scheduler.run()
    middle = next(i for i in range(len(whole) // 2, len(whole)) if whole[i].decided is None)
    seen: list[Instant] = []
    with Store.create(tmp_path / "b", CLUSTERS[1], policy=after) as store:
        store.synced = False
        world, scheduler = new(after, 7, store, seen)
        trust(scheduler, whole[: middle + 1], make_policy)
        replay_world(world, whole[: middle + 1])
        scheduler.decide(whole[middle].time)
        scheduler.run(lambda now: len(seen) < 20_000)
    assert len(seen) < 20_000
    assert {job.state.value for job in scheduler.jobs.values()} <= {"finished", "rejected", "cancelled", "failed"}
