"""Jobs that are held and released at any time, and jobs that must not be preempted: everybody ends, under every policy."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from every_policy import NAMES, Case, cases, runnable
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Pairwise, cluster, job, play, trace
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Instant, Journal
from dally.core.reasons import Token
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, load_memory, save
from dally.core.states import ENDED, State
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import make_cost
from dally.simulator.slices import SharingRules
from dally.simulator.workload import prepare
from dally.simulator.world import SimulatedWorld, WorldRules
from dally.store.recovery import execute

each_policy = pytest.mark.parametrize("policy", NAMES)
EXAMPLES = settings().max_examples // 5
MOST = 20_000  # instants


def begin(case: Case, journal: Journal) -> tuple[SimulatedWorld, Scheduler]:
    network = make_network(case.network, case.topology)
    workload = prepare(trace(case.jobs), case.topology, network)
    kinds = [machine.gpu_type for machine in case.topology.machines]
    faults = case.faults()
    rules = WorldRules(make_cost("0"), **({} if faults is None else {"faults": faults}), starts=case.starts,
                       sharing=SharingRules(Pairwise(1.2), kinds))  # fmt: skip
    world = SimulatedWorld(workload, case.topology, network, rules)
    return world, Scheduler(case.topology, make_policy(case.policy), world, journal, interference=Pairwise(1.2, most=2))


def meddle(scheduler: Scheduler, chance: random.Random, now: float) -> None:
    """Somebody holds or releases somebody."""
    there = [job.id for job in scheduler.jobs.values() if job.state not in ENDED]
    if there:
        kind = chance.choice((ev.Held, ev.Held, ev.Released))
        scheduler.step(now, [kind(chance.choice(there)) for _ in range(chance.randint(1, 3))])


def run(scheduler: Scheduler, chance: random.Random, often: float) -> None:
    """Until everybody has ended; who is still held when nothing happens any more is released."""
    instants = 0

    def between(now: float) -> bool:
        nonlocal instants
        instants += 1
        if chance.random() < often:
            meddle(scheduler, chance, now)
        for active in scheduler.jobs.values():
            assert (active.id in scheduler.view.waiting) == (active.state is State.WAITING)
            if active.state is State.HELD:
                reason = scheduler.reason(active.id)
                assert reason is not None and reason.token is Token.HELD and active.placement is None
        return instants < MOST

    while True:
        scheduler.run(between)
        assert instants < MOST, "it goes on for ever"
        held = [ev.Released(job.id) for job in scheduler.jobs.values() if job.hold is not None and job.state not in ENDED]
        if not held:
            return
        often = 0.0
        scheduler.step(scheduler.time, held)


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_jobs_held_and_released_at_any_time_end_and_the_journal_executes_again(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    seed = data.draw(st.integers(0, 999))
    seen: list[Instant] = []
    _, scheduler = begin(case, Journal(seen.append))
    run(scheduler, random.Random(seed), 0.4)
    for active in scheduler.jobs.values():
        assert active.state is (State.FINISHED if active.id in runnable(case) else State.REJECTED), active.id
    _, again = begin(case, Journal())
    assert execute(again, seen, make_policy) == len(seen)
    state = json.loads(json.dumps(save(scheduler), allow_nan=False))
    assert json.loads(json.dumps(save(again), allow_nan=False)) == state


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES // 2)
def test_a_policy_put_in_charge_while_jobs_are_held_finishes_them(policy: str, data: st.DataObject) -> None:
    case = replace(data.draw(cases(policy)), policy="fifo")
    chance = random.Random(data.draw(st.integers(0, 999)))
    _, scheduler = begin(case, Journal())
    left = chance.randint(1, 12)

    def some(now: float) -> bool:
        nonlocal left
        left -= 1
        meddle(scheduler, chance, now)
        return left > 0

    scheduler.run(some)
    scheduler.put_in_charge(make_policy(policy), scheduler.time)
    scheduler.decide(scheduler.time)
    run(scheduler, chance, 0.3)
    for active in scheduler.jobs.values():
        assert active.state is (State.FINISHED if active.id in runnable(case) else State.REJECTED), active.id


@each_policy
@given(data=st.data(), share=st.sampled_from([0.5, 0.5, 1.0]))
@settings(max_examples=EXAMPLES)
def test_jobs_that_must_not_be_preempted_keep_their_gpus_and_everybody_ends(policy: str, data: st.DataObject,
                                                                            share: float) -> None:  # fmt: skip
    case = data.draw(cases(policy))
    chance = random.Random(data.draw(st.integers(0, 999)))
    fixed = {spec.job.id for spec in case.jobs if chance.random() < share}
    jobs = [replace(spec, job=replace(spec.job, preemptible=spec.job.id not in fixed)) for spec in case.jobs]
    played = replace(case, jobs=jobs).play()
    for row in played.run.ledger.rows:
        assert row.outcome == ("finished" if row.job_id in runnable(case) else "rejected"), row.job_id
    taken = {entry.job for _, entry in played.entries if isinstance(entry, (pl.Preempt, pl.Migrate, pl.Resize))}
    assert not taken & fixed


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("policy", ["gandiva", "gandiva[starvation=50]", "gandiva[packing=false]", "gavel[space_sharing=true]",
                                    "gavel[round=20]", "dally", "dally[timers=auto,lease=20]", "tiresias[promote=2]"])  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_under_overload_too(policy: str, seed: int, elastic: bool) -> None:
    chance = random.Random(seed)
    specs = [job(f"j{i}", chance.choice((1, 1, 2, 2, 4)), chance.uniform(5, 300), chance.uniform(0, 200),
                 model=chance.choice((None, "resnet50", "vgg16")),
                 limits=(1, 4) if elastic and chance.random() < 0.5 else None) for i in range(30)]  # fmt: skip
    fixed = {spec.job.id for spec in specs if chance.random() < (0.5 if seed % 3 else 1.0)}
    specs = [replace(spec, job=replace(spec.job, preemptible=spec.job.id not in fixed)) for spec in specs]
    played = play(specs, cluster(2, 2, 2), policy, network="level-penalty", interference=Pairwise(1.3, most=2))
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    taken = {entry.job for _, entry in played.entries if isinstance(entry, (pl.Preempt, pl.Migrate, pl.Resize))}
    assert not taken & fixed


def test_a_snapshot_taken_while_jobs_are_held_goes_on_in_the_same_way() -> None:
    for name in NAMES:
        seen: list[Instant] = []
        case = Case(name, [job(f"j{i}", 1 + i % 3, 20 + i, i) for i in range(9)], cluster(2, 4), "ideal", (0, 0), None, 1.0)
        _, scheduler = begin(case, Journal(seen.append))
        chance, steps = random.Random(1), 0

        def between(now: float, scheduler: Scheduler = scheduler, chance: random.Random = chance) -> bool:
            nonlocal steps
            steps += 1
            meddle(scheduler, chance, now)
            return steps < 12

        scheduler.run(between)
        there = [active for active in scheduler.jobs.values() if active.state not in ENDED]
        scheduler.step(scheduler.time, [ev.Held(active.id, "for the snapshot") for active in there[::2]])
        assert any(active.hold for active in there)
        state = json.loads(json.dumps(save(scheduler), allow_nan=False))
        done = len(seen)
        run(scheduler, chance, 0.2)
        _, again = begin(case, Journal())
        load(again, state)
        memory = load_memory(again.policy, state, again)
        assert memory is not None
        again.resume_with(memory)
        assert execute(again, seen[done:], make_policy) == len(seen) - done
