"""Durations that are drawn add up: a queue of jobs whose declarations are off is neither too long nor too short."""

from __future__ import annotations

import random
from statistics import median

import pytest

from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.live.durations import Drawn, History, Past

USERS, QUEUE, FUTURES = 6, 40, 8


def total_drawn_to_true(seed: int, sigma: float, bias: float) -> float:
    """What a queue takes in the median of some futures, to what it takes."""
    chance = random.Random(seed)
    usual = [chance.uniform(4.0, 9.0) for _ in range(USERS)]

    def one() -> tuple[str, float, float]:
        user = chance.randrange(USERS)
        ran = chance.lognormvariate(usual[user], 0.9)
        return f"u{user}", ran, bias * ran * chance.lognormvariate(0.0, sigma)

    past = [Past(user, None, 1, declared, ran) for user, ran, declared in (one() for _ in range(120))]
    drawn, true, jobs = Drawn(History(past), None, seed), 0.0, []
    for number in range(QUEUE):
        user, ran, declared = one()
        true += ran
        jobs.append(ActiveJob(Job(str(number), 0.0, 1, user=user, declared_duration=declared), number, 0.0))
    found = [sum(drawn.work(job, 0.0, future) or 0.0 for job in jobs) for future in range(FUTURES)]
    return median(found) / true


@pytest.mark.parametrize(("sigma", "bias"), [(0.4, 1.0), (0.8, 1.0), (1.2, 1.0), (0.8, 4.0)])
def test_a_queue_of_jobs_that_declare_badly_is_as_long_as_it_is(sigma: float, bias: float) -> None:
    assert 0.85 < median(total_drawn_to_true(seed, sigma, bias) for seed in range(1000, 1015)) < 1.15
