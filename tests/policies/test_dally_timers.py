"""The auto-tuner by hand: what enters a history, what leaves it, and what the timers become."""

from __future__ import annotations

import math

import pytest

from dally.core.errors import UserError
from dally.core.plan import Demand
from dally.policies.dally.remembered import Histories
from dally.policies.dally.timers import AutoTuner, Fixed
from dally.policies.options import make_policy

LEASE = 100.0
EIGHT, FOUR = Demand(8, None), Demand(4, None)


class Tuned:
    """A tuner and its memory."""

    def __init__(self, window: int, tiers: int) -> None:
        self.tuner = AutoTuner(LEASE, window, tiers, (6.0, 12.0), (0.8, 1.0), 2.0)
        self.memory = Histories()

    def accepted(self, demand: Demand, tier: int, starvation: float, now: float) -> None:
        self.tuner.accepted(self.memory, demand, tier, starvation, now)

    def changes_at(self, demand: Demand, now: float = 0.0) -> float:
        return self.tuner.changes_at(self.memory, demand, now)


def tuner(window: int = 24, tiers: int = 2) -> Tuned:
    return Tuned(window, tiers)


def leases(timers: Tuned, demand: Demand = EIGHT, now: float = 0.0) -> list[float]:
    return [wait / LEASE for wait in timers.tuner.waits(timers.memory, demand, now)]


def test_without_a_history_the_timers_are_the_floors() -> None:
    assert leases(tuner()) == [6, 12]


@pytest.mark.parametrize(("delays", "machine"), [
    ([7, 7, 7], 7),  # σ = 0
    ([8, 10], 11),  # mean 9, population σ 1
    ([7.2], 8),  # rounded up to whole leases
    ([1, 1, 1], 6),  # floor
    ([1, 30], 20),  # ceiling ⌈0.8 × 24⌉
])  # fmt: skip
def test_a_timer_is_the_mean_and_two_sigma_between_floor_and_ceiling(delays: list[float], machine: int) -> None:
    timers = tuner()
    for delay in delays:
        timers.accepted(EIGHT, 0, delay * LEASE, 0.0)
    assert leases(timers) == [machine, 12]


def test_each_demand_and_each_level_has_a_history_of_its_own() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 0, 15 * LEASE, 0.0)
    timers.accepted(FOUR, 1, 20 * LEASE, 0.0)
    assert leases(timers, EIGHT) == [15, 12]
    assert leases(timers, FOUR) == [6, 20]


def test_the_ceiling_of_the_rack_is_the_window() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 1, 99 * LEASE, 0.0)
    assert leases(timers) == [6, 24]


def test_delays_under_one_lease_are_ignored() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 0, 10 * LEASE, 0.0)
    timers.accepted(EIGHT, 0, 0.99 * LEASE, 0.0)
    assert leases(timers)[0] == 10
    timers.accepted(EIGHT, 0, 1.0 * LEASE, 0.0)
    assert leases(timers)[0] == math.ceil(5.5 + 2 * 4.5)


def test_a_delay_is_forgotten_when_it_leaves_the_window_and_the_tuner_says_when() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 0, 14 * LEASE, 500.0)
    leaves = 500.0 + 24 * LEASE
    assert timers.changes_at(EIGHT, 500.0) == leaves
    assert leases(timers, now=math.nextafter(leaves, 0))[0] == 14
    assert leases(timers, now=leaves)[0] == 6
    assert timers.changes_at(EIGHT, leaves) == math.inf


def test_a_look_ahead_forgets_nothing() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 0, 14 * LEASE, 500.0)
    timers.accepted(EIGHT, 1, 20 * LEASE, 700.0)
    assert leases(timers, now=1e9) == [6, 12]
    assert leases(timers, now=800.0) == [14, 20] and timers.changes_at(EIGHT, 800.0) == 500.0 + 24 * LEASE


def test_what_was_accepted_for_a_plan_that_is_thrown_away_was_not() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 0, 14 * LEASE, 500.0)
    timers.memory.begin()
    timers.accepted(EIGHT, 0, 18 * LEASE, 600.0)
    assert leases(timers, now=600.0)[0] == 20
    timers.memory.drop()
    assert leases(timers, now=600.0)[0] == 14


def test_waits_that_have_left_the_window_are_not_kept_for_ever() -> None:
    timers = tuner()
    for lease in range(100):
        timers.accepted(EIGHT, 0, 7 * LEASE, lease * LEASE)
    assert len(timers.memory.taken[EIGHT][0]) == 24


def test_a_window_below_the_floors_caps_them() -> None:
    assert leases(tuner(window=4)) == [4, 4]


def test_further_levels_have_floors_that_double_and_the_window_as_their_ceiling() -> None:
    timers = tuner(window=40, tiers=4)
    assert leases(timers) == [6, 12, 24, 40]
    timers.accepted(EIGHT, 2, 39 * LEASE, 0.0)
    assert leases(timers) == [6, 12, 39, 40]


def test_what_was_taken_from_anywhere_is_not_recorded() -> None:
    timers = tuner()
    timers.accepted(EIGHT, 2, 50 * LEASE, 0.0)
    assert leases(timers) == [6, 12] and timers.changes_at(EIGHT) == math.inf


@pytest.mark.parametrize(("given", "tiers", "waits"), [((1.0, 2.0), 2, (100, 200)),
                                                      ((1.0, 2.0), 3, (100, 200, 400)),
                                                      ((3.0,), 2, (300, 600)), ((1.0, 2.0), 1, (100,)),
                                                      ((0.0,), 2, (0, 0))])  # fmt: skip
def test_manual_timers_not_given_are_twice_the_one_before(
    given: tuple[float, ...], tiers: int, waits: tuple[float, ...]
) -> None:
    assert Fixed(given, LEASE, tiers).waits(Histories(), EIGHT, 0.0) == waits


@pytest.mark.parametrize("text", ["dally[lease=0]", "dally[window=0]", "dally[timers=none,window=12]",
                                  "dally[manual=1/2]x", "dally[timers=auto,manual=3]",
                                  "dally[timers=manual,manual=inf]", "dally[timers=sometimes]",
                                  "dally[timers=manual,sigmas=1]", "dally[window=12]"])  # fmt: skip
def test_options_that_are_wrong_or_would_do_nothing_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UserError) as caught:
        make_policy(text)
    assert "\n" not in str(caught.value)


def test_the_name_says_what_differs_from_the_paper() -> None:
    assert make_policy("dally[timers=manual,manual=3,lease=30m]").name == "dally[timers=manual,lease=1800,manual=3]"
