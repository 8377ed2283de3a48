"""Small, odd and wrong problems; and the two rules that need no linear program."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import gavel_oracle as oracle
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from dally.core.errors import UserError
from dally.policies.gavel.allocation.allox import allox
from dally.policies.gavel.allocation.cost import cost
from dally.policies.gavel.allocation.cost_slo import cost_slo
from dally.policies.gavel.allocation.finish_time_fairness import finish_time_fairness
from dally.policies.gavel.allocation.grid import effective_throughputs
from dally.policies.gavel.allocation.hierarchical import hierarchical
from dally.policies.gavel.allocation.isolated import isolated
from dally.policies.gavel.allocation.makespan import makespan
from dally.policies.gavel.allocation.max_min_fairness import max_min_fairness
from dally.policies.gavel.allocation.objectives import OBJECTIVES, Objective
from dally.policies.gavel.allocation.problem import JobRow, PairRow, Problem

ALL: dict[str, Objective] = {
    **OBJECTIVES,
    "isolated": lambda asked: isolated(asked),
    "filled": lambda asked: max_min_fairness(asked, fill=True),
}
TYPES = ("v100", "k80")


@pytest.mark.parametrize("name", ALL)
def test_no_jobs_have_an_empty_allocation(name: str) -> None:
    answer = ALL[name](Problem((), TYPES, (4, 4)))
    assert dict(answer.fractions) == {}
    assert answer.objective == 0


@pytest.mark.parametrize("name", ALL)
def test_a_lone_job_runs_all_the_time(name: str) -> None:
    answer = ALL[name](Problem((JobRow("only", 2, (3.0, 1.0), steps_left=9.0),), TYPES, (4, 4)))
    assert sum(answer.of("only")) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ALL)
def test_a_gang_larger_than_every_pool_is_named_and_keeps_a_row(name: str) -> None:
    jobs = (JobRow("huge", 8, (3.0, 1.0)), JobRow("small", 1, (3.0, 1.0)), JobRow("stuck", 1, (0.0, 0.0)))
    answer = ALL[name](Problem(jobs, TYPES, (4, 4), pairs=(PairRow(1, 2, (1.0, 1.0), (1.0, 1.0)),)))
    assert answer.of("huge") == (0.0, 0.0)
    assert answer.of("stuck") == (0.0, 0.0)
    assert sum(answer.of("small")) > 0.5
    assert "job 'huge' asks for 8 GPUs and no type has that many" in answer.notes
    assert any("'stuck' makes no progress" in note for note in answer.notes)


@pytest.mark.parametrize("name", ALL)
def test_a_pool_smaller_than_the_gang_is_never_used(name: str) -> None:
    jobs = tuple(JobRow(f"job{n}", 4, (5.0, 1.0)) for n in range(3))
    asked = Problem(jobs, TYPES, (2, 8))
    answer = ALL[name](asked)
    oracle.feasible(asked, answer)
    assert all(answer.of(job.id)[0] == 0 for job in jobs)


@pytest.mark.parametrize("name", ALL)
def test_throughputs_a_million_times_apart_do_not_confuse_anybody(name: str) -> None:
    rng = Random(1)
    jobs = tuple(
        JobRow(
            f"job{n}",
            1,
            tuple(10 ** rng.uniform(-3, 3) * speed for speed in (1.0, 0.3)),
            steps_left=10 ** rng.uniform(2, 7),
            weight=10 ** rng.uniform(-2, 2),
        )
        for n in range(30)
    )
    asked = Problem(jobs, TYPES, (4, 4))
    answer = ALL[name](asked)
    oracle.feasible(asked, answer)
    if name == "max-min-fairness":
        assert answer.objective == pytest.approx(oracle.max_min(asked), rel=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_jobs_without_steps_left_are_no_trouble(name: str) -> None:
    jobs = (JobRow("done", 1, (1.0, 1.0), steps_left=0.0), JobRow("busy", 1, (1.0, 0.5), steps_left=10.0, slo=100.0))
    asked = Problem(jobs, TYPES, (1, 1))
    oracle.feasible(asked, ALL[name](asked))
    done = replace(asked, jobs=(jobs[0],))
    oracle.feasible(done, ALL[name](done))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"weight": 0.0}, "'x' needs a positive weight, not 0"),
        ({"weight": float("nan")}, "'x' needs a positive weight"),
        ({"throughput": (1.0, -1.0)}, "'x' has a throughput that is negative or not finite"),
        ({"throughput": (1.0, float("nan"))}, "'x' has a throughput that is negative or not finite"),
        ({"throughput": (1.0,)}, "'x' has 1 throughputs for 2 columns"),
        ({"gpus": 0}, "'x' asks for 0 GPUs"),
        ({"steps_left": -1.0}, "'x' has -1 steps left"),
        ({"elapsed": -1.0}, "'x' has spent a time that is negative"),
    ],
)
def test_a_wrong_job_ends_in_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Problem((replace(JobRow("x", 1, (1.0, 1.0)), **change),), TYPES, (1, 1))  # type: ignore[arg-type]


def test_a_wrong_problem_ends_in_one_sentence() -> None:
    job = JobRow("x", 1, (1.0, 1.0))
    large = JobRow("y", 2, (1.0, 1.0))
    for make, sentence in (
        (lambda: Problem((job, job), TYPES, (1, 1)), "'x' appears twice"),
        (lambda: Problem((job,), TYPES, (1, -1)), "cannot be negative"),
        (lambda: Problem((job,), TYPES, (1, 1), column_type=(0, 2)), "outside 0..1"),
        (lambda: Problem((job,), TYPES, (1, 1), column_type=(0,)), "2 columns, but a type for 1"),
        (lambda: Problem((job,), TYPES, (1, 1), prices=(1.0, 0.0)), "positive price"),
        (lambda: Problem((job,), TYPES, (1, 1), share=0.0), "share of the cluster"),
        (lambda: Problem((job,), TYPES, (1, 1), entity_weights={"a": 0.0}), "weight of an entity"),
        (lambda: Problem((job, large), TYPES, (1, 1), pairs=(PairRow(0, 1, (1.0, 1.0), (1.0, 1.0)),)), "differ in size"),
        (lambda: Problem((job,), TYPES, (1, 1), pairs=(PairRow(0, 0, (1.0, 1.0), (1.0, 1.0)),)), "two of 1 jobs"),
        (lambda: hierarchical(Problem((job,), TYPES, (1, 1)), inside="lottery"), "'fairness' or 'fifo'"),  # type: ignore[arg-type]
        (lambda: cost(Problem((job,), TYPES, (1, 1)), form="product"), "'ratio' or 'sum'"),  # type: ignore[arg-type]
        (lambda: allox(Problem((large,), TYPES, (4, 1))), "jobs of one GPU"),
        (lambda: allox(Problem((job,), TYPES, (4, 1)), considered=2.0), "in \\[0, 1\\]"),
    ):
        with pytest.raises(UserError, match=sentence):
            make()


def test_a_deadline_nobody_can_keep_is_dropped_and_named() -> None:
    jobs = (
        JobRow("soon", 1, (1.0, 0.5), steps_left=100.0, slo=10.0),
        JobRow("now", 1, (1.0, 0.5), steps_left=100.0, slo=0.0),
        JobRow("later", 1, (1.0, 0.5), steps_left=100.0, slo=200.0),
    )
    asked = Problem(jobs, TYPES, (1, 1))
    answer = cost_slo(asked)
    assert [note.split("'")[1] for note in answer.notes] == ["soon", "now"]
    assert effective_throughputs(asked, answer)["later"] >= 0.5 - 1e-6


def test_deadlines_that_exclude_each_other_are_dropped_one_at_a_time() -> None:
    jobs = tuple(JobRow(f"job{n}", 1, (1.0,), steps_left=100.0, slo=150.0) for n in range(3))
    asked = Problem(jobs, ("v100",), (1,))
    answer = cost_slo(asked)
    assert len(answer.notes) == 2
    assert all("together with the others" in note for note in answer.notes)
    assert max(effective_throughputs(asked, answer).values()) >= 2 / 3 - 1e-6


def test_the_makespan_of_two_equal_jobs_on_one_gpu_is_their_sum() -> None:
    jobs = tuple(JobRow(name, 1, (2.0,), steps_left=100.0) for name in "ab")
    assert makespan(Problem(jobs, ("v100",), (1,))).objective == pytest.approx(100.0)


def test_a_job_that_waited_is_favoured_by_finish_time_fairness() -> None:
    jobs = (JobRow("old", 1, (1.0,), steps_left=50.0, elapsed=100.0), JobRow("new", 1, (1.0,), steps_left=50.0))
    answer = finish_time_fairness(Problem(jobs, ("v100",), (1,)))
    assert answer.of("old")[0] > 0.7 > answer.of("new")[0]


def test_isolated_is_an_equal_part_of_every_type() -> None:
    jobs = (JobRow("a", 1, (1.0, 0.5)), JobRow("b", 4, (1.0, 0.5)))
    answer = isolated(Problem(jobs, TYPES, (4, 4)))
    assert answer.of("a") == pytest.approx((0.5, 0.5))  # 2 + 2 GPUs, scaled down to all of its time
    assert answer.of("b") == pytest.approx((0.5, 0.5))
    crowded = isolated(Problem(tuple(JobRow(f"job{n}", 2, (1.0, 0.5)) for n in range(16)), TYPES, (4, 4)))
    assert crowded.of("job3") == pytest.approx((0.125, 0.125))


@settings(max_examples=60)
@given(oracle.problems(most=9, pairs=False, small=True))
def test_allox_is_the_cheapest_matching(asked: Problem) -> None:
    """Against scipy's assignment on every single GPU and every turn."""
    answer = allox(asked)
    oracle.feasible(asked, answer)
    gpus = [kind for kind, count in enumerate(asked.workers) for _ in range(count)]
    rates = []
    for job in asked.jobs:
        own = [0.0] * len(asked.workers)
        for rate, kind in zip(job.throughput, asked.column_type, strict=True):
            own[kind] = max(own[kind], rate)
        rates.append([own[kind] for kind in gpus])
    able = [m for m in range(len(rates)) if any(rates[m])]
    seconds = np.array([[asked.jobs[m].steps_left / rate if rate else 1e12 for rate in rates[m]] for m in able])
    costs = np.concatenate([turn * seconds for turn in range(1, len(able) + 1)], axis=1)
    chosen = linear_sum_assignment(costs)
    assert answer.objective == pytest.approx(costs[chosen].sum(), rel=1e-9)
    started = [job for job in asked.jobs if sum(answer.of(job.id))]
    assert all(sorted(answer.of(job.id))[-1] == 1 for job in started)
    lines = {int(column) % len(gpus) for column in chosen[1]}
    assert len(started) <= len(gpus)
    assert bool(started) == bool(lines)


def test_allox_starts_the_short_jobs_and_moves_no_running_one() -> None:
    jobs = (
        JobRow("long", 1, (2.0, 1.0), steps_left=1000.0, elapsed=9.0),
        JobRow("short", 1, (2.0, 1.0), steps_left=10.0, elapsed=1.0),
        JobRow("middle", 1, (2.0, 1.0), steps_left=100.0, elapsed=5.0),
    )
    asked = Problem(jobs, TYPES, (1, 1))
    answer = allox(asked)
    assert answer.of("short") == (1.0, 0.0)
    assert answer.of("middle") == (0.0, 1.0)
    assert answer.of("long") == (0.0, 0.0)  # behind the short one
    held = allox(asked, running={"long": 0})
    assert held.of("long") == (1.0, 0.0)
    assert held.of("short") == (0.0, 1.0)
    oldest = allox(Problem(jobs, TYPES, (1, 0)), considered=0.0)
    assert oldest.of("long") == (1.0, 0.0)  # one free GPU, so only the one that waits longest takes part
