"""What is believed of a job's length: its declaration as far as declarations were right, else the jobs before it."""

from __future__ import annotations

import math
import random

import pytest

from dally.core.plan import Demand
from dally.policies.dally.beliefs import Beliefs
from dally.policies.dally.remembered import BeliefsMemory

ONE = Demand(1, None)


def taught(sigma: float, count: int = 400) -> Beliefs:
    beliefs, chance = Beliefs(BeliefsMemory()), random.Random(1)
    for _ in range(count):
        beliefs.learn(ONE, 1000.0, 1000.0 * math.exp(chance.gauss(0.0, sigma)))
    return beliefs


def test_as_long_as_all_were_right_what_is_left_is_what_was_declared_less_what_is_done() -> None:
    for beliefs in (Beliefs(BeliefsMemory()), taught(0.0)):
        left = beliefs.left(ONE, 1000.0, 300.0)
        assert (left.size, left.mean) == (700.0, 700.0)


def test_a_job_beyond_its_declaration_is_not_believed_to_be_through() -> None:
    left = Beliefs(BeliefsMemory()).left(ONE, 1000.0, 1500.0)
    assert left.size > 0 and left.mean > 100


def test_the_spread_of_declarations_is_learned() -> None:
    assert taught(0.7).spread == pytest.approx(0.7, rel=0.1)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.2])
@pytest.mark.parametrize("done", [0.0, 500.0, 1500.0])
def test_the_mean_left_is_that_of_the_jobs_that_got_so_far(sigma: float, done: float) -> None:
    beliefs, chance = taught(sigma), random.Random(2)
    totals = [1000.0 * math.exp(chance.gauss(0.0, beliefs.spread)) for _ in range(40_000)]
    later = [total - done for total in totals if total > done]
    assert beliefs.left(ONE, 1000.0, done).mean == pytest.approx(sum(later) / len(later), rel=0.12)


@pytest.mark.parametrize("done", [0.0, 400.0, 2000.0])
def test_the_size_is_the_gittins_index_of_the_distribution(done: float) -> None:
    beliefs, chance = taught(0.7), random.Random(3)
    totals = sorted(1000.0 * math.exp(chance.gauss(0.0, beliefs.spread)) for _ in range(20_000))
    left = [total - done for total in totals if total > done]
    best, spent = math.inf, 0.0
    for ended, time in enumerate(left, 1):  # stop all of them at the moment the next one ends
        spent += time
        if ended > 200:  # fewer say little about the ratio
            best = min(best, (spent + time * (len(left) - ended)) / ended)
    assert beliefs.left(ONE, 1000.0, done).size == pytest.approx(best, rel=0.15)


def test_the_better_declarations_were_the_more_they_count_against_what_has_been_done() -> None:
    done = 900.0
    sizes = [taught(sigma).left(ONE, 1000.0, done).size for sigma in (0.0, 0.3, 0.7)]
    assert sizes == sorted(sizes)


def test_without_declarations_least_attained_service_orders_and_past_jobs_say_how_long_it_takes() -> None:
    beliefs = Beliefs(BeliefsMemory())
    assert beliefs.left(ONE, None, 50.0) == beliefs.left(Demand(8, None), None, 50.0)
    for _ in range(10):
        beliefs.learn(ONE, None, 300.0)
    left = beliefs.left(ONE, None, 0.0)
    assert left.size == 0.0 and left.mean == pytest.approx(300.0, rel=0.1)
    assert beliefs.left(ONE, None, 1000.0).size == 1000.0


@pytest.mark.parametrize("sigma", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("declared", [None, 0.0, 700.0])
def test_the_size_alone_is_the_size_of_all_that_is_left(sigma: float, declared: float | None) -> None:
    for beliefs in (Beliefs(BeliefsMemory()), taught(sigma)):
        for done in (0.0, 300.0, 700.0, 5000.0):
            assert beliefs.size(declared, done) == beliefs.left(ONE, declared, done).size
