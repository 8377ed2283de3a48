"""Worlds with queues, under every policy: everybody ends, limits hold, journals execute again, nobody waits unexplained."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from every_policy import NAMES, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Pairwise, trace
from dally.core import events as ev
from dally.core.journal import Instant, Journal
from dally.core.queues import Queue
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, load_memory, save
from dally.core.states import ENDED, State
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import make_cost
from dally.simulator.slices import SharingRules
from dally.simulator.workload import prepare
from dally.simulator.world import SimulatedWorld, WorldRules
from dally.store.recovery import execute, trust

EXAMPLES = settings().max_examples // 5
MOST = 20_000  # instants
NAMES_OF = ("a", "b", "default", "elsewhere", None)


@st.composite
def queues(draw: st.DrawFn) -> tuple[Queue, ...]:
    limit = st.sampled_from([None, None, 1, 2, 4, 8])
    names = draw(st.sampled_from([("a",), ("a", "b"), ("b", "default")]))
    return tuple(Queue(name, draw(st.sampled_from([0.5, 1.0, 3.0])), draw(limit), draw(limit), draw(limit)) for name in names)


def begin(case: Case, rows: tuple[Queue, ...], journal: Journal) -> Scheduler:
    network = make_network(case.network, case.topology)
    faults = case.faults()
    kinds = [machine.gpu_type for machine in case.topology.machines]
    rules = WorldRules(make_cost("0"), **({} if faults is None else {"faults": faults}), starts=case.starts,
                       sharing=SharingRules(Pairwise(1.2), kinds), queues=rows)  # fmt: skip
    world = SimulatedWorld(prepare(trace(case.jobs), case.topology, network), case.topology, network, rules)
    return Scheduler(case.topology, make_policy(case.policy), world, journal, interference=Pairwise(1.2, most=2))


def with_queues(case: Case, chance: random.Random) -> Case:
    return replace(case, jobs=[replace(spec, job=replace(
        spec.job, tenant=chance.choice(NAMES_OF), user=chance.choice((None, "u", "v")))) for spec in case.jobs])


def check(scheduler: Scheduler) -> None:
    gate = scheduler.books.door.gate
    assert gate is not None
    given: dict[str, int] = {}
    users: dict[tuple[str, str | None], tuple[int, int]] = {}
    rows = {name: standing.queue for name, standing in gate._standings.items()}
    for job in scheduler.jobs.values():
        if job.state in ENDED:
            continue
        name = job.job.tenant if job.job.tenant in rows else "default"
        if job.state is State.HELD:
            reason = scheduler.reason(job.id)
            assert reason is not None and reason.sentence
            continue
        given[name] = given.get(name, 0) + job.gpus
        gpus, jobs = users.get((name, job.job.user), (0, 0))
        users[name, job.job.user] = gpus + job.gpus, jobs + 1
    for name, gpus in given.items():
        assert gpus <= (rows[name].max_gpus or gpus)
        assert gate._standings[name].given == gpus
    for (name, _), (gpus, jobs) in users.items():
        assert gpus <= (rows[name].max_gpus_per_user or gpus) and jobs <= (rows[name].max_jobs_per_user or jobs)


def possible(case: Case, rows: tuple[Queue, ...]) -> set[str]:
    by_name = {row.name: row for row in rows}
    found = set()
    for spec in case.jobs:
        queue = by_name.get(spec.job.tenant or "default") or by_name.get("default") or Queue("default")
        most = min(limit for limit in (99, queue.max_gpus, queue.max_gpus_per_user) if limit is not None)
        if spec.job.gpus <= min(most, case.topology.capacity(spec.job.gpu_type, spec.job.within)):
            found.add(spec.job.id)
    return found


@pytest.mark.parametrize("policy", NAMES)
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_everybody_whom_its_queue_can_let_in_ends_and_limits_hold(policy: str, data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 999)))
    case, rows = with_queues(data.draw(cases(policy)), chance), data.draw(queues())
    seen: list[Instant] = []
    scheduler = begin(case, rows, Journal(seen.append))
    cut, state, after = chance.randint(1, 30), None, 0

    def between(now: float) -> bool:
        nonlocal state, after
        check(scheduler)
        if state is None and len(seen) >= cut:
            state, after = json.loads(json.dumps(save(scheduler), allow_nan=False)), len(seen)
        return len(seen) < MOST

    scheduler.run(between)
    assert len(seen) < MOST, "it goes on for ever"
    able = possible(case, rows)
    for job in scheduler.jobs.values():
        assert job.state is (State.FINISHED if job.id in able else State.REJECTED), job.id
    end = json.loads(json.dumps(save(scheduler), allow_nan=False))
    again = begin(case, rows, Journal())
    assert execute(again, seen, make_policy) == len(seen)
    assert json.loads(json.dumps(save(again), allow_nan=False)) == end
    if state is not None:
        third = begin(case, rows, Journal())
        load(third, state)
        memory = load_memory(third.policy, state, third)
        assert memory is not None
        third.resume_with(memory)
        assert execute(third, seen[after:], make_policy) == len(seen) - after


@pytest.mark.parametrize("policy", NAMES)
@given(data=st.data())
@settings(max_examples=EXAMPLES // 2)
def test_a_record_is_trusted_under_another_policy_and_queues_are_set_on_the_way(policy: str, data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 999)))
    case = with_queues(replace(data.draw(cases(policy)), policy=chance.choice(["fifo", "srtf", "tiresias"])), chance)
    first, second = data.draw(queues()), data.draw(queues())
    seen: list[Instant] = []
    scheduler = begin(case, first, Journal(seen.append))
    steps = chance.randint(1, 15)

    def between(now: float) -> bool:
        nonlocal steps
        steps -= 1
        if steps % 5 == 0:
            scheduler.step(now, [ev.QueuesSet(chance.choice((first, second, ())))])
        return steps > 0

    scheduler.run(between)
    other = begin(replace(case, policy=policy), first, Journal())
    assert trust(other, seen, make_policy) == len(seen)
    assert {job.id: job.state for job in other.jobs.values()} == {job.id: job.state for job in scheduler.jobs.values()}
    other.world = scheduler.world
    other.step(scheduler.time, [ev.QueuesSet()])
    if seen[-1].decided is not None and any(type(entry).__name__ == "Start" for entry in seen[-1].decided):
        return
    other.run(lambda now: other.journal.instants < MOST)
    assert other.journal.instants < MOST
