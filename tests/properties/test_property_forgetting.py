"""A scheduler that forgets who has ended decides the same as one that remembers everybody, under every policy."""

from __future__ import annotations

import json

import pytest
from every_policy import NAMES, variants

from builders import Flat, SimulatedWorld, cluster, mixed_cluster, seeded_trace
from dally.core.journal import Instant, Journal, Odd
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, load_memory, save
from dally.core.states import ENDED
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.faults import Faults, StartRules
from dally.simulator.knowledge import tell
from dally.simulator.profiles import Profiles
from dally.simulator.workload import prepare
from dally.simulator.world import WorldRules

CLUSTERS = [cluster(2, 2, 4), mixed_cluster(v100=(4, 4), a100=(4, 4))]
JOBS = 60


def run(policy: str, seed: int, remembers: int | None, *, saved_at: int | None = None) -> tuple[Scheduler, list[Instant]]:
    """To the end; saved and loaded again after so many instants, if asked for."""
    topology = CLUSTERS[seed % 2]
    network = make_network("level-penalty", topology)
    made = tell(prepare(seeded_trace(seed, JOBS, span=600, longest=150), topology, network), "declared")
    faults = Faults(len(topology.machines), mtbf=900, mttr=60, job_mtbf=500, retries=1000, checkpoint_interval=20,
                    seed=seed) if seed % 3 else Faults()  # fmt: skip
    starts = StartRules(3.0, 0.2, seed) if seed % 4 == 1 else StartRules()
    world = SimulatedWorld(made, topology, network, WorldRules(Flat(1.5, 2.5), faults, starts=starts))
    seen: list[Instant] = []

    def fresh() -> Scheduler:
        return Scheduler(topology, make_policy(policy), world, Journal(seen.append), Profiles(network, topology),
                         remembers=remembers)  # fmt: skip

    scheduler = fresh()
    if saved_at is not None:
        scheduler.run(lambda now: len(seen) < saved_at)
        state = json.loads(json.dumps(save(scheduler)))
        scheduler = fresh()
        load(scheduler, state)
        memory = load_memory(scheduler.policy, state, scheduler)
        assert memory is not None
        scheduler.resume_with(memory)
    scheduler.run()
    return scheduler, seen


def plain(instants: list[Instant]) -> list[Instant]:
    """What was odd is odd in other words where nobody remembers the job."""
    return [instant._replace(happened=[Odd(each.event, "") if isinstance(each, Odd) else each
                                       for each in instant.happened]) for instant in instants]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_whoever_has_ended_can_be_forgotten(name: str) -> None:
    for seed, policy in enumerate(variants(name)[:6]):
        everybody, whole = run(policy, seed, None)
        assert everybody.books.ended == len(everybody.jobs) == JOBS
        few, same = run(policy, seed, 5)
        assert plain(same) == plain(whole), policy
        assert few.books.ended == sum(job.state in ENDED for job in few.jobs.values()), policy
        learns = "gittins" in policy  # from how long jobs took: the policy itself remembers them
        assert learns or few.books.ended < JOBS, policy
        again, loaded = run(policy, seed, 5, saved_at=len(whole) // 2)
        assert loaded == same and list(again.jobs) == list(few.jobs), policy
