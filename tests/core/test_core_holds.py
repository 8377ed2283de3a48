"""Held jobs, jobs that must not be preempted, and failures that count: what the books and the rules make of them."""

from __future__ import annotations

import json

import pytest

from builders import at, cluster, desk
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import PlanError
from dally.core.job import Job
from dally.core.journal import Instant, Odd
from dally.core.journal_text import encode_all, read
from dally.core.reasons import Token
from dally.core.snapshot import load, save
from dally.core.states import State

TREE = cluster(2, 4)
HERE, THERE = at((0, 0b11)), at((1, 0b11))


def test_a_held_job_leaves_the_queue_and_comes_back_when_it_is_released() -> None:
    scheduler = desk(TREE)
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    scheduler.step(1.0, [ev.Held("a", "waits for data")])
    job = scheduler.jobs["a"]
    assert job.state is State.HELD and "a" not in scheduler.view.waiting
    reason = scheduler.reason("a")
    assert reason is not None and reason.token is Token.HELD and reason.sentence == "held by its owner: waits for data"
    scheduler.step(2.0, [ev.Released("a")])
    assert job.state is State.WAITING and "a" in scheduler.view.waiting and job.last_change == 2.0


def test_a_running_job_that_is_held_runs_on_and_is_held_once_it_has_lost_its_gpus() -> None:
    scheduler = desk(TREE, [pl.Start("a", HERE)])
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    scheduler.step(1.0, [ev.Held("a")])
    assert scheduler.jobs["a"].state is State.RUNNING
    scheduler.step(2.0, [ev.Interrupted("a", 5.0, "requeued")])
    assert scheduler.jobs["a"].state is State.HELD and scheduler.free.total == 8
    scheduler.step(3.0, [ev.Released("a")])
    assert scheduler.jobs["a"].state is State.WAITING and scheduler.jobs["a"].work_done == 5.0


def test_a_job_requeued_and_held_in_one_instant_is_held() -> None:
    scheduler = desk(TREE, [pl.Start("a", HERE)])
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    scheduler.step(1.0, [ev.Interrupted("a", 0.0, "requeued"), ev.Held("a")])
    assert scheduler.jobs["a"].state is State.HELD


def test_who_releases_and_holds_in_one_instant_means_the_last_of_it() -> None:
    assert ev.ORDER[ev.Held] == ev.ORDER[ev.Released] > ev.ORDER[ev.Arrived]
    scheduler = desk(TREE)
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2)), ev.Held("a"), ev.Released("a"), ev.Held("a", "again")])
    assert scheduler.jobs["a"].state is State.HELD and scheduler.jobs["a"].hold == "again"


@pytest.mark.parametrize(("events", "why"), [
    ([ev.Held("ghost")], "nobody knows the job"),
    ([ev.Released("ghost")], "nobody knows the job"),
    ([ev.Released("a")], "it is waiting and not held"),
    ([ev.Held("a"), ev.Held("a")], "it is held already"),
    ([ev.Cancelled("a"), ev.Held("a")], "it is cancelled already"),
    ([ev.Held("a"), ev.Finished("a")], "it has never run"),
])  # fmt: skip
def test_a_hold_that_does_not_fit_is_odd(events: list[ev.Event], why: str) -> None:
    seen: list[Instant] = []
    scheduler = desk(TREE, sinks=[seen.append])
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    scheduler.step(1.0, events)
    assert seen[-1].happened[-1] == Odd(events[-1], why)


def test_a_held_job_can_be_cancelled_and_one_given_up_for_lost_may_have_finished() -> None:
    scheduler = desk(TREE, [], [], [pl.Start("b", HERE)])
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    scheduler.step(1.0, [ev.Held("a")])
    scheduler.step(2.0, [ev.Arrived(Job("b", 2.0, 2))])
    scheduler.step(3.0, [ev.Interrupted("b", 0.0, "lost"), ev.Held("b")])
    scheduler.step(4.0, [ev.Finished("b"), ev.Cancelled("a")])
    assert (scheduler.jobs["a"].state, scheduler.jobs["b"].state) == (State.CANCELLED, State.FINISHED)


def test_holds_and_failures_survive_journal_and_snapshot() -> None:
    seen: list[Instant] = []
    scheduler = desk(TREE, [pl.Start("a", HERE)], sinks=[seen.append])
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2, preemptible=False)), ev.Arrived(Job("b", 0.0, 2))])
    scheduler.step(1.0, [ev.Interrupted("a", 0.0, "exit code 1", failure=True), ev.Held("b", "why")])
    scheduler.step(2.0, [ev.Held("a")])
    assert list(read(encode_all(TREE, seen).splitlines(keepends=True))) == seen
    state = json.loads(json.dumps(save(scheduler)))
    again = desk(TREE)
    load(again, state)
    assert save(again) == save(scheduler)
    assert again.jobs["a"].failures == 1 and not again.jobs["a"].job.preemptible
    assert (again.jobs["a"].hold, again.jobs["b"].hold) == ("", "why")


def test_only_failures_of_the_job_itself_count() -> None:
    scheduler = desk(TREE, *[[pl.Start("a", HERE)]] * 4)
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    scheduler.step(1.0, [ev.Interrupted("a", 0.0, "machine gone")])
    scheduler.step(2.0, [ev.Interrupted("a", 0.0, "exit code 1", failure=True)])
    assert scheduler.jobs["a"].failures == 1


@pytest.mark.parametrize("action", [pl.Preempt("a"), pl.Migrate("a", THERE), pl.Resize("a", THERE)])
def test_a_plan_that_takes_gpus_from_a_job_that_must_not_be_preempted_is_refused(action: pl.Action) -> None:
    scheduler = desk(TREE, [pl.Start("a", HERE)], [action])
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2, preemptible=False, min_gpus=1))])
    assert scheduler.jobs["a"].state is State.RUNNING and not scheduler.jobs["a"].movable
    with pytest.raises(PlanError, match="must not be preempted: it keeps its GPUs until it ends"):
        scheduler.step(1.0, [ev.TimerDue()])


def test_a_policy_hears_of_a_hold_when_the_job_has_left_the_queue() -> None:
    heard: list[object] = []
    scheduler = desk(TREE, [pl.Start("a", HERE)])
    listener = scheduler.policy
    listener.hear = lambda view, memory, now, entries: heard.extend(entries) or ()  # type: ignore[method-assign,func-returns-value]
    scheduler._listens = True
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2))])
    heard.clear()
    scheduler.step(1.0, [ev.Held("a")])
    assert heard == []
    gone = ev.Interrupted("a", 0.0, "requeued")
    scheduler.step(2.0, [gone])
    assert heard == [gone, ev.Held("a")]
    heard.clear()
    scheduler.step(3.0, [ev.Released("a")])
    assert heard == [ev.Released("a")]


