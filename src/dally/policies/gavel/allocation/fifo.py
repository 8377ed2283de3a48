"""First come, first served (section 4.2):

    maximise  Σ over m of  thr(m, X) / thr(m, X^fastest) · (M − m)

with m the place in the queue, 0 for the oldest: an earlier job counts for more, so it gets the faster GPUs.
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Floats, Grid, allocation, grid, within_limits
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import weighted
from dally.policies.gavel.allocation.solver import Solver


def fifo(
    problem: Problem, *, aware: bool = True, solver: Solver | None = None, aggregate: bool = True
) -> Allocation:
    """The oldest first. The objective is the weighted sum."""
    cells = grid(problem, aware)
    arrived = cells.of_jobs([job.arrived for job in cells.problem.jobs])
    return by_rank(cells, turns(arrived), solver, aggregate)


def turns(key: Floats) -> Floats:
    """M for the smallest key, 1 for the largest; equal keys by place in the list."""
    worth = np.empty(len(key))
    worth[np.argsort(key, kind="stable")] = np.arange(len(key), 0, -1)
    return worth


def by_rank(
    cells: Grid, worth: Floats, solver: Solver | None, aggregate: bool, least: Floats | None = None
) -> Allocation:
    """Maximise Σ worth·thr/fastest."""
    pairs = np.zeros((len(cells.pairs), len(cells.column_type)))
    if not cells.ids:
        return allocation(cells, cells.rate, pairs, 0.0)
    weight = worth / cells.best / worth.max()
    found = solve(weighted(cells, weight, least), solver or Solver(), aggregate)
    alone, together = within_limits(cells, found.alone, found.together)
    return allocation(cells, alone, together, float(worth @ (cells.throughput(alone, together) / cells.best)))
