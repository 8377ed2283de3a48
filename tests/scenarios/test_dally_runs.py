"""Whole runs under Dally: timers that ring in the simulated world, leases that are extended, nobody forgotten."""

from __future__ import annotations

import pytest

from builders import cluster, job, play, seeded_trace
from dally.core import events as ev
from dally.core.plan import Extend, Migrate, Preempt, Start

HOUR = 3600.0
SLOW = "level-penalty[rack=2,cluster=4]"


def test_the_simulated_clock_stops_exactly_at_the_expiry_of_a_timer() -> None:
    specs = [job("x", 3, 40 * HOUR), job("y", 3, 40 * HOUR, 1), job("g", 2, HOUR, 100.0)]
    played = play(specs, cluster(1, 2, 4), "dally[timers=manual,manual=0.25/0.5]", network=SLOW)
    assert played.times(Start, "g")[0] == 100.0 + 0.25 * HOUR
    assert 100.0 + 0.25 * HOUR in played.times(ev.TimerDue)


def test_without_a_nearer_offer_an_auto_tuned_timer_lasts_as_long_as_its_floor() -> None:
    specs = [job("x", 3, 40 * HOUR), job("y", 3, 40 * HOUR, 1), job("g", 2, HOUR, 100.0)]
    played = play(specs, cluster(1, 2, 4), "dally[timers=auto,floors=0.5/0.75]", network=SLOW)
    assert played.times(Start, "g")[0] == 100.0 + 0.5 * HOUR


def test_a_lone_job_is_extended_lease_after_lease_and_pays_nothing() -> None:
    played = play([job("a", 4, 5.5 * HOUR)], cluster(1, 2, 4), "dally[timers=auto]", cost="model")
    assert played.times(Extend, "a") == [HOUR * n for n in range(1, 6)]
    assert played.end("a") == 5.5 * HOUR and not played.of(Preempt)


def test_two_jobs_on_one_machine_take_turns_lease_by_lease() -> None:
    played = play([job("a", 4, 2.5 * HOUR), job("b", 4, 2 * HOUR, 1)], cluster(1, 1, 4), "dally[timers=auto]")
    assert played.times(Preempt, "a")[0] == HOUR and played.times(Start, "b")[0] == HOUR
    assert played.times(Preempt, "b")[0] == 2 * HOUR


def test_who_had_to_take_far_gpus_moves_to_a_machine_when_its_lease_ends() -> None:
    specs = [job("x", 3, 90), job("y", 3, 9 * HOUR), job("g", 2, HOUR, 1)]
    played = play(specs, cluster(1, 2, 4), "dally[timers=none]", network=SLOW)
    assert played.times(Migrate, "g") == [1 + HOUR]
    assert played.end("g") == pytest.approx(1 + HOUR + HOUR / 2)  # half speed before, full speed after


def test_freed_gpus_come_back_a_second_later_per_gpu_after_the_authors_rule() -> None:
    played = play([job("a", 4, 2 * HOUR), job("b", 4, HOUR, 1)], cluster(1, 1, 4), "dally[timers=auto]", cost="original")
    assert played.times(ev.Yielded, "a")[0] == HOUR + 4
    measured = [e for t, e in played.of(ev.Measured, "b")]
    assert measured[0].delay == 4  # type: ignore[union-attr]


@pytest.mark.parametrize("timers", ["auto", "manual", "none", "infinite"])
def test_everybody_finishes_with_every_kind_of_timer(timers: str) -> None:
    trace = seeded_trace(7, jobs=120, sizes=(1, 2, 4, 4, 8, 12), span=4000, longest=4000)
    played = play(trace, cluster(2, 2, 4), f"dally[timers={timers},lease=5m]", network=SLOW, cost="10s")
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    assert played.times(Extend)
