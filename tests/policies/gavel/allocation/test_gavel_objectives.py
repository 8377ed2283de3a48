"""Every objective against the same problem stated in cvxpy."""

from __future__ import annotations

from dataclasses import replace

import gavel_oracle as oracle
import pytest
from hypothesis import given, settings

from dally.policies.gavel.allocation.cost import cost
from dally.policies.gavel.allocation.cost_slo import cost_slo
from dally.policies.gavel.allocation.fifo import fifo
from dally.policies.gavel.allocation.finish_time_fairness import finish_time_fairness
from dally.policies.gavel.allocation.grid import effective_throughputs
from dally.policies.gavel.allocation.hierarchical import hierarchical
from dally.policies.gavel.allocation.makespan import makespan
from dally.policies.gavel.allocation.max_min_fairness import max_min_fairness
from dally.policies.gavel.allocation.problem import JobRow, PairRow, Problem
from dally.policies.gavel.allocation.sjf import sjf
from dally.policies.gavel.allocation.throughput import throughput


def same(one: float, other: float) -> bool:
    return one == pytest.approx(other, rel=1e-4, abs=1e-9)


@settings(max_examples=25)
@given(oracle.problems())
def test_max_min_fairness_finds_the_optimum(problem: Problem) -> None:
    answer = max_min_fairness(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.max_min(problem))
    got = oracle.normalised(problem, effective_throughputs(problem, answer))
    weight = {job.id: job.weight for job in problem.jobs}
    assert same(min(got[name] / weight[name] for name in got), answer.objective)


@settings(max_examples=25)
@given(oracle.problems())
def test_fifo_finds_the_optimum(problem: Problem) -> None:
    answer = fifo(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.fifo(problem))


@settings(max_examples=10)
@given(oracle.problems(most=4))
def test_shortest_job_first_finds_the_optimum(problem: Problem) -> None:
    answer = sjf(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.sjf(problem))
    rates = effective_throughputs(problem, answer)
    times = [job.steps_left / rates[job.id] for job in problem.jobs if rates[job.id] > 0]
    assert same(min(times), answer.objective)


@settings(max_examples=25)
@given(oracle.problems())
def test_makespan_finds_the_optimum(problem: Problem) -> None:
    answer = makespan(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.makespan(problem))


@settings(max_examples=25)
@given(oracle.problems())
def test_finish_time_fairness_finds_the_optimum(problem: Problem) -> None:
    answer = finish_time_fairness(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.finish_time_fairness(problem))


@settings(max_examples=20)
@given(oracle.problems())
def test_throughput_finds_the_optimum(problem: Problem) -> None:
    answer = throughput(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.throughput(problem))
    assert same(sum(effective_throughputs(problem, answer).values()), answer.objective)


@settings(max_examples=20)
@given(oracle.problems())
def test_cost_finds_the_best_ratio_and_the_released_sum(problem: Problem) -> None:
    answer = cost(problem)
    oracle.feasible(problem, answer)
    assert same(answer.objective, oracle.cost_ratio(problem))
    filled = cost(problem, form="sum")
    oracle.feasible(problem, filled)
    assert same(filled.objective, oracle.per_price(problem))


@settings(max_examples=25)
@given(oracle.problems())
def test_cost_with_deadlines_meets_those_it_does_not_name(problem: Problem) -> None:
    answer = cost_slo(problem)
    oracle.feasible(problem, answer)
    dropped = [m for m, job in enumerate(problem.jobs) if any(f"SLO of job {job.id!r}" in note for note in answer.notes)]
    runs = oracle.Stated(problem).runs
    kept = tuple(m for m in runs if problem.jobs[m].slo is not None and m not in dropped)
    rates = effective_throughputs(problem, answer)
    for m in kept:
        job = problem.jobs[m]
        assert job.slo is not None
        assert rates[job.id] * job.slo >= job.steps_left * (1 - 1e-6)
    assert same(answer.objective, oracle.cost_ratio(problem, kept))
    if dropped:  # then all of them together are out of reach indeed
        everyone = tuple(m for m in runs if problem.jobs[m].slo is not None)
        assert oracle.cost_ratio(problem, everyone) == 0


@settings(max_examples=8)
@given(oracle.problems(most=5))
def test_filled_fairness_is_the_lexicographic_optimum(problem: Problem) -> None:
    answer = max_min_fairness(problem, fill=True)
    oracle.feasible(problem, answer)
    got = oracle.normalised(problem, effective_throughputs(problem, answer))
    assert got == pytest.approx(oracle.lexicographic(problem), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("inside", ["fairness", "fifo"])
@settings(max_examples=8)
@given(problem=oracle.problems(most=5))
def test_entities_share_as_the_paper_says(inside: str, problem: Problem) -> None:
    answer = hierarchical(problem, inside=inside)  # type: ignore[arg-type]
    oracle.feasible(problem, answer)
    got = oracle.normalised(problem, effective_throughputs(problem, answer))
    assert got == pytest.approx(oracle.lexicographic(problem, inside), rel=1e-4, abs=1e-5)


@settings(max_examples=40)
@given(oracle.problems())
def test_filling_is_no_worse_for_the_sorted_jobs(problem: Problem) -> None:
    weight = {job.id: job.weight for job in problem.jobs}
    sorted_levels = []
    for fill in (False, True):
        rates = effective_throughputs(problem, max_min_fairness(problem, fill=fill))
        levels = oracle.normalised(problem, rates)
        sorted_levels.append(sorted(levels[name] / weight[name] for name in levels))
    for plain, filled in zip(*sorted_levels, strict=True):
        if filled > plain * (1 + 1e-6) + 1e-7:
            break  # the first that differs is better
        assert filled >= plain * (1 - 1e-6) - 1e-7


@settings(max_examples=15)
@given(oracle.problems(pairs=False))
def test_blind_to_types_means_one_rate_everywhere(problem: Problem) -> None:
    blind = replace(
        problem,
        jobs=tuple(replace(j, throughput=tuple(float(r > 0) for r in j.throughput)) for j in problem.jobs),
    )
    assert same(max_min_fairness(problem, aware=False).objective, oracle.max_min(blind))
    assert same(fifo(problem, aware=False).objective, oracle.fifo(blind))


def test_the_papers_example_of_three_jobs() -> None:
    """Section 4.1: a V100 and a K80, three jobs that gain 4, 3 and 2 times from the V100; all do better than a third."""
    jobs = (JobRow("a", 1, (4.0, 1.0)), JobRow("b", 1, (3.0, 1.0)), JobRow("c", 1, (2.0, 1.0)))
    problem = Problem(jobs, ("v100", "k80"), (1, 1))
    answer = max_min_fairness(problem)
    assert answer.of("a") == pytest.approx((0.45, 0.0), abs=0.006)
    assert answer.of("b") == pytest.approx((0.45, 0.09), abs=0.006)
    assert answer.of("c") == pytest.approx((0.09, 0.91), abs=0.006)
    assert answer.objective == pytest.approx(8 / 11)
    assert max_min_fairness(problem, aware=False).objective == pytest.approx(2 / 3)


def test_sharing_gpus_helps_when_two_jobs_slow_each_other_little() -> None:
    jobs = (JobRow("a", 1, (1.0,)), JobRow("b", 1, (1.0,)))
    alone = Problem(jobs, ("v100",), (1,))
    shared = replace(alone, pairs=(PairRow(0, 1, (0.9,), (0.8,)),))
    assert max_min_fairness(alone).objective == pytest.approx(0.5)
    answer = max_min_fairness(shared)
    assert answer.objective > 0.8
    assert answer.fractions[("a", "b")][0] > 0.9


def test_an_unconsolidated_column_draws_on_the_same_gpus() -> None:
    jobs = tuple(JobRow(f"job{n}", 4, (4.0, 3.0)) for n in range(3))
    answer = max_min_fairness(Problem(jobs, ("v100", "v100/unconsolidated"), (8,), column_type=(0, 0)))
    assert sum(4 * sum(parts) for parts in answer.fractions.values()) <= 8 + 1e-9
    assert answer.objective == pytest.approx(4 * 2 / 3)
