"""Every form of Tiresias with jobs that teach it something: planning leaves no trace, and it can take over and give up."""

from __future__ import annotations

import random

import pytest
from disturbed import disturbed
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Flat, Played, Spec, cluster, job, play, watched_steps
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy
from dally.simulator.faults import Faults, StartRules

FORMS = ["tiresias[thresholds=60,promote=2]", "tiresias[index=gittins,queues=3,thresholds=50/200,order=running]",
         "tiresias[continuous=true,quantum=20,index=gittins]", "tiresias[placement=strict,thresholds=60]",
         "tiresias[variant=released,thresholds=60/150,promote=1]", "tiresias[variant=dally-paper,quantum=20]"]  # fmt: skip
MODELS = ("vgg16", "resnet50", "bert", "alexnet", "googlenet", None)


def gangs(seed: int, count: int = 45) -> list[Spec]:
    """More than the cluster can serve at once, of models that suffer on several machines and models that do not."""
    chance = random.Random(seed)
    return [job(f"j{i}", chance.choice((1, 2, 2, 3, 4, 8)), chance.randint(0, 120), chance.randint(0, 400),
                model=chance.choice(MODELS)) for i in range(count)]  # fmt: skip


def played(policy: str, jobs: list[Spec], seed: int) -> Played:
    topology = cluster(2, 2, 4)
    faults = Faults(len(topology.machines), mtbf=800, mttr=50, job_mtbf=600, retries=10_000, checkpoint_interval=20,
                    seed=seed) if seed % 2 else None  # fmt: skip
    starts = StartRules(5.0, 0.2, seed) if seed % 3 == 0 else None
    # three times slower across machines than inside one: PACKLIMIT moves
    return play(jobs, topology, policy, network="level-penalty[cluster=3]", cost=Flat(0, 2 * (seed % 2)),
                faults=faults, starts=starts)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", FORMS)
def test_asking_and_being_reborn_from_text_change_nothing(policy: str, seed: int) -> None:
    plain = played(policy, gangs(seed), seed)
    with disturbed(seed, asks=1, rebirths=0.2):
        again = played(policy, gangs(seed), seed)
    assert again.instants == plain.instants


@pytest.mark.parametrize("policy", FORMS)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), before=st.sampled_from(("las[quantum=30]", "fifo", FORMS[0])))
def test_whoever_hands_over_to_it_in_the_middle_everybody_ends(policy: str, seed: int, before: str) -> None:
    handed = []

    def hand_over(scheduler: Scheduler, now: float) -> None:
        if now >= 60 and not handed:
            handed.append(now)
            scheduler.put_in_charge(make_policy(policy), now)
            scheduler.decide(now)

    with watched_steps(hand_over):
        run = played(before, gangs(seed, 15), seed).run
    assert all(row.outcome == "finished" for row in run.ledger.rows)
