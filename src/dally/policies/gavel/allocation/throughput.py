"""The most steps per second in all (the released code's sum of throughputs):

    maximise  Σ over m of  thr(m, X)

Steps of different models are added as they are, so models with small steps win.
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import allocation, grid, within_limits
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import weighted
from dally.policies.gavel.allocation.solver import Solver


def throughput(
    problem: Problem, *, aware: bool = True, solver: Solver | None = None, aggregate: bool = True
) -> Allocation:
    """The objective is the sum."""
    cells = grid(problem, aware)
    if not cells.ids:
        return allocation(cells, cells.rate, np.zeros((len(cells.pairs), len(cells.column_type))), 0.0)
    scale = cells.best.max()
    found = solve(weighted(cells, np.full(len(cells.ids), 1.0 / scale)), solver or Solver(), aggregate)
    alone, together = within_limits(cells, found.alone, found.together)
    return allocation(cells, alone, together, cells.throughput(alone, together).sum())
