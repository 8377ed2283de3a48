"""Shortest job first (section 4.2):

    minimise  min over m of  steps_m / thr(m, X)

The minimum looks at one job only: the one that can end first gets its fastest column all the time. The paper leaves
the rest of the cluster open; here the others follow as in `fifo`, in order of the time they would need at their
best.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dally.policies.gavel.allocation.fifo import by_rank, turns
from dally.policies.gavel.allocation.grid import allocation, grid
from dally.policies.gavel.allocation.makespan import steps_left
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.solver import Solver


def sjf(
    problem: Problem, *, aware: bool = True, solver: Solver | None = None, aggregate: bool = True
) -> Allocation:
    """The shortest first. The objective is the time in which the first one ends."""
    cells = grid(problem, aware)
    if not cells.ids:
        return allocation(cells, cells.rate, np.zeros((len(cells.pairs), len(cells.column_type))), 0.0)
    shortest = steps_left(cells) / cells.best
    first = int(np.argmin(shortest))
    least = np.zeros_like(cells.rate)
    # Under POP the share of a type may be smaller than the gang.
    kind = int(np.argmax(cells.rate[first]))
    least[first, kind] = min(1.0, cells.capacity[cells.column_type[kind]] / cells.gpus[first])
    answer = by_rank(cells, turns(shortest), solver, aggregate, least)
    return replace(answer, objective=float(shortest[first] / least[first, kind]))
