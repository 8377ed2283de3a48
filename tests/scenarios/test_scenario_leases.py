"""Leases end at step boundaries, timers ring when they were asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Flat, Scripted, at, cluster, job, play
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.placement import Placement
from dally.network.model import Step, Uncontended

HERE = at((0, 1))


class StepsOf(Uncontended):
    """Every step takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._step = Step(seconds, seconds, 0.0, seconds)

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        return self._step


@pytest.mark.parametrize(
    ("step", "lease", "ends"), [(1.0, 10.0, 10), (3.0, 10.0, 12), (10.0, 10.0, 10), (7.0, 0.5, 7)]
)
def test_a_lease_ends_at_the_first_step_boundary_at_or_after_its_time(
    step: float, lease: float, ends: float
) -> None:
    played = play([job("a", 1, 100)], cluster(1, 1), Scripted([pl.Start("a", HERE, lease)]), network=StepsOf(step))
    assert played.times(ev.LeaseEnded) == [ends]


def test_steps_are_counted_from_the_end_of_loading() -> None:
    plans = [[pl.Start("a", HERE)], [pl.Preempt("a")], [pl.Start("a", HERE, 4.0)]]
    played = play([job("a", 1, 100), job("x", 2, 1, 6)], cluster(1, 1), Scripted(*plans), cost=Flat(2, 3),
                  network=StepsOf(5.0))  # fmt: skip
    # x is too large and turned away; its arrival at 6 is the preemption, saved at 8, loaded at 11,
    # and the lease ends at 12: the first step after that is through at 16
    assert played.times(ev.LeaseEnded) == [16]


@given(st.floats(0, 1e5), st.floats(1e-3, 1e4), st.floats(1e-3, 1e3))
def test_a_lease_always_ends_for_the_scheduler_too_whatever_the_rounding(
    at_time: float, lease: float, step: float
) -> None:
    ended = []

    class Watching(Scripted):
        preempts = True

        def plan(self, view, memory, now):  # type: ignore[no-untyped-def]
            if any(isinstance(e, ev.LeaseEnded) for e in view.news):
                ended.append(len(view.preemptible))
            return super().plan(view, memory, now)

    play([job("a", 1, lease + 3 * step, at_time)], cluster(1, 1), Watching([pl.Start("a", HERE, lease)]),
         network=StepsOf(step))  # fmt: skip
    assert ended == [1]


def test_an_extended_lease_ends_later_and_only_then() -> None:
    plans = [[pl.Start("a", HERE, 10.0)], [pl.Extend("a", 20.0)]]
    played = play([job("a", 1, 100), job("x", 2, 1, 4)], cluster(1, 1), Scripted(*plans))
    assert 24 in played.times(ev.LeaseEnded)
    scheduler_heard = [t for t in played.times(ev.LeaseEnded) if t >= 24]
    assert scheduler_heard == [24]


def test_a_lease_protects_from_preemption_until_it_ends() -> None:
    jobs = [job("a", 1, 100), job("b", 1, 5, 1)]
    played = play(jobs, cluster(1, 1), "las[quantum=30s]")
    assert played.times(pl.Preempt, "a")[0] == 30
    assert played.times(pl.Start, "b")[0] == 30


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 600)), min_size=2, max_size=12), st.sampled_from((1.5, 2.0, 4.0)))
@settings(max_examples=25, deadline=None)
def test_las_takes_gpus_only_from_who_had_more_and_no_more_often_than_its_bound(rows: list[tuple[int, int]], ratio: float) -> None:
    """Jobs of one GPU on one GPU: every arrival begins a row of preemptions in which GPU-time grows by the ratio."""
    jobs = [job(f"j{i}", 1, duration, submit) for i, (submit, duration) in enumerate(rows)]
    played = play(jobs, cluster(1, 1), f"las[quantum=10s,ratio={ratio}]")
    served, since = dict.fromkeys((each.job.id for each in jobs), 0.0), 0.0
    for instant in played.instants:
        stopped = [each.job for each in instant.decided or () if isinstance(each, pl.Preempt)]
        begun = [each.job for each in instant.decided or () if isinstance(each, pl.Start)]
        for name in (*stopped, *(each.job for each in instant.happened if isinstance(each, ev.Finished))):
            served[name] += instant.time - since
        assert all(served[old] >= ratio * served[new] - 1e-9 for old, new in zip(stopped, begun, strict=False))
        since = instant.time if begun else since
    longest = max(max(served.values()), 10.0)
    assert sum(row.preemptions for row in played.run.ledger.rows) <= len(jobs) * (1 + math.log(longest / 10, ratio))


def test_a_timer_rings_at_its_time_and_once() -> None:
    played = play([job("a", 1, 50)], cluster(1, 1), Scripted([pl.Start("a", HERE), pl.WakeAt(20.0)]))
    assert played.times(ev.TimerDue) == [20]


@pytest.mark.parametrize("quantum", ["0.1s", "0.3s", "0.7s", "1.1s", "2.3s"])
def test_rounding_of_a_quantum_never_makes_time_stand_still(quantum: str) -> None:
    jobs = [job(f"j{i}", 1, 10, 0.1 * i) for i in range(4)]
    played = play(jobs, cluster(1, 2), f"las[quantum={quantum}]", instants=4_000)
    assert all(row.outcome == "finished" for row in played.run.ledger.rows)


def test_a_policy_that_only_sets_timers_and_starts_nobody_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dally.simulator.world._STUCK", 50)

    class Dreamer(Scripted):
        def plan(self, view, memory, now):  # type: ignore[no-untyped-def]
            return [*super().plan(view, memory, now), pl.WakeAt(now + 1)]

    played = play([job("a", 1, 5)], cluster(1, 1), Dreamer())
    assert played.outcome("a") == "unfinished"
