"""The shortest time until all active jobs are done (section 4.2):

    minimise  max over m of  steps_m / thr(m, X)

which is one linear program: maximise t with thr(m, X) ≥ steps_m·t; the makespan is 1/t. (The released code bisects
the makespan and stops within 5 %.)
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Floats, Grid, allocation, grid, within_limits
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import levelled
from dally.policies.gavel.allocation.solver import Solver


def makespan(
    problem: Problem, *, aware: bool = True, solver: Solver | None = None, aggregate: bool = True
) -> Allocation:
    """The allocation that ends first. The objective is the makespan in seconds, of the jobs that can run."""
    cells = grid(problem, aware)
    alone_at_best = steps_left(cells) / cells.best  # seconds
    longest = alone_at_best.max(initial=0.0)
    if longest == 0:
        return allocation(cells, np.zeros_like(cells.rate), np.zeros_like(cells.pair_rate[:, 0]), 0.0)
    found = solve(levelled(cells, alone_at_best / longest), solver or Solver(), aggregate)
    alone, together = within_limits(cells, found.alone, found.together)
    return allocation(cells, alone, together, finishing(cells, alone, together).max())


def steps_left(cells: Grid) -> Floats:
    return cells.of_jobs([job.steps_left for job in cells.problem.jobs])


def finishing(cells: Grid, alone: Floats, together: Floats) -> Floats:
    """Seconds until each job is done at its throughput; 0 for one without steps left."""
    left, rate = steps_left(cells), cells.throughput(alone, together)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(left > 0, left / rate, 0.0))
