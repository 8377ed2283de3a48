"""A world that says anything at any time: unknown jobs, twice, too late, in any order. Nothing breaks, nothing leaks."""

from __future__ import annotations

import json

import pytest
from disturbed import disturbed
from every_policy import NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import SilentWorld, cluster
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Instant, Journal
from dally.core.journal_text import encode_all, read
from dally.core.queues import Queue
from dally.core.reasons import Token
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, load_memory, save
from dally.core.states import ENDED, State
from dally.core.topology import MachineSpec
from dally.policies.options import make_policy
from dally.store.recovery import execute

TREE = cluster(2, 2, 2)
IDS = ["a", "b", "c", "d", "ghost"]
MACHINES = [*TREE.machine_names, "rack0/m9", "nowhere"]
ids, machines = st.sampled_from(IDS), st.sampled_from(MACHINES)
sizes = st.sampled_from([1, 1, 2, 4, 8, 99])

EVENTS = st.one_of(
    st.builds(lambda name, gpus, work, fixed, queue: ev.Arrived(
        Job(name, 0.0, gpus, work=work, reference=1.0, preemptible=not fixed, tenant=queue)), ids, sizes,
              st.none() | st.floats(1, 1000), st.booleans(), st.sampled_from([None, "a", "b", "elsewhere"])),
    st.just(ev.QueuesSet((Queue("a", 2.0, max_gpus=4), Queue("b", max_gpus_per_user=2)))),
    st.just(ev.QueuesSet((Queue("a", max_jobs_per_user=1), Queue("default", 0.5)))), st.just(ev.QueuesSet()),
    st.builds(ev.Held, ids, st.sampled_from(["", "by hand"])), st.builds(ev.Released, ids),
    st.builds(ev.Finished, ids), st.builds(ev.Failed, ids), st.builds(ev.Cancelled, ids), st.builds(ev.Yielded, ids),
    st.builds(ev.StartFailed, ids, st.just("x"), st.booleans()),
    st.builds(ev.Interrupted, ids, st.floats(0, 100), st.just("x"), st.just(0.0), st.booleans()),
    st.builds(ev.ContactLost, ids), st.builds(ev.ContactRestored, ids), st.builds(ev.MachineDown, machines),
    st.builds(ev.MachineUp, machines), st.builds(ev.LeaseEnded, ids), st.builds(ev.Started, ids),
    st.builds(ev.Measured, ids, st.floats(0.1, 2), st.floats(0.1, 2), st.floats(0, 0.5), st.sampled_from([0.0, 3.0]),
              st.just(1.0)),
    st.just(ev.TimerDue()),
    st.builds(lambda name: ev.MachinesChanged((MachineSpec(("rack0", name), 2),), ()), st.sampled_from(["m8", "m9"])),
    st.builds(lambda name: ev.MachinesChanged((), (name,)), machines),
)  # fmt: skip
STORIES = st.lists(st.tuples(st.floats(0, 100), st.lists(EVENTS, min_size=1, max_size=4)), max_size=25)


class Mute(SilentWorld):
    """Takes orders and says nothing."""

    def carry_out(self, now, decided):  # type: ignore[no-untyped-def]
        return ()


def sound(scheduler: Scheduler) -> None:
    """Every GPU is free, down, or with one group of jobs; every job is where its state says."""
    books, view = scheduler.books, scheduler.view
    groups = {}
    for job in books.jobs.values():
        if job.state in ENDED or job.state in (State.WAITING, State.HELD):
            assert job.placement is None and job.leaving is None and job.id not in books.holding
        assert (job.id in view.waiting) == (job.state is State.WAITING)
        assert job.id not in view.preemptible or (job.state is State.RUNNING and job.job.preemptible)
        if job.state is State.HELD and job.hold is None:
            assert books.door.gate is not None and job in set(books.door.gate.kept())
            reason = scheduler.reason(job.id)
            assert reason is not None and reason.token is Token.WAITING_FOR_QUOTA
        if books.door.gate is not None:
            assert (job.id in books.door.gate) == (job.state not in ENDED and job.state is not State.HELD)
        for held in (job.placement, job.leaving):
            if held is not None:
                groups.setdefault(held.slices, held)
    for machine in view.topology.machines:
        mask = view.free.masks[machine.index]
        assert machine.index not in books.fleet.down or mask == 0
        for held in groups.values():
            mine = dict(held.slices).get(machine.index, 0)
            assert mine & mask == 0, "a GPU is held and free"
            mask |= mine
        assert mask == machine.full_mask or machine.index in books.fleet.down, "a GPU is nowhere"
    for demand in view.waiting.buckets:
        assert demand in books.reasons


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(story=STORIES, seed=st.integers(0, 99))
def test_whatever_is_reported_the_books_stay_sound_and_can_be_executed_again(name: str, story: list[tuple[float, list[ev.Event]]], seed: int) -> None:
    seen: list[Instant] = []
    scheduler = Scheduler(TREE, make_policy(name), Mute(), Journal(seen.append))
    now = 0.0
    with disturbed(seed, asks=1, rebirths=0.2):
        for step, events in story:
            now += step
            scheduler.step(now, sorted(events, key=lambda event: ev.ORDER[type(event)]))
            sound(scheduler)
    again = Scheduler(TREE, make_policy(name), Mute(), Journal())
    back = list(read(encode_all(TREE, seen).splitlines(keepends=True)))
    assert back == seen
    assert execute(again, back, make_policy) == len(seen)
    state = json.loads(json.dumps(save(scheduler), allow_nan=False))
    assert save(again) == save(scheduler)
    third = Scheduler(scheduler.view.topology, make_policy(name), Mute(), Journal())
    load(third, state)
    memory = load_memory(third.policy, state, third)
    assert memory is not None
    third.resume_with(memory)
    assert save(third) == save(scheduler)
