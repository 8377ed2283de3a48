"""Weighted LAS, or max-min fairness (section 4.1):

    maximise  min over m of  s_m / w_m · thr(m, X) / thr(m, X^eq)

X^eq splits a job's time over the types as the GPUs are split, so that no job gains by having slow steps, and s_m
makes a job of one GPU receive as much time as four jobs' worth of a gang of four. Only the worst-off jobs decide
the optimum: what the others get beyond it is not asked. With `fill`, the level of those who can still gain is
raised without lowering anybody (water-filling, section 4.3), until nobody can gain: the lexicographic optimum.
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Floats, Grid, allocation, grid, within_limits
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import levelled
from dally.policies.gavel.allocation.solver import Solver
from dally.policies.gavel.allocation.water_filling import fill_up


def max_min_fairness(
    problem: Problem,
    *,
    aware: bool = True,
    fill: bool = False,
    solver: Solver | None = None,
    aggregate: bool = True,
) -> Allocation:
    """The fairest allocation. The objective is the smallest of the normalised throughputs."""
    cells = grid(problem, aware)
    if not cells.ids:
        return allocation(cells, cells.rate, cells.pair_rate[:, 0], 0.0)
    solver = solver or Solver()
    push = deserved(cells)
    if fill:
        if not aware:  # all types are alike: where a search begins would decide on which of them a job runs
            solver.guess = None
        found = fill_up(cells, push, solver, aggregate)
    else:
        found = solve(levelled(cells, push), solver, aggregate)
    alone, together = within_limits(cells, found.alone, found.together)
    return allocation(cells, alone, together, normalised(cells, alone, together, push).min())


def deserved(cells: Grid) -> Floats:
    """w_m/s_m · thr(m, X^eq), as a part of the job's fastest throughput: what a job gets at level 1."""
    weights = cells.of_jobs([job.weight for job in cells.problem.jobs])
    return np.asarray(weights * cells.equal_share / (cells.gpus * cells.best))


def normalised(cells: Grid, alone: Floats, together: Floats, push: Floats) -> Floats:
    """s_m/w_m · thr(m, X)/thr(m, X^eq) of every job that can run; `push`: what it gets at level 1."""
    return np.asarray(cells.throughput(alone, together) / cells.best / push)
