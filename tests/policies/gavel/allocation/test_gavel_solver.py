"""A model that is changed and solved again says what a new one would; merging and partitioning keep their promises."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import gavel_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import cluster
from dally.core.errors import UserError
from dally.core.plain import from_plain, to_plain
from dally.policies.gavel.allocation.grid import effective_throughputs, grid
from dally.policies.gavel.allocation.max_min_fairness import deserved, max_min_fairness
from dally.policies.gavel.allocation.objectives import OBJECTIVES
from dally.policies.gavel.allocation.pop import partitioned, split
from dally.policies.gavel.allocation.problem import JobRow, PairRow, Problem
from dally.policies.gavel.allocation.program import levelled
from dally.policies.gavel.allocation.solver import Solver
from dally.policies.gavel.allocation.warmth import COLD, Warmth

TYPES, WORKERS = ("v100", "v100/unconsolidated", "p100", "k80"), (12, 16, 24)


def crowd(rng: Random, names: range, models: int | None = None) -> list[JobRow]:
    """Many jobs, of their own kinds or of a few models."""

    def row(own: Random) -> tuple[float, ...]:
        return tuple(own.uniform(0.4, 1.6) * speed for speed in (1.0, 0.8, 0.5, 0.2))

    table = [row(Random(number)) for number in range(models or 0)]
    return [
        JobRow(
            id=f"job{number}",
            gpus=rng.choice((1, 1, 2, 4)),
            throughput=rng.choice(table) if table else row(rng),
            steps_left=rng.uniform(1e3, 1e4),
            elapsed=rng.uniform(0, 100),
            arrived=float(number),
            weight=rng.choice((1.0, 2.0)),
            entity=rng.choice(("a", "b", None)),
            slo=rng.choice((None, None, None, rng.uniform(1e4, 1e6))),
        )
        for number in names
    ]


def problem(jobs: list[JobRow], pairs: bool = False) -> Problem:
    shared = []
    if pairs:
        for first, second in zip(range(0, len(jobs), 3), range(1, len(jobs), 3), strict=False):
            one, other = jobs[first], jobs[second]
            if one.gpus == other.gpus:
                rates = (tuple(0.7 * r for r in one.throughput), tuple(0.6 * r for r in other.throughput))
                shared.append(PairRow(first, second, *rates))
    return Problem(tuple(jobs), TYPES, WORKERS, column_type=(0, 0, 1, 2), prices=(3.0, 2.0, 1.0), pairs=tuple(shared))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("models", [None, 3])
def test_after_arrivals_departures_and_progress_a_warm_model_agrees_with_a_new_one(
    name: str, pairs: bool, models: int | None
) -> None:
    rng = Random(7)
    jobs = crowd(rng, range(60), models)
    solver = Solver()
    for turn in range(8):
        asked = problem(jobs, pairs)
        warm = OBJECTIVES[name](asked, solver=solver)
        oracle.feasible(asked, warm)
        assert warm.objective == pytest.approx(OBJECTIVES[name](asked).objective, rel=1e-6)
        jobs = [replace(job, steps_left=job.steps_left * rng.uniform(0.9, 1.0), elapsed=job.elapsed + 9) for job in jobs]
        for _ in range(rng.randrange(1, 12)):
            del jobs[rng.randrange(len(jobs))]
        if turn == 4:  # another throughput was measured, another weight was set
            jobs[3] = replace(jobs[3], throughput=(0.0, *jobs[4].throughput[1:]), weight=5.0)
            jobs[0] = replace(jobs[0], gpus=2)
        jobs += crowd(rng, range(100 * (turn + 1), 100 * (turn + 1) + rng.randrange(1, 9)), models)


def test_many_departures_make_the_model_small_again() -> None:
    rng = Random(3)
    jobs = crowd(rng, range(400))
    solver = Solver()
    max_min_fairness(problem(jobs), solver=solver)
    for _ in range(4):
        jobs = jobs[80:] + crowd(rng, range(1000 + len(jobs), 1005 + len(jobs)))
        answer = max_min_fairness(problem(jobs), solver=solver)
    assert answer.objective == pytest.approx(max_min_fairness(problem(jobs)).objective, rel=1e-7)
    assert solver.columns < 4 * (2 * len(jobs) + 80)


def test_a_warm_model_needs_a_few_iterations_after_one_arrival() -> None:
    rng = Random(5)
    jobs = crowd(rng, range(301))
    solver = Solver()
    max_min_fairness(problem(jobs[:300]), solver=solver)
    cold = Solver()
    max_min_fairness(problem(jobs), solver=cold)
    before = solver.iterations
    max_min_fairness(problem(jobs), solver=solver)
    assert solver.iterations - before < 40 < cold.iterations


def test_more_gpus_and_another_number_of_types_are_understood() -> None:
    jobs = tuple(crowd(Random(1), range(20)))
    solver = Solver()
    small = Problem(jobs, TYPES, WORKERS, column_type=(0, 0, 1, 2))
    large = replace(small, workers=(24, 16, 24))
    merged = replace(small, column_type=(0, 0, 1, 1), workers=(12, 40), prices=(1.0, 1.0))
    levels = [max_min_fairness(asked, solver=solver).objective for asked in (small, large, merged, small)]
    assert levels == pytest.approx([max_min_fairness(asked).objective for asked in (small, large, merged, small)])
    assert len({round(level, 6) for level in levels}) == 3  # three different questions


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=12)
@given(data=st.data(), asked=oracle.problems(most=3))
def test_merging_identical_jobs_changes_no_objective(name: str, data: st.DataObject, asked: Problem) -> None:
    jobs = list(asked.jobs)
    for number in range(data.draw(st.integers(1, 5))):
        jobs.append(replace(data.draw(st.sampled_from(asked.jobs)), id=f"copy{number}"))
    many = replace(asked, jobs=tuple(jobs))
    merged, single = OBJECTIVES[name](many), OBJECTIVES[name](many, aggregate=False)
    oracle.feasible(many, merged)
    if not any("together with the others" in note for note in merged.notes + single.notes):
        # Which of several deadlines is given up may depend on the dual solution, and with it the rest.
        assert merged.objective == pytest.approx(single.objective, rel=1e-6, abs=1e-9)


def test_identical_jobs_get_identical_fractions_and_a_smaller_model() -> None:
    jobs = [replace(job, weight=1.0, gpus=1) for job in crowd(Random(2), range(90), models=3)]
    solver = Solver()
    answer = max_min_fairness(problem(jobs), solver=solver)
    assert len({(job.throughput, answer.of(job.id)) for job in jobs}) == 3
    assert solver.columns == 1 + 3 * len(TYPES)


@settings(max_examples=40)
@given(oracle.problems(most=8), st.integers(1, 4), st.integers(0, 3))
def test_parts_together_are_feasible_and_no_better_than_the_whole(asked: Problem, parts: int, seed: int) -> None:
    answer = partitioned(asked, lambda part, solver: max_min_fairness(part, solver=solver), parts=parts, seed=seed)
    oracle.feasible(asked, answer)
    assert answer.objective <= max_min_fairness(asked).objective * (1 + 1e-6) + 1e-9
    again = partitioned(asked, lambda part, solver: max_min_fairness(part, solver=solver), parts=parts, seed=seed)
    assert again == answer


def test_every_job_is_in_one_part_and_appending_moves_nobody() -> None:
    jobs = crowd(Random(4), range(50))
    before = [{job.id for job in part.jobs} for part in split(problem(jobs), 4, seed=9)]
    after = [{job.id for job in part.jobs} for part in split(problem(jobs + crowd(Random(5), range(50, 60))), 4, seed=9)]
    assert sorted(name for part in before for name in part) == sorted(job.id for job in jobs)
    assert all(old <= new for old, new in zip(before, after, strict=True))
    assert max(map(len, before)) - min(map(len, before)) <= 1
    with pytest.raises(UserError, match="at least 1"):
        partitioned(problem(jobs), lambda part, solver: max_min_fairness(part, solver=solver), parts=0, seed=0)


def test_with_many_jobs_partitioning_loses_little() -> None:
    asked = problem(crowd(Random(6), range(400)))
    whole = max_min_fairness(asked).objective
    parts = partitioned(asked, lambda part, solver: max_min_fairness(part, solver=solver), parts=4, seed=1)
    assert 0.9 * whole < parts.objective <= whole * (1 + 1e-7)


def test_the_same_problem_has_the_same_answer() -> None:
    asked = problem(crowd(Random(8), range(80)), pairs=True)
    for objective in OBJECTIVES.values():
        assert objective(asked) == objective(asked)


def test_the_dual_says_who_holds_the_level_down() -> None:
    cells = grid(problem(crowd(Random(9), range(40))))
    push = deserved(cells)
    found = Solver().solve(levelled(cells, push))
    assert found.duals @ push == pytest.approx(1.0)
    assert (found.duals >= 0).all()


@pytest.mark.parametrize("scale", [1, 3, 6, 12])
def test_filling_helps_many_jobs_and_costs_the_worst_off_nothing(scale: int) -> None:
    """From crowded to nearly idle: the smallest level stays, and no type is left idle that anybody could use."""
    jobs = crowd(Random(11), range(120))
    asked = replace(problem(jobs), workers=tuple(count * scale for count in WORKERS))
    plain, filled = max_min_fairness(asked), max_min_fairness(asked, fill=True)
    oracle.feasible(asked, filled)
    assert filled.objective == pytest.approx(plain.objective, rel=1e-6)
    rates = effective_throughputs(asked, filled)
    assert sum(rates.values()) >= sum(effective_throughputs(asked, plain).values()) * (1 - 1e-6)
    used = [0.0] * len(WORKERS)
    for job in jobs:
        for column, part in enumerate(filled.of(job.id)):
            used[asked.column_type[column]] += part * job.gpus
    rest = [kind for kind, count in enumerate(asked.workers) if used[kind] < count - 1e-6]
    for job in jobs:  # a job with time to spare finds nothing free
        assert sum(filled.of(job.id)) > 1 - 1e-6 or not rest


@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize("inside", ["fairness", "fifo"])
def test_entities_with_many_jobs_come_to_an_end(scale: int, inside: str) -> None:
    jobs = crowd(Random(12), range(100))
    asked = replace(problem(jobs), workers=tuple(count * scale for count in WORKERS), entity_weights={"a": 3.0})
    solver = Solver()
    answer = OBJECTIVES["hierarchical"](asked, inside=inside, solver=solver)
    oracle.feasible(asked, answer)
    assert solver.runs <= 2 * len(jobs)
    if inside == "fifo" and scale == 1:  # the oldest of each entity runs all the time, the youngest does not
        oldest = {job.entity: job for job in reversed(jobs)}
        assert all(sum(answer.of(job.id)) > 0.99 for job in oldest.values())
        assert sum(answer.of(jobs[-1].id)) < 0.99


@pytest.mark.parametrize("scale", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("models", [None, 5])
def test_filling_that_begins_where_the_water_stopped_last_ends_where_a_new_one_does(
    scale: int, models: int | None
) -> None:
    """Jobs come and go, the cluster is crowded, half full or nearly idle: every job's level is that of a cold call."""
    rng = Random(scale)
    jobs, arrivals, solver = crowd(rng, range(60), models), crowd(rng, range(60, 84), models), Solver()
    begun_again = 0
    for step in range(8):
        jobs = [job for job in jobs if rng.random() > 0.04] + arrivals[3 * step : 3 * step + 3]
        asked = replace(problem(jobs), workers=tuple(count * scale for count in WORKERS))
        begun_again += solver.guess is not None
        warm, cold = max_min_fairness(asked, fill=True, solver=solver), max_min_fairness(asked, fill=True)
        oracle.feasible(asked, warm)
        expected = effective_throughputs(asked, cold)
        assert effective_throughputs(asked, warm) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert scale in (1, 6) or begun_again


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("models", [None, 3])
def test_what_a_solver_hands_on_as_text_is_all_the_next_one_needs(name: str, models: int | None) -> None:
    """Model objects used again, or made anew with the basis read from text: the same allocation to the last digit."""
    rng = Random(11)
    jobs = crowd(rng, range(50), models)
    warmth, used = COLD, []  # type: ignore[var-annotated]
    for turn in range(5):
        asked = problem(jobs, pairs=True)
        solver, anew = Solver(warmth, used), Solver(_from_text(warmth))
        found = OBJECTIVES[name](asked, solver=solver)
        assert OBJECTIVES[name](asked, solver=anew).fractions == found.fractions
        warmth = solver.warmth()
        assert anew.warmth() == warmth
        solver.give_back()
        jobs = [replace(job, steps_left=job.steps_left * 0.97) for job in jobs[rng.randrange(9) :]]
        jobs += crowd(rng, range(100 * (turn + 1), 100 * (turn + 1) + rng.randrange(1, 9)), models)


def _from_text(warmth: Warmth) -> Warmth:
    nobody = cluster(1)
    found: Warmth = from_plain(json.loads(json.dumps(to_plain(warmth, Warmth, nobody))), Warmth, nobody)
    return found
