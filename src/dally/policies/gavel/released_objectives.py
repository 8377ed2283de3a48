"""The objectives as the released simulator solves them: its formulas, its bisection, and the optimum in the
middle.

The formulas are the paper's (`allocation/` has them too). What is particular to the released code: blind versions
of makespan and finish-time fairness take the fastest type's rate for every type; makespan is bisected to 5 % and
then any feasible point is as good as another; FIFO hands out whole GPUs in order of arrival instead of solving a
program.
"""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping, Sequence

import numpy as np

from dally.core.errors import UserError
from dally.policies.gavel.allocation.problem import Allocation, JobRow, Problem
from dally.policies.gavel.central import Blocks, Floats, solve

Objective = Callable[[Sequence[JobRow], tuple[int, ...]], Floats]

_SHORTEST, _LONGEST = 100.0, 1e6  # seconds between which the makespan is bisected
_NEAR = 1.05


def objective(name: str, aware: bool) -> Objective:
    """The released code's way to one objective; blind first come, first served remembers places: see `blind_fifo`."""
    if name == "fifo":
        return _fifo
    makers = {"max-min-fairness": _max_min, "makespan": _makespan, "finish-time-fairness": _finish_time_fairness}
    if name not in makers:
        known = ", ".join(["fifo", *makers])
        raise UserError(f"policy 'gavel': variant=released has no objective {name!r}; it has {known}")
    make = makers[name]
    if aware:
        return lambda jobs, workers: make(_rates(jobs), jobs, workers)
    if name == "max-min-fairness":
        return lambda jobs, workers: make(np.ones_like(_rates(jobs)), jobs, workers)
    return lambda jobs, workers: make(np.repeat(_rates(jobs)[:, :1], len(workers), axis=1), jobs, workers)


def in_the_middle(problem: Problem, name: str, aware: bool) -> Allocation | None:
    """The optimum in the middle, where every column is a GPU type and every job runs somewhere."""
    if problem.column_type != tuple(range(len(problem.workers))) or not problem.jobs:
        return None
    if any(max(job.throughput) <= 0 for job in problem.jobs):
        return None
    found = objective(name, aware)(problem.jobs, problem.workers)
    rates = np.array([job.throughput for job in problem.jobs])
    found = np.where(rates > 0, found, 0.0)
    return Allocation({(job.id,): tuple(line) for job, line in zip(problem.jobs, found.tolist(), strict=True)}, 0.0)


def _rates(jobs: Sequence[JobRow]) -> Floats:
    return np.array([job.throughput for job in jobs])


def _sizes(jobs: Sequence[JobRow]) -> Floats:
    return np.array([float(job.gpus) for job in jobs])


def _blocks(jobs: int, kinds: int, extra_rows: int, extra_variables: int, sizes: Floats,
            workers: tuple[int, ...]) -> Blocks:  # fmt: skip
    """x ≥ 0, Σ_j x ≤ 1, Σ_m s·x ≤ N; further rows and variables of each job are left at 0 for the caller."""
    rows, variables = kinds + 1 + extra_rows, kinds + extra_variables
    local, bound = np.zeros((jobs, rows, variables)), np.zeros((jobs, rows))
    local[:, np.arange(kinds), np.arange(kinds)] = -1.0
    local[:, kinds, :kinds] = 1.0
    bound[:, kinds] = 1.0
    joint = np.zeros((jobs, variables, kinds))
    joint[:, np.arange(kinds), np.arange(kinds)] = sizes[:, None]
    return Blocks(local, np.zeros((jobs, rows)), bound, joint, np.array(workers, dtype=float),
                  np.zeros((jobs, variables)), 0.0)  # fmt: skip


def _clipped(found: Floats | None, kinds: int) -> Floats | None:
    return None if found is None else np.clip(found[:, :kinds], 0.0, 1.0)


def _best_common_rate(factors: Floats, sizes: Floats, workers: tuple[int, ...]) -> Floats | None:
    """max t with Σ_j factors·x ≥ t for every job."""
    jobs, kinds = factors.shape
    made = _blocks(jobs, kinds, 1, 0, sizes, workers)
    made.local[:, kinds + 1, :] = -factors
    made.on_t[:, kinds + 1] = 1.0
    made.cost_t = -1.0
    return _clipped(solve(made), kinds)


def _equal_share(rates: Floats, workers: tuple[int, ...]) -> Floats:
    """Steps per second of each job with its time split in proportion to the GPUs of each type: X^eq."""
    share = np.array(workers, dtype=float)
    found: Floats = rates @ (share / share.sum())
    return found


def _max_min(rates: Floats, jobs: Sequence[JobRow], workers: tuple[int, ...]) -> Floats:
    sizes, weights = _sizes(jobs), np.array([job.weight for job in jobs])
    factors = rates * (sizes / weights / _equal_share(rates, workers))[:, None]
    found = _best_common_rate(factors, sizes, workers)
    return isolated(jobs, workers) if found is None else found


def _makespan(rates: Floats, jobs: Sequence[JobRow], workers: tuple[int, ...]) -> Floats:
    sizes, steps = _sizes(jobs), np.array([max(job.steps_left, 1e-9) for job in jobs])
    least = _best_common_rate(rates / steps[:, None], sizes, workers)
    if least is None:
        return isolated(jobs, workers)
    # a bound T is feasible from here on: one program instead of one per step of the bisection
    shortest = 1.0 / float(((rates * least).sum(axis=1) / steps).min())
    low, high, last, feasible = _SHORTEST, _LONGEST, _LONGEST, None
    while feasible is None:
        while _NEAR * low < high:
            middle = (low + high) / 2.0
            if middle >= shortest:
                feasible = high = middle
            else:
                low = middle
        high, low, last = last * 10.0, last, last * 10.0
    kinds = len(workers)
    made = _blocks(len(jobs), kinds, 1, 0, sizes, workers)
    made.local[:, kinds + 1, :] = -rates
    made.bound[:, kinds + 1] = -steps / feasible
    found = _clipped(solve(made), kinds)
    return least if found is None else found


def isolated(jobs: Sequence[JobRow], workers: tuple[int, ...]) -> Floats:
    """1/M of the cluster for each of M jobs; nobody gets more than all of its time."""
    share = np.array(workers, dtype=float) / len(jobs) / _sizes(jobs)[:, None]
    found: Floats = share / np.maximum(share.sum(axis=1), 1.0)[:, None]
    return found


def _finish_time_fairness(rates: Floats, jobs: Sequence[JobRow], workers: tuple[int, ...]) -> Floats:
    """min max (elapsed + left·u) / (isolated so far + left/isolated rate), with u ≥ 1/rate as a cone of three rows:
    |(rate − u, 2)| ≤ rate + u."""
    sizes, kinds = _sizes(jobs), len(workers)
    left = np.array([max(job.steps_left, 1e-9) for job in jobs])
    alone = (rates * isolated(jobs, workers)).sum(axis=1)
    whole = np.array([job.isolated_so_far for job in jobs]) + left / alone
    made = _blocks(len(jobs), kinds, 4, 1, sizes, workers)
    u, row = kinds, kinds + 1
    made.local[:, row, u] = left / whole
    made.on_t[:, row] = -1.0
    made.bound[:, row] = -np.array([job.elapsed for job in jobs]) / whole
    made.local[:, row + 1, :kinds] = -rates
    made.local[:, row + 1, u] = -1.0
    made.local[:, row + 2, :kinds] = -rates
    made.local[:, row + 2, u] = 1.0
    made.bound[:, row + 3] = 2.0
    made.cost_t = 1.0
    made.cone = 3
    found = _clipped(solve(made), kinds)
    return isolated(jobs, workers) if found is None else found


def _fifo(jobs: Sequence[JobRow], workers: tuple[int, ...]) -> Floats:
    """In order of arrival, each on the fastest type that still has room; the first that fits nowhere ends it."""
    left, made = list(workers), np.zeros((len(jobs), len(workers)))
    for place, job in enumerate(jobs):
        fitting = [kind for kind in reversed(range(len(workers))) if left[kind] >= job.gpus]
        if not fitting:
            break
        kind = max(fitting, key=lambda kind: job.throughput[kind])
        if job.throughput[kind] > 0:
            made[place, kind] = 1.0
            left[kind] -= job.gpus
    return made


def blind_fifo(jobs: Sequence[JobRow], workers: tuple[int, ...], places: MutableMapping[str, int],
               chance: random.Random) -> Floats:  # fmt: skip
    """Whoever has a place keeps it; others get one on a random type with room, in order of arrival."""
    known = {job.id for job in jobs}
    for gone in [job for job in places if job not in known]:
        del places[gone]
    left = list(workers)
    for job in jobs:
        if job.id in places:
            left[places[job.id]] -= job.gpus
    for job in jobs:
        if job.id in places:
            continue
        fitting = [kind for kind in reversed(range(len(workers)))
                   if left[kind] >= job.gpus and job.throughput[kind] > 0]  # fmt: skip
        if not fitting:
            break
        kind = fitting[chance.randrange(len(fitting))]
        places[job.id] = kind
        left[kind] -= job.gpus
    made = np.zeros((len(jobs), len(workers)))
    for place, job in enumerate(jobs):
        if job.id in places:
            made[place, places[job.id]] = 1.0
    return made
