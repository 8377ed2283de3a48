"""Every job alone on 1/M of the cluster (section 4.2, X^isolated):

    X[m, j] = N_j / (M·s_m),  scaled down to Σ_j X[m, j] ≤ 1

M counts all active jobs, those that fit nowhere too. A type that a job cannot use is time it does not have. Pairs
are not used. `aware` changes nothing: the split does not look at throughputs.
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.grid import Floats, Grid, allocation, grid
from dally.policies.gavel.allocation.problem import Allocation, Problem


def isolated(problem: Problem) -> Allocation:
    """The split. The objective is the number of GPUs in use on average."""
    cells = grid(problem)
    alone = isolated_split(cells)
    together = np.zeros((len(cells.pairs), len(cells.column_type)))
    return allocation(cells, alone, together, float(cells.gpus @ alone.sum(axis=1)))


def isolated_split(cells: Grid) -> Floats:
    """(M, C): a type's share goes to the job's fastest column of that type."""
    count = max(1, len(cells.problem.jobs))
    share = cells.capacity[None, :] / (count * cells.gpus[:, None])
    share = share / np.maximum(share.sum(axis=1), 1.0)[:, None]
    split = np.zeros_like(cells.rate)
    for kind in range(len(cells.capacity)):
        columns = np.flatnonzero(cells.column_type == kind)
        if len(columns) and len(cells.ids):
            fastest = columns[np.argmax(cells.rate[:, columns], axis=1)]
            rows = np.arange(len(cells.ids))
            split[rows, fastest] = np.where(cells.rate[rows, fastest] > 0, share[:, kind], 0.0)
    return split


def isolated_rate(cells: Grid) -> Floats:
    """Steps per second of each job on its 1/M of the cluster."""
    return np.asarray((cells.rate * isolated_split(cells)).sum(axis=1))
