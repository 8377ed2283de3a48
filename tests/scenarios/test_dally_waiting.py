"""Waiting where nobody is preempted: what is given is given for good, so the load decides too."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from builders import Played, at, cluster, job, play
from dally.core.active import ActiveJob
from dally.core.estimates import Declared
from dally.core.job import Job
from dally.core.plan import Start
from dally.core.topology import Topology
from dally.policies.dally.arrivals import RECENT, Arrivals
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.order import Kept
from dally.policies.dally.remembered import ArrivalsMemory
from dally.policies.dally.waiting import Waiting

SLOW = "level-penalty[rack=2,cluster=4]"  # two machines of a rack: twice as long
TWO: Topology = cluster(1, 2, 4)
LASTING = "dally[preempt=never]"


def start(played: Played, job_id: str) -> tuple[float, int]:
    time, action = played.of(Start, job_id)[0]
    return time, len(action.placement.slices)  # type: ignore[union-attr]


def test_the_load_is_that_of_the_last_hundred_arrivals() -> None:
    memory = ArrivalsMemory()
    seen = Arrivals(memory)
    for i in range(9):
        seen.arrive(10.0 * i, 80.0)
    assert seen.offered_per_second(100.0) == 0.0  # too few to say
    seen.arrive(90.0, 80.0)
    assert seen.offered_per_second(100.0) == 8.0
    for i in range(RECENT):
        seen.arrive(1000.0 + i, 5.0)
    assert seen.offered_per_second(1100.0) == 5.0
    assert len(memory.came) == RECENT


def test_jobs_come_until_five_times_as_long_as_between_two_of_them_nobody_has_come() -> None:
    memory = Arrivals(ArrivalsMemory())
    assert not memory.go_on(0.0)
    for number in range(3 * RECENT):
        memory.arrive(10.0 * number, 1.0)
    last = 10.0 * (3 * RECENT - 1)
    assert memory.go_on(last + 40.0) and not memory.go_on(last + 60.0)
    batch = Arrivals(ArrivalsMemory())
    for _ in range(20):
        batch.arrive(5.0, 1.0)
    assert not batch.go_on(5.0)  # it is there


def test_who_is_through_before_the_kept_gpus_are_needed_may_use_them_and_so_may_who_fits_beside() -> None:
    kept = Kept(100.0, 3)
    assert kept.leaves(8, 100.0) and not kept.leaves(4, 101.0)
    assert kept.leaves(2, 500.0)
    kept.take(2, 500.0)
    assert not kept.leaves(2, 500.0) and kept.leaves(1, 500.0)
    kept.take(8, 90.0)
    assert kept.spare == 1


def rule(load: float, *, lasting: bool = True, waiting: int = 1, opens: float = math.inf) -> Waiting:
    """On 8 GPUs, at 1000 s: twenty jobs have come that bring this load; far GPUs are four times as slow."""
    arrivals = Arrivals(ArrivalsMemory())
    for i in range(20):
        arrivals.arrive(50.0 * i, load * 8 * 1000 / 20)
    forecast = SimpleNamespace(
        now=1000.0, tiers=SimpleNamespace(gpus=8, scattered=lambda placement: False), arrivals=arrivals,
        view=SimpleNamespace(waiting=[None] * waiting),
        run_time=lambda job, placement: 400.0, run_time_at=lambda job, tier: 100.0,
        opening=lambda demand, tier, ahead, within: opens)  # fmt: skip
    return Waiting("value", cast(Forecast, forecast), [], lasting=lasting)


GANG = ActiveJob(Job("g", 1000.0, 2), 0, 1000.0)
FAR = at((0, 1), (1, 1))


@pytest.mark.pure
@pytest.mark.parametrize(("load", "declines"), [(0.1, False), (0.24, False), (0.26, True), (1.5, True)])
def test_no_gang_takes_what_is_so_slow_that_all_of_them_together_would_be_too_much(load: float, declines: bool) -> None:
    said = rule(load).rather(GANG, FAR, 0, 1)
    assert (said is not None) is declines
    assert rule(load, lasting=False).rather(GANG, FAR, 0, 1) is None  # it can be moved later
    if said is not None:
        assert said.slower == 4.0
        # if nobody else comes, the load at that time is just low enough
        assert load * 1000.0 / said.until == pytest.approx(0.25)


@pytest.mark.pure
def test_where_placements_last_how_many_wait_does_not_count_but_what_stands_idle_does() -> None:
    # it saves 300 s; an eighth of what is declined stands idle, so near GPUs may be 2400 s away
    for waiting in (1, 11):
        assert rule(0.1, waiting=waiting, opens=3390.0).rather(GANG, FAR, 0, 1) is not None
        assert rule(0.1, waiting=waiting, opens=3410.0).rather(GANG, FAR, 0, 1) is None
    # where it can be moved later, those who wait count: 300 s · (1 + 2 · 10 / 8)
    assert rule(0.1, lasting=False, waiting=11, opens=2040.0).rather(GANG, FAR, 0, 1) is not None
    assert rule(0.1, lasting=False, waiting=11, opens=2060.0).rather(GANG, FAR, 0, 1) is None


@pytest.mark.pure
def test_what_is_a_little_slower_is_never_declined_for_the_load() -> None:
    crowded = rule(3.0)
    crowded.forecast.run_time = lambda job, placement: 290.0  # type: ignore[method-assign]
    assert crowded.rather(GANG, FAR, 0, 1) is None
    crowded.forecast.run_time = lambda job, placement: 310.0  # type: ignore[method-assign]
    assert crowded.rather(GANG, FAR, 0, 1) is not None


@pytest.mark.parametrize(("waits", "expected"), [("never", (1.0, 2)), ("always", (900.0, 1)), ("200s", (201.0, 2))])
def test_how_long_a_gang_waits_can_be_said(waits: str, expected: tuple[float, int]) -> None:
    specs = [job("x", 3, 900), job("y", 3, 2000), job("g", 2, 100, 1.0)]
    assert start(play(specs, TWO, f"dally[waits={waits},preempt=never]", network=SLOW), "g") == expected


def test_short_jobs_pass_a_wide_one_that_has_starved_as_long_as_that_does_not_put_it_off() -> None:
    # two long jobs end at 9000 and 20,000 s; the wide one needs both machines and starves for far more than ten leases
    specs = [job("a", 4, 9000), job("b", 4, 20_000), job("wide", 8, 10, 1),
             job("short", 2, 1000, 10_000), job("long", 2, 15_000, 10_000)]  # fmt: skip
    played = play(specs, TWO, LASTING)
    assert start(played, "short")[0] == 10_000  # through at 11,000
    assert start(played, "wide")[0] == 20_000
    assert start(played, "long")[0] > 20_000 - 1  # it would have put the wide one off to 25,000


def test_a_long_pole_does_not_put_off_for_good_who_has_starved() -> None:
    # the wide job has starved when the pole comes, which needs longer than all else together
    specs = [job("a", 4, 9000), job("b", 4, 20_000), job("wide", 8, 10, 1), job("pole", 1, 90_000, 10_000)]
    played = play(specs, TWO, LASTING)
    assert start(played, "wide")[0] == 20_000
    assert start(played, "pole")[0] >= 20_000


def test_for_a_starved_gang_that_must_be_inside_a_machine_a_machine_is_kept_not_a_number() -> None:
    # one GPU of each machine is free: as many as the gang needs, but not where it must be
    gang = job("gang", 2, 10, 1)
    gang = replace(gang, job=replace(gang.job, within="machine"))
    specs = [job("a", 3, 9000), job("b", 3, 30_000), gang, job("sooner", 1, 500, 7000), job("short", 1, 500, 8000),
             job("long", 1, 50_000, 8000)]  # fmt: skip
    played = play(specs, TWO, LASTING)
    assert start(played, "short")[0] == 8000
    assert start(played, "gang")[0] == 9000
    assert start(played, "long")[0] >= 9000


def test_where_nothing_is_declared_and_nobody_preempted_a_wide_newcomer_does_not_pass_who_waits_longer() -> None:
    specs = [job("busy", 8, 100), job("narrow", 1, 50, 10), job("wide", 8, 50, 20)]
    played = play(specs, TWO, LASTING, estimates=Declared())
    assert start(played, "narrow")[0] == 100
    assert start(played, "wide")[0] == 150


def test_of_jobs_of_one_demand_some_may_declare_what_they_need_and_others_not() -> None:
    class Told(Declared):
        def work(self, asked: Job) -> float | None:
            return None if asked.id == "silent" else 500.0

    specs = [job("busy", 8, 100), job("silent", 4, 50, 10), job("told", 4, 50, 20), job("last", 4, 50, 30)]
    for policy in ("dally", LASTING):
        played = play(specs, TWO, policy, estimates=Told())
        assert start(played, "silent")[0] <= start(played, "told")[0]


def test_where_nothing_is_declared_a_newcomer_need_not_queue_behind_a_gang_as_wide_that_has_had_its_part() -> None:
    # `one` takes the wide gang's GPUs at 1000, and at 12,000 has had too little yet for that gang to take them back
    specs = [job("wide", 8, 50_000), job("one", 1, 200_000, 1000), job("new", 8, 600, 12_000)]
    played = play(specs, TWO, "dally", estimates=Declared())
    assert start(played, "new")[0] == 12_000
