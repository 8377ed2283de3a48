"""Gandiva in every small world, whatever its starts do: asked in vain, reborn, put in charge in the middle, half blind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from disturbed import disturbed
from every_policy import Case, cases, runnable
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Flat, Pairwise, Played, SilentWorld, Spec, cluster, job, play, watched_steps
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Decided, Journal
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.core.topology import MachineSpec
from dally.policies.options import make_policy
from dally.simulator.faults import StartRules

EXAMPLES = settings().max_examples
STARTS = [None, StartRules(5.0), StartRules(30.0, 0.2), StartRules(0.0, 0.3, seed=7)]
OPTIONS = ["", "[starvation=20]", "[slicing=false]", "[height=2,minibatches=5]", "[variant=dally-paper]",
           "[minibatches=3,quantum=5,grow_after=3]", "[packing=false,defragment=0.3]"]  # fmt: skip
MODELS = (None, "lstm", "a3c", "resnet50", "vgg16")


def richer(case: Case, seed: int) -> list[Spec]:
    """The jobs of a case with models, and some of them elastic."""
    chance = random.Random(seed)
    made = []
    for i, spec in enumerate(case.jobs):
        limits = (1, 2 * spec.job.gpus) if chance.random() < 0.3 else None
        new = job(f"j{i}", spec.job.gpus, spec.truth.duration or 0.0, spec.job.submit_time,
                  gpu_type=spec.job.gpu_type, model=chance.choice(MODELS), limits=limits)  # fmt: skip
        made.append(replace(new, job=replace(new.job, within=spec.job.within)))
    return made


def run(case: Case, options: str, seed: int, starts: StartRules | None) -> Played:
    return play(richer(case, seed), case.topology, f"gandiva{options}", network=case.network, cost=Flat(*case.cost),
                faults=case.faults(), instants=60_000, interference=Pairwise(1.3), starts=starts)  # fmt: skip


each = given(case=cases("gandiva"), options=st.sampled_from(OPTIONS), seed=st.integers(0, 99),
             starts=st.sampled_from(STARTS))  # fmt: skip


@each
@settings(max_examples=EXAMPLES)
def test_everybody_ends_and_everybody_who_waits_knows_why(
    case: Case, options: str, seed: int, starts: StartRules | None
) -> None:
    def check(scheduler: Scheduler, now: float) -> None:
        for active in scheduler.books.jobs.values():
            assert active.state is not State.WAITING or scheduler.reason(active.id) is not None, (active.id, now)

    with watched_steps(check):
        played = run(case, options, seed, starts)
    for row in played.run.ledger.rows:
        assert row.outcome == ("finished" if row.job_id in runnable(case) else "rejected"), row.job_id


@each
@settings(max_examples=EXAMPLES)
def test_to_be_asked_in_vain_and_to_be_born_again_leaves_no_trace(
    case: Case, options: str, seed: int, starts: StartRules | None
) -> None:
    undisturbed = run(case, options, seed, starts).entries
    with disturbed(seed, asks=2, rebirths=0.3):
        assert run(case, options, seed, starts).entries == undisturbed


@each
@settings(max_examples=EXAMPLES // 2)
def test_put_in_charge_in_the_middle_it_finishes_what_others_began(
    case: Case, options: str, seed: int, starts: StartRules | None
) -> None:
    chance = random.Random(seed)
    taken = 0

    def take_over(scheduler: Scheduler, now: float) -> None:
        nonlocal taken
        if chance.random() < 0.2 and taken < 3:
            taken += 1
            scheduler.put_in_charge(make_policy(f"gandiva{options}"), now)

    with watched_steps(take_over):
        played = play(richer(case, seed), case.topology, ("las", "gandiva", "fifo")[seed % 3], network=case.network,
                      cost=Flat(*case.cost), faults=case.faults(), instants=60_000, interference=Pairwise(1.3),
                      starts=starts)  # fmt: skip
    for row in played.run.ledger.rows:
        assert row.outcome == ("finished" if row.job_id in runnable(case) else "rejected"), row.job_id


class Capricious(SilentWorld):
    """Does as it is told, or does not: the test says what is heard of it."""

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        self.done += decided
        return ()


@given(seed=st.integers(0, 10_000), options=st.sampled_from(OPTIONS))
@settings(max_examples=2 * EXAMPLES)
def test_whatever_is_heard_in_whatever_order_its_plans_keep_the_rules(seed: int, options: str) -> None:
    chance = random.Random(seed)
    topology = cluster(2, 2, 4, gpu_type="V100")
    scheduler = Scheduler(topology, make_policy(f"gandiva{options}"), Capricious(), Journal(),
                          interference=Pairwise(1.3))  # fmt: skip
    now, added = 0.0, 0
    for i in range(60):
        now += chance.choice([0.0, 1.0, 10.0, 100.0])
        events: list[ev.Event] = []
        for _ in range(chance.randint(1, 3)):
            names = list(scheduler.books.jobs) or ["nobody"]
            who = chance.choice(names)
            machine = chance.choice(scheduler.books.view.topology.machine_names)
            added += 1
            elastic = chance.random() < 0.3
            events.append(chance.choice([
                ev.Arrived(Job(f"n{i}-{added}", now, chance.choice([1, 1, 2, 4, 8]), model=chance.choice(MODELS),
                               max_gpus=8 if elastic else None)),
                ev.Measured(who, 1.0, 0.5, 0.0), ev.Measured(who, 0.7, chance.choice([0.4, 2.0]), 0.0),
                ev.Started(who), ev.StartFailed(who, "no"), ev.Finished(who), ev.Interrupted(who, 0.0, "a fault"),
                ev.Yielded(who), ev.ContactLost(who), ev.ContactRestored(who), ev.MachineDown(machine),
                ev.MachineUp(machine), ev.MachineUp(machine), ev.TimerDue(),
                ev.MachinesChanged((MachineSpec(("rack0", f"extra{added}"), 4, "V100"),)) if added % 7 == 0
                else ev.MachinesChanged((), (machine,)) if added % 11 == 0 else ev.TimerDue(),
            ]))  # fmt: skip
        if chance.random() < 0.3:  # most of the time a cluster answers
            events += [ev.Measured(j.id, 1.0, 0.5, 0.0) for j in scheduler.books.jobs.values()
                       if j.state in (State.STARTING, State.LOST) and j.placement is not None]  # fmt: skip
        events.sort(key=lambda event: ev.ORDER[type(event)])
        scheduler.step(now, events)  # a plan that breaks a rule is an error here
        assert scheduler.ask(now).broken is None
    for active in scheduler.books.jobs.values():
        assert active.state in ENDED or active.state is not State.WAITING or scheduler.reason(active.id) is not None


def test_a_job_whose_start_was_refused_is_started_again_and_its_neighbours_trial_is_void() -> None:
    specs = [job(f"j{i}", 1, 400, i, model="lstm") for i in range(8)]
    played = play(specs, cluster(2, gpu_type="V100"), "gandiva[minibatches=5]", interference=Pairwise(1.2),
                  starts=StartRules(3.0, 0.4, seed=5))  # fmt: skip
    refused = [e.job for _, e in played.of(ev.StartFailed)]  # type: ignore[union-attr]
    moved = {e.job for _, e in played.of(pl.Migrate)}  # type: ignore[union-attr]
    assert refused and moved & set(refused), "neither a start nor a move was refused"
    assert {played.outcome(f"j{i}") for i in range(8)} == {"finished"}


@pytest.mark.parametrize("lost", ["ContactLost", "MachineDown"])
def test_nobody_touches_a_job_of_which_nothing_is_heard(lost: str) -> None:
    world = Capricious()
    scheduler = Scheduler(cluster(2, 1, gpu_type="V100"), make_policy("gandiva[minibatches=5,starvation=50]"), world,
                          Journal(), interference=Pairwise(1.2))  # fmt: skip
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 1, model="lstm")), ev.Arrived(Job("b", 0.0, 1, model="lstm"))])
    scheduler.step(0.0, [ev.Measured(name, 1.0, 1.0, 0.0) for name in "ab"])
    machine = scheduler.books.view.topology.machine_names[0]
    scheduler.step(10.0, [ev.ContactLost("a") if lost == "ContactLost" else ev.MachineDown(machine)])
    before = len(world.done)
    for i in range(20):
        scheduler.step(20.0 + 10 * i, [ev.Arrived(Job(f"n{i}", 20.0, 1 + i % 2, model="lstm"))])
    touched = [action for action in world.done[before:]
               if isinstance(action, (pl.Migrate, pl.Preempt, pl.Resize, pl.Reshare))]  # fmt: skip
    assert all(action.job != "a" for action in touched)
    if lost == "MachineDown":
        starts = [action for action in world.done[before:] if isinstance(action, (pl.Start, pl.Migrate))]
        assert all(m != 0 for action in starts for m, _ in action.placement.slices)


def test_who_has_just_left_its_gpus_has_a_reason_before_the_policy_is_asked_again() -> None:
    """Nothing to save: it is off its GPUs in the very instant in which it was told to go."""
    jobs = [job("long", 4, 900.0), job("starved", 1, 10.0, 5.0)]
    unknown: list[tuple[str, float]] = []

    def check(scheduler: Scheduler, now: float) -> None:
        unknown.extend((active.id, now) for active in scheduler.books.jobs.values()
                       if active.state is State.WAITING and scheduler.reason(active.id) is None)  # fmt: skip

    with watched_steps(check):
        played = play(jobs, cluster(1, 4), "gandiva[slicing=false,starvation=60]", starts=StartRules(30.0))
    assert len(played.of(pl.Preempt)) == 1
    assert not unknown
