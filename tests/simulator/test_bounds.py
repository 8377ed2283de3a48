"""No schedule beats the lower bound: not the best one of tiny instances, nor random ones of larger."""

from __future__ import annotations

import doctest
import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dally.core.errors import UserError
from dally.simulator import bounds_prices
from dally.simulator.bounds import LowerBound, lower_bounds
from dally.simulator.bounds_fluid import fill, poured_delay, poured_end, srpt_completions
from dally.simulator.bounds_sizes import (
    GangSizes,
    fullest_load,
    heaviest_load,
    packing_prices,
    size_functions,
)

Floats = NDArray[np.float64]
TinyJob = tuple[int, int, int]  # release, GPUs, run time


def best_schedule(jobs: tuple[TinyJob, ...], capacity: int) -> tuple[float, float]:
    """Least average JCT and least makespan over all schedules that preempt at whole seconds."""

    @functools.cache
    def least(now: int, left: tuple[int, ...]) -> tuple[int, int]:
        if not any(left):
            return 0, now
        ready = [i for i, rest in enumerate(left) if rest and jobs[i][0] <= now]
        best_total, best_end = 10**9, 10**9
        for count in range(0 if len(ready) < sum(map(bool, left)) else 1, len(ready) + 1):
            for running in itertools.combinations(ready, count):
                if sum(jobs[i][1] for i in running) > capacity:
                    continue
                after = tuple(rest - (i in running) for i, rest in enumerate(left))
                total, end = least(now + 1, after)
                total += sum(now + 1 for i in running if after[i] == 0)
                best_total, best_end = min(best_total, total), min(best_end, end)
        return best_total, best_end

    total, end = least(0, tuple(job[2] for job in jobs))
    first = min(job[0] for job in jobs)
    return (total - sum(job[0] for job in jobs)) / len(jobs), end - first


def random_schedule(
    release: Floats, gpus: Floats, run_time: Floats, capacity: float, rng: np.random.Generator, noise: float
) -> Floats:
    """Completions under a preemptive schedule whose order is by remaining GPU time, times some noise."""
    left = run_time.copy()
    done = np.full(len(left), np.nan)
    now = float(release.min())
    while np.isnan(done).any():
        ready = np.flatnonzero(np.isnan(done) & (release <= now))
        later = release[release > now]
        key = left[ready] * gpus[ready] ** rng.choice([0.0, 1.0])
        key *= np.exp(noise * rng.normal(size=len(ready)))
        running, free = [], capacity
        for job in ready[np.argsort(key)]:
            if gpus[job] <= free:
                running.append(int(job))
                free -= gpus[job]
        steps = [left[running].min()] if running else []
        step = min([*steps, *([later.min() - now] if len(later) else [])])
        now += step
        left[running] -= step
        for job in running:
            if left[job] <= 1e-12 * run_time[job]:
                done[job] = now
    return done


def assert_not_beaten(bound: LowerBound, avg_jct: float, makespan: float) -> None:
    for name, value in bound.avg_jct_by.items():
        assert value <= avg_jct, name
    for name, value in bound.makespan_by.items():
        assert value <= makespan, name
    assert bound.avg_jct == max(bound.avg_jct_by.values())
    assert bound.makespan == max(bound.makespan_by.values())


@st.composite
def tiny_instances(draw: st.DrawFn) -> tuple[tuple[TinyJob, ...], int]:
    capacity = draw(st.integers(1, 5))
    job = st.tuples(st.integers(0, 4), st.integers(1, capacity), st.integers(1, 4))
    return tuple(draw(st.lists(job, min_size=1, max_size=4))), capacity


@given(tiny_instances())
@settings(max_examples=120, deadline=None)
def test_the_best_schedule_of_a_tiny_instance_does_not_beat_any_bound(
    instance: tuple[tuple[TinyJob, ...], int],
) -> None:
    jobs, capacity = instance
    release, gpus, run_time = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    assert_not_beaten(lower_bounds(release, gpus, run_time, capacity), *best_schedule(jobs, capacity))


@given(st.lists(st.tuples(st.integers(0, 6), st.just(1), st.integers(1, 5)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_on_a_single_gpu_the_bound_is_the_best_schedule(jobs: list[TinyJob]) -> None:
    release, gpus, run_time = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    bound = lower_bounds(release, gpus, run_time, 1)
    avg_jct, makespan = best_schedule(tuple(jobs), 1)
    assert bound.avg_jct == pytest.approx(avg_jct)
    assert bound.makespan == pytest.approx(makespan)


@given(tiny_instances(), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_whatever_the_price_the_priced_bound_holds(
    instance: tuple[tuple[TinyJob, ...], int], seed: int
) -> None:
    jobs, capacity = instance
    release, gpus, run_time = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    avg_jct, makespan = best_schedule(jobs, capacity)
    rng = np.random.default_rng(seed)
    nodes = np.linspace(0.0, makespan + release.max(), 12)
    price = rng.exponential(0.3, 12) * rng.integers(0, 2, 12)
    price[-1] = 0.0
    choices = bounds_prices._Choices.of(release, run_time, gpus, nodes)
    value = choices.respond(nodes, price)[0].sum() - capacity * nodes[1] * price[1:-1].sum()
    value -= capacity * nodes[1] * (price[0] + price[-1]) / 2
    assert value + run_time.sum() <= avg_jct * len(jobs) + 1e-9


@given(st.integers(0, 10**6), st.sampled_from([4, 7, 16, 64]), st.floats(0.3, 4.0), st.floats(0.0, 2.0))
@settings(max_examples=15, deadline=None)
def test_no_random_schedule_beats_any_bound(seed: int, capacity: int, load: float, noise: float) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 40))
    gpus = rng.choice([1, 2, 3, 4, 5, 8, 24, 33, 40], count)
    gpus = np.minimum(gpus, capacity).astype(float)
    run_time = rng.lognormal(5.0, rng.choice([0.1, 1.0, 2.5]), count)
    release = rng.uniform(0, gpus @ run_time / capacity / load, count) + rng.choice([0.0, 1e6])
    done = random_schedule(release, gpus, run_time, capacity, rng, noise)
    bound = lower_bounds(release, gpus, run_time, capacity)
    assert_not_beaten(bound, float(np.mean(done - release)), float(done.max() - release.min()))
    some = rng.random(count) < 0.6
    if some.any():  # jobs left out: the rest is bounded in the schedule of all
        fewer = lower_bounds(release[some], gpus[some], run_time[some], capacity)
        makespan = float(done[some].max() - release[some].min())
        assert_not_beaten(fewer, float(np.mean((done - release)[some])), makespan)


@given(st.integers(0, 10**6))
@settings(max_examples=12, deadline=None)
def test_no_schedule_on_pools_beats_any_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rooms = {"V100": 8, "A100": 6}
    count = int(rng.integers(2, 25))
    went = rng.choice(["V100", "A100"], count)
    pool = [str(name) if rng.random() < 0.7 else None for name in went]
    gpus = rng.integers(1, 7, count).astype(float)
    run_time = rng.lognormal(3.0, 1.0, count)
    release = rng.uniform(0, 100, count)
    done = np.zeros(count)
    for name, room in rooms.items():
        here = went == name
        if here.any():
            done[here] = random_schedule(release[here], gpus[here], run_time[here], room, rng, 0.1)
    bound = lower_bounds(release, gpus, run_time, rooms, pool)
    assert_not_beaten(bound, float(np.mean(done - release)), float(done.max() - release.min()))


def test_jobs_that_never_meet_take_their_own_time() -> None:
    bound = lower_bounds([0, 100, 200], [4, 4, 4], [50, 60, 70], 4)
    assert bound.avg_jct == pytest.approx(60)
    assert bound.makespan == pytest.approx(270)


def test_equal_jobs_of_one_gpu_released_at_once_are_bounded_exactly() -> None:
    bound = lower_bounds(np.zeros(6), np.ones(6), np.full(6, 10.0), 2)
    assert bound.avg_jct == pytest.approx(20)  # three rounds of two: 10, 20, 30
    assert bound.makespan == pytest.approx(30)


def test_gangs_larger_than_half_the_cluster_run_one_at_a_time() -> None:
    bound = lower_bounds([0, 1, 2], [6, 7, 6], [9, 5, 1], 10)
    # SRPT on one machine: the second preempts the first at 1, the third the second at 2.
    assert bound.avg_jct == pytest.approx(((15 - 0) + (7 - 1) + (3 - 2)) / 3)
    assert bound.makespan == pytest.approx(15)


def test_gangs_of_eight_leave_four_of_sixty_gpus_idle() -> None:
    assert fullest_load(np.array([8.0]), np.array([100]), 60) == 56
    jobs = 70
    bound = lower_bounds(np.zeros(jobs), np.full(jobs, 8), np.ones(jobs), 60)
    assert bound.makespan == pytest.approx(10)
    assert bound.avg_jct == pytest.approx(5.5)


def test_gangs_that_cannot_be_mixed_to_fill_the_cluster_are_priced() -> None:
    # 10 GPUs; gangs of 4 fill 8, a 6 fits only with a 4. Twenty 6s and thirty 4s need twenty-five seconds.
    gpus = np.array([6.0] * 20 + [4.0] * 30)
    bound = lower_bounds(np.zeros(50), gpus, np.ones(50), 10)
    assert bound.makespan == pytest.approx(25)
    assert bound.makespan_by["pooled work"] == pytest.approx(24)


def test_a_pool_is_not_helped_by_the_gpus_of_another() -> None:
    jobs = np.zeros(4), np.ones(4), np.full(4, 10.0)
    alone = lower_bounds(*jobs, {"old": 1, "new": 7}, ["old"] * 4)
    free = lower_bounds(*jobs, {"old": 1, "new": 7}, [None] * 4)
    assert alone.makespan == pytest.approx(40)
    assert alone.avg_jct == pytest.approx(25)
    assert free.makespan == pytest.approx(10)


def test_jobs_of_a_single_pool_use_that_pool_alone() -> None:
    bound = lower_bounds([0, 0], [1, 1], [5, 5], {"old": 1, "new": 9}, ["old", None])
    assert bound.avg_jct == pytest.approx(5)
    with pytest.raises(UserError, match="2 GPUs can never run on 1 GPUs"):
        lower_bounds([0], [2], [5], {"old": 1, "new": 9}, ["old"])


def test_fractions_of_gpus_are_pooled() -> None:
    bound = lower_bounds(np.zeros(4), np.full(4, 0.5), np.full(4, 10.0), 1)
    assert bound.makespan == pytest.approx(20)
    assert bound.avg_jct == pytest.approx(15)


def test_no_jobs_are_bounded_by_nothing() -> None:
    bound = lower_bounds([], [], [], 8)
    assert (bound.avg_jct, bound.makespan) == (0, 0)


def test_jobs_that_take_no_time_are_done_at_once() -> None:
    bound = lower_bounds([0, 3], [2, 2], [0, 0], 2)
    assert (bound.avg_jct, bound.makespan) == (0, pytest.approx(3))


def test_the_time_of_the_first_release_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    jobs = rng.uniform(0, 50, 30), rng.integers(1, 9, 30), rng.uniform(5, 60, 30)
    early, late = lower_bounds(*jobs, 16), lower_bounds(jobs[0] + 1e6, *jobs[1:], 16)
    assert late.avg_jct == pytest.approx(early.avg_jct, rel=1e-4)
    assert late.makespan == pytest.approx(early.makespan)


def test_a_crowd_is_bounded_far_above_its_own_time_and_within_a_tenth_of_a_greedy_schedule() -> None:
    rng = np.random.default_rng(5)
    gpus = rng.choice([1.0, 2.0, 4.0, 8.0], 200, p=[0.6, 0.2, 0.1, 0.1])
    run_time = rng.lognormal(6, 1.5, 200)
    release = np.zeros(200)
    done = random_schedule(release, gpus, run_time, 16, rng, 0.0)
    bound = lower_bounds(release, gpus, run_time, 16)
    assert bound.avg_jct > 2 * bound.avg_jct_by["own time"]
    assert bound.avg_jct > 0.9 * done.mean()
    assert bound.avg_jct_by["priced time"] > bound.avg_jct_by["mean busy time"]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(12, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_rooms_are_the_heaviest_sets_of_gangs_that_fit(
    gangs: list[int], capacity: int, data: st.DataObject
) -> None:
    sizes = GangSizes.of(np.array(gangs, dtype=float), capacity)
    weights = np.array([float(data.draw(st.integers(0, 9))) for _ in sizes.demand])
    sets = [
        list(chosen)
        for count in range(len(gangs) + 1)
        for chosen in itertools.combinations(range(len(gangs)), count)
        if sum(gangs[i] for i in chosen) <= capacity
    ]
    assert fullest_load(sizes.demand, sizes.count, capacity) == max(sum(gangs[i] for i in s) for s in sets)
    heaviest = max(float(weights[sizes.index[s]].sum()) for s in sets)
    assert heaviest_load(sizes.demand, sizes.count, weights, capacity) == heaviest
    for function in size_functions(sizes, np.ones(len(gangs)), capacity):
        fullest = max(float(function.size[sizes.index[s]].sum()) for s in sets)
        assert fullest == pytest.approx(function.room)


def test_packing_prices_reach_the_shortest_packing() -> None:
    # 6 with 4 fills the cluster, two 4s leave two GPUs idle: the best prices are 1/2 for both.
    prices = packing_prices(np.array([4.0, 6.0]), np.array([30.0, 20.0]), 10)
    assert prices == pytest.approx([0.5, 0.5])


def test_shortest_remaining_time_completes_in_the_known_order() -> None:
    done = srpt_completions(np.array([0.0, 2.0, 3.0, 50.0]), np.array([10.0, 4.0, 1.0, 2.0]), 1.0)
    assert done.tolist() == [4.0, 7.0, 15.0, 52.0]


def test_a_tank_fills_and_runs_dry() -> None:
    # Rate 3 into a drain of 1 for 2 s: 4 units, gone after 4 s more. Then the same at 10 s.
    tank = fill(np.array([0.0, 2.0, 10.0, 12.0]), np.array([3.0, -3.0, 3.0, -3.0]), 1.0)
    assert tank.area == pytest.approx(2 * (2 * 4 / 2 + 4 * 4 / 2))
    assert tank.begin.tolist() == [0.0, 10.0]
    assert tank.end.tolist() == pytest.approx([6.0, 16.0])
    assert tank.busy_until(np.array([1.0, 7.0, 11.0])).tolist() == pytest.approx([6.0, 0.0, 16.0])
    # ∫ (6 − t) from 1 to 5; over both periods from 4 to 13; nothing in between.
    waits = tank.wait_poured(np.array([1.0, 4.0, 7.0]), np.array([4.0, 9.0, 2.0]))
    assert waits.tolist() == pytest.approx([12.0, 2.0 + 3 * (6 + 3) / 2, 0.0])


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_a_few_thresholds_never_give_more_delay_than_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    release, run_time = rng.uniform(0, 100, 40), rng.lognormal(2, 1.5, 40)
    size = rng.integers(1, 5, 40).astype(float)
    few, every = (poured_delay(release, run_time, size, lambda _: 6.0, count) for count in (5, 1000))
    assert few <= every * (1 + 1e-9) + 1e-4 * run_time.sum()


def test_the_end_counts_what_cannot_have_run_before() -> None:
    # Released at 0 and 8; at 8 the first has 2 of its 10 seconds to go at best, on both GPUs.
    assert poured_end(np.array([0.0, 8.0]), np.array([10.0, 5.0]), np.array([2.0, 2.0]), 2.0) == 15.0


def test_the_examples_of_the_docs_page_are_true() -> None:
    page = Path(__file__).parents[2] / "docs" / "lower-bound.md"
    results = doctest.testfile(str(page), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize(
    ("release", "gpus", "run_time", "pool", "message"),
    [
        ([0, 0], [1], [1, 1], None, "gpus has 1 values for 2 jobs"),
        ([0], [0], [1], None, "gpus of job 0 is 0"),
        ([0, 0], [1, 1], [1, -2], None, "run_time of job 1 is -2"),
        ([0, float("nan")], [1, 1], [1, 1], None, "release of job 1 is not finite"),
        ([0], [9], [1], None, "9 GPUs can never run on 8 GPUs"),
        ([0], [1], [1], ["H100"], "pool 'H100' is not one of"),
        ([0], [1], [1], ["", ""], "pool has 2 values for 1 jobs"),
    ],
)
def test_bad_input_ends_in_one_sentence(
    release: list[float],
    gpus: list[float],
    run_time: list[float],
    pool: list[str | None] | None,
    message: str,
) -> None:
    with pytest.raises(UserError, match=message):
        lower_bounds(release, gpus, run_time, 8, pool)
