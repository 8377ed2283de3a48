"""Plans that break a rule of the house: each is an error that names the policy, the job and the rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builders import BUSY, SilentWorld, at, cluster, desk, mixed_cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import PlanError
from dally.core.job import Job
from dally.core.journal import Instant, Journal, Odd, Refused
from dally.core.placement import Placement
from dally.core.policy import PolicyBase
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.core.states import State

A, B = ev.Arrived(Job("a", 0.0, 2)), ev.Arrived(Job("b", 0.0, 2))
V = ev.Arrived(Job("v", 0.0, 2, gpu_type="v100"))
HERE, NEXT = at((0, 0b11)), at((0, 0b1100))

# name → (events of each instant, plan of each instant, job named, words of the rule)
BROKEN: dict[str, tuple[Sequence[Sequence[ev.Event]], Sequence[Sequence[pl.Action]], str, str]] = {
    "one GPU for two jobs": ([[A, B]], [[pl.Start("a", HERE), pl.Start("b", at((0, 0b110)))]], "b", "not all free"),
    "a GPU that is taken": ([[A], [B]], [[pl.Start("a", HERE)], [pl.Start("b", HERE)]], "b", "not all free"),
    "the same GPU twice in one gang": (
        [[A]], [[pl.Start("a", Placement(((0, 1), (0, 1)), 2))]], "a", "once each"),
    "half a gang": ([[A]], [[pl.Start("a", at((0, 1)))]], "a", "whole or nothing"),
    "more than a gang": ([[A]], [[pl.Start("a", at((0, 0b111)))]], "a", "whole or nothing"),
    "a placement that lies about its size": (
        [[A]], [[pl.Start("a", Placement(((0, 1),), 2))]], "a", "whole or nothing"),
    "a GPU that the machine does not have": ([[A]], [[pl.Start("a", at((0, 0b110000)))]], "a", "not all free"),
    "a machine that the cluster does not have": (
        [[A]], [[pl.Start("a", at((99, 0b11)))]], "a", "machines of the cluster"),
    "machines out of order": ([[A]], [[pl.Start("a", Placement(((1, 1), (0, 1)), 2))]], "a", "in order"),
    "a running job started": ([[A], []], [[pl.Start("a", HERE)], [pl.Start("a", NEXT)]], "a", "is running"),
    "one job started twice at once": ([[A]], [[pl.Start("a", HERE), pl.Start("a", NEXT)]], "a", "is starting"),
    "a finished job started": (
        [[A], [ev.Finished("a")]], [[pl.Start("a", HERE)], [pl.Start("a", HERE)]], "a", "is finished"),
    "a job preempted and started in one plan": (
        [[A], []], [[pl.Start("a", HERE)], [pl.Preempt("a"), pl.Start("a", NEXT)]], "a", "is running"),
    "a machine that is down": ([[A, ev.MachineDown("rack-v100/m0")]], [[pl.Start("a", HERE)]], "a", "is down"),
    "mixed GPU types": ([[A]], [[pl.Start("a", at((0, 1), (2, 1)))]], "a", "may not mix GPU types"),
    "the wrong GPU type": ([[V]], [[pl.Start("v", at((2, 0b11)))]], "v", "wants GPU type v100"),
    "a job nobody knows": ([[A]], [[pl.Start("ghost", HERE)]], "ghost", "not known"),
    "preemption of a job nobody knows": ([[A]], [[pl.Preempt("ghost")]], "ghost", "not known"),
    "preemption of a waiting job": ([[A]], [[pl.Preempt("a")]], "a", "is waiting"),
    "preemption twice": ([[A], []], [[pl.Start("a", HERE)], [pl.Preempt("a"), pl.Preempt("a")]], "a", "twice"),
    "migration twice": (
        [[A], []], [[pl.Start("a", HERE)], [pl.Migrate("a", NEXT), pl.Migrate("a", at((1, 0b11)))]], "a", "twice"),
    "migration and preemption at once": (
        [[A], []], [[pl.Start("a", HERE)], [pl.Migrate("a", NEXT), pl.Preempt("a")]], "a", "twice"),
    "migration of a waiting job": ([[A]], [[pl.Migrate("a", HERE)]], "a", "is waiting"),
    "migration to a taken GPU": (
        [[A, B], []], [[pl.Start("a", HERE), pl.Start("b", NEXT)], [pl.Migrate("a", NEXT)]], "a", "not all free"),
    "a lease for a waiting job": ([[A]], [[pl.Extend("a", 10.0)]], "a", "is waiting"),
    "a timer that has passed": ([[A]], [[pl.WakeAt(0.0)]], "any", "time would stand still"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_plan_with(case: str) -> None:
    instants, plans, job, rule = BROKEN[case]
    scheduler = desk(mixed_cluster(v100=(4, 4), a100=(8,)), *plans)
    for now, events in enumerate(instants[:-1]):
        scheduler.step(float(now), events)
    with pytest.raises(PlanError) as caught:
        scheduler.step(float(len(instants) - 1), instants[-1])
    assert (caught.value.policy, caught.value.job) == ("scripted", job)
    assert rule in caught.value.rule
    assert all(word in str(caught.value) for word in ("'scripted'", f"'{job}'", rule))


def test_a_waiting_job_without_a_reason_is_a_broken_plan() -> None:
    scheduler = desk(cluster(2, 4), [], reasons=False)
    with pytest.raises(PlanError, match=r"policy 'scripted', job 'a': waits, and the plan gives no reason"):
        scheduler.step(0.0, [A])


def test_gpus_vacated_in_the_same_plan_are_free_for_a_successor() -> None:
    scheduler = desk(cluster(1, 2), [pl.Start("a", HERE)], [pl.Start("b", HERE), pl.Preempt("a")])
    scheduler.step(0.0, [A])
    scheduler.step(1.0, [B])
    assert (scheduler.jobs["a"].state, scheduler.jobs["b"].state) == (State.YIELDING, State.RUNNING)
    scheduler.step(2.0, [ev.Yielded("a")])
    assert scheduler.jobs["a"].state is State.WAITING
    assert scheduler.free.total == 0


def test_what_a_preempted_job_held_and_nobody_was_given_stays_with_it_until_it_has_yielded() -> None:
    c = ev.Arrived(Job("c", 0.0, 1))
    scheduler = desk(cluster(1, 2), [pl.Start("a", HERE)], [pl.Preempt("a"), pl.Start("c", at((0, 0b10)))])
    scheduler.step(0.0, [A])
    scheduler.step(1.0, [c])
    assert scheduler.free.masks == [0]
    scheduler.step(2.0, [ev.Yielded("a")])
    assert scheduler.free.masks == [0b01]


def test_a_plan_that_breaks_a_rule_changes_nothing_at_all() -> None:
    written: list[Instant] = []
    scheduler = desk(cluster(2, 4), [], [pl.Start("a", HERE), pl.WakeAt(9.0), pl.Start("b", HERE)], sinks=[written.append])
    scheduler.step(0.0, [A, B])
    scheduler.absorb(1.0, [ev.TimerDue()])
    before, records = save(scheduler), len(written)
    with pytest.raises(PlanError, match="not all free"):
        scheduler.decide(1.0)
    assert save(scheduler) == before
    assert len(written) == records
    assert scheduler.world.done == [pl.Wait(pl.Demand(2, None), BUSY)]  # type: ignore[attr-defined]


def test_a_plan_that_breaks_a_rule_is_written_down_and_passed_over_where_nobody_may_stop() -> None:
    written: list[Instant] = []
    scheduler = desk(cluster(2, 4), [pl.Start("a", at((0, 1)))], [pl.Start("a", HERE)], sinks=[written.append])
    scheduler.strict = False
    scheduler.step(0.0, [A])
    scheduler.step(1.0, [ev.TimerDue()])
    refused = Refused("scripted", "a", "a gang of 2 was given 1 GPUs: a gang is whole or nothing")
    assert written[0] == Instant(0.0, (A,), (refused,))
    assert scheduler.jobs["a"].state is State.RUNNING


def test_a_policy_that_fails_does_not_stop_a_scheduler_that_must_go_on() -> None:
    class Broken(PolicyBase):
        name = "broken"

        def plan(self, view: object, memory: object, now: float) -> pl.Plan:
            raise ZeroDivisionError("of course")

    written: list[Instant] = []
    scheduler = Scheduler(cluster(1, 2), Broken(), SilentWorld(), Journal(written.append), strict=False)
    scheduler.step(0.0, [A])
    assert written == [Instant(0.0, (A,), (Refused("broken", "any", "its plan failed: ZeroDivisionError: of course"),))]


def test_what_could_not_be_written_was_not_decided_and_is_decided_when_it_can_be() -> None:
    written: list[Instant] = []
    full = True

    def disk(instant: Instant) -> None:
        if full:
            raise OSError(28, "No space left on device")

    scheduler = desk(cluster(2, 4), [pl.Start("a", HERE)], [pl.Start("a", HERE)], sinks=[disk, written.append])
    scheduler.absorb(0.0, [A])
    before = save(scheduler)
    with pytest.raises(OSError, match="No space"):
        scheduler.decide(0.0)
    assert save(scheduler) == before and not written and not scheduler.world.done  # type: ignore[attr-defined]
    full = False
    scheduler.decide(0.0)
    assert written[0] == Instant(0.0, (A,), (pl.Start("a", HERE), pl.Wait(pl.Demand(2, None), BUSY)))
    assert scheduler.jobs["a"].state is State.RUNNING


def test_a_report_that_does_not_fit_the_jobs_state_is_recorded_as_odd_and_harmless() -> None:
    written: list[Instant] = []
    scheduler = desk(cluster(1, 2), [], sinks=[written.append])
    early = ev.Interrupted("a", 0.0, "x")
    scheduler.step(0.0, [A, early])
    assert written[0].happened == (A, Odd(early, "it is waiting"))
    assert scheduler.jobs["a"].state is State.WAITING


@pytest.mark.parametrize("event", [ev.Measured("a", float("nan"), 1.0, 0.0), ev.Measured("a", 1.0, -1.0, 0.0),
                                   ev.Interrupted("a", float("nan"), "x"), ev.Interrupted("a", -1.0, "x")])  # fmt: skip
def test_figures_that_are_none_are_odd(event: ev.Event) -> None:
    scheduler = desk(cluster(1, 2), [pl.Start("a", HERE)])
    scheduler.step(0.0, [A])
    scheduler.step(1.0, [event])
    assert isinstance(scheduler.view.news[-1], Odd)
    assert scheduler.jobs["a"].state is State.RUNNING


def test_reports_that_cross_a_jobs_end_are_ignored() -> None:
    scheduler = desk(cluster(1, 2), [pl.Start("a", HERE)])
    scheduler.step(0.0, [A])
    late: list[ev.Event] = [ev.Finished("a"), ev.Cancelled("a"), ev.Yielded("a"), ev.LeaseEnded("a"),
                            ev.Measured("a", 1.0, 1.0, 0.0)]  # fmt: skip
    scheduler.step(5.0, late)
    assert scheduler.jobs["a"].state is State.FINISHED
    assert scheduler.free.total == 2


def test_the_same_wish_to_be_woken_is_passed_on_once() -> None:
    scheduler = desk(cluster(1, 2), [pl.WakeAt(9.0)], [pl.WakeAt(9.0)], [pl.WakeAt(12.0)], [pl.WakeAt(20.0)])
    for now, events in ((0.0, []), (1.0, []), (9.0, [ev.TimerDue()]), (12.0, [ev.TimerDue()])):
        scheduler.step(now, events)
    assert scheduler.world.done == [pl.WakeAt(9.0), pl.WakeAt(12.0), pl.WakeAt(20.0)]  # type: ignore[attr-defined]


def test_what_is_observed_of_a_job_grows_with_time_between_events() -> None:
    scheduler = desk(cluster(1, 2), [pl.Start("a", HERE)])
    scheduler.step(0.0, [A])
    scheduler.step(10.0, [ev.Measured("a", 0.5, 2.0, 0.0, 4.0)])
    job = scheduler.jobs["a"]
    assert (job.executed_at(20.0), job.attained_at(20.0)) == (20.0, 40.0)
    assert (job.work_at(12.0), job.work_at(14.0), job.work_at(20.0)) == (0.0, 0.0, 3.0)
    scheduler.step(20.0, [ev.Interrupted("a", 1.0, "x")])
    assert (job.work_at(99.0), job.executed_at(99.0), job.starvation(25.0)) == (1.0, 20.0, 5.0)
