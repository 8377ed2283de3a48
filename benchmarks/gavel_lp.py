"""One allocation of Gavel for 2,000 jobs and 4 GPU types: `python benchmarks/gavel_lp.py [--jobs N] [--only NAME]`.

Every objective is timed cold (nothing known) and warm (one job arrived since the last solution; where steps count,
all jobs have run for a round too), as a whole call: from the problem's rows to the allocation's. Once with 2,000
distinct rows of throughputs, where merging finds nothing, and once with rows from a table of 26 models, with and
without merging. CPU time is printed beside wall-clock time, since other work on the machine stretches the latter.
The goals are a median of 20 ms warm and 1 s cold. POP's loss is 1 − its objective / the optimum (or the inverse,
for times).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import median

from dally.policies.gavel.allocation.allox import allox
from dally.policies.gavel.allocation.isolated import isolated
from dally.policies.gavel.allocation.max_min_fairness import max_min_fairness
from dally.policies.gavel.allocation.objectives import OBJECTIVES
from dally.policies.gavel.allocation.pop import partitioned
from dally.policies.gavel.allocation.problem import Allocation, JobRow, Problem
from dally.policies.gavel.allocation.solver import Solver

TYPES, WORKERS = ("a100", "v100", "p100", "k80"), (128, 256, 256, 384)
PRICES = (3.0, 2.0, 1.2, 0.5)
SPEED = (1.6, 1.0, 0.45, 0.2)
GANGS, SHARES = (1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05)
ARRIVALS = 11
ROUND = 360.0  # seconds
STEPPING = ("sjf", "makespan", "finish-time-fairness", "cost-slo")
Solve = Callable[[Problem, Solver], Allocation]
Timed = tuple[float, float, Allocation]  # wall-clock and CPU seconds


def rows(count: int, kinds: int | None, seed: int) -> list[JobRow]:
    """Jobs with rows of their own, or with rows from a table of so many models."""
    rng = Random(seed)

    def row() -> tuple[float, ...]:
        base = 10 ** rng.uniform(-1, 1.5)
        return tuple(base * speed * rng.uniform(0.4, 1.6) for speed in SPEED)

    table = [row() for _ in range(kinds)] if kinds else []
    jobs = []
    for number in range(count):
        gang = rng.choices(GANGS, SHARES)[0]
        rates = rng.choice(table) if table else row()
        steps = 10 ** rng.uniform(4, 5) * rates[1]
        elapsed = rng.uniform(0, 1e4)
        jobs.append(
            JobRow(
                id=f"job{number}",
                gpus=gang,
                throughput=tuple(rate * gang * 0.9 ** (gang - 1).bit_length() for rate in rates),
                steps_left=steps,
                steps_total=steps,
                arrived=float(number),
                elapsed=elapsed,
                isolated_so_far=elapsed * rng.uniform(0.5, 1.0),
                entity=f"team{rng.randrange(10)}",
                slo=rng.uniform(2e5, 2e6) if rng.random() < 0.1 else None,
            )
        )
    return jobs


def problem(jobs: list[JobRow]) -> Problem:
    return Problem(tuple(jobs), TYPES, WORKERS, prices=PRICES)


def a_round_later(jobs: list[JobRow]) -> list[JobRow]:
    return [replace(job, steps_left=job.steps_left * 0.999, elapsed=job.elapsed + ROUND) for job in jobs]


def timed(solve: Solve, asked: Problem, solver: Solver) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = solve(asked, solver)
    return time.perf_counter() - wall, time.process_time() - cpu, answer


def measure(name: str, solve: Solve, jobs: list[JobRow], label: str) -> Allocation:
    """Print cold and warm medians; the last allocation."""
    now = jobs[:-ARRIVALS]
    models: list[object] = []
    solver = Solver(models=models)
    cold_wall, cold_cpu, answer = timed(solve, problem(now), solver)
    walls, cpus, runs = [], [], solver.runs + solver.beside.runs
    for arrival in jobs[-ARRIVALS:]:
        if name in STEPPING:
            now = a_round_later(now)
        now = [*now, arrival]
        asked = problem(now)
        wall, cpu = time.perf_counter(), time.process_time()
        warmth = solver.warmth()  # as between two allocations of the policy: plain data is all that is handed on
        solver.give_back()
        solver = Solver(warmth, models)
        answer = solve(asked, solver)
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
        runs += solver.runs + solver.beside.runs
    programs = runs / (1 + ARRIVALS)
    print(
        f"{name:22} {label:24} cold {cold_wall:6.3f} s (CPU {cold_cpu:6.3f})   "
        f"warm {median(walls):7.1f} ms (CPU {median(cpus):7.1f})   {programs:5.1f} programs a call",
        flush=True,
    )
    return answer


def loss(name: str, optimum: float, reached: float) -> float:
    if name in ("makespan", "finish-time-fairness"):
        return 1 - optimum / reached
    return 1 - reached / optimum


def with_pop(name: str, solve: Solve, jobs: list[JobRow], parts: int, optimum: Allocation) -> None:
    """One cold partitioned solution against the optimum of the same problem."""
    if name in ("makespan", "finish-time-fairness"):
        combine: Callable[..., float] = max
    elif name == "max-min-fairness":
        combine = min
    else:
        combine = sum  # an entity's level too: each part holds a k-th of its jobs
    wall, cpu, answer = timed(
        lambda asked, _: partitioned(asked, solve, parts=parts, seed=1, combine=combine), problem(jobs), Solver()
    )
    lost = loss(name, optimum.objective, answer.objective)
    label = f"POP, {parts} parts"
    print(f"{name:22} {label:24} cold {wall:6.3f} s (CPU {cpu:6.3f})   loses {lost:8.2%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--only", help="one objective")
    chosen = parser.parse_args()
    distinct = rows(chosen.jobs + ARRIVALS, None, seed=1)
    table = rows(chosen.jobs + ARRIVALS, 26, seed=2)
    solves: dict[str, Callable[..., Allocation]] = dict(OBJECTIVES)
    solves["max-min, filled"] = lambda asked, **options: max_min_fairness(asked, fill=True, **options)
    for name, objective in solves.items():
        if chosen.only and name != chosen.only:
            continue

        def merged(asked: Problem, solver: Solver, objective: Callable[..., Allocation] = objective) -> Allocation:
            return objective(asked, solver=solver)

        def single(asked: Problem, solver: Solver, objective: Callable[..., Allocation] = objective) -> Allocation:
            return objective(asked, solver=solver, aggregate=False)

        best = measure(name, merged, distinct, "distinct rows")
        measure(name, merged, table, "26 models, merged")
        measure(name, single, table, "26 models, not merged")
        if name in ("max-min-fairness", "makespan", "finish-time-fairness", "throughput", "hierarchical"):
            now = distinct
            for _ in range(ARRIVALS if name in STEPPING else 0):
                now = [*a_round_later(now[:-1]), now[-1]]
            best = merged(problem(now), Solver())
            for parts in (4, 16):
                with_pop(name, merged, now, parts, best)
    if not chosen.only:
        ones = [replace(job, gpus=1) for job in distinct]
        measure("isolated", lambda asked, solver: isolated(asked), distinct, "distinct rows")
        measure("allox", lambda asked, solver: allox(asked), ones, "distinct rows, one GPU")


if __name__ == "__main__":
    main()
