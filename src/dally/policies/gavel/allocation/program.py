"""The one linear program behind every Gavel objective.

Variables are X ≥ 0, one per job (or pair) and column, and a level t. With q_m(X) = thr(m, X) / best_m, the job's
throughput as a part of its fastest one, the program is

    maximise    Σ value·X + pull·t
    subject to  Σ over the rows with m of X ≤ 1             a job has no more than all its time
                Σ gpus·X ≤ capacity of each type
                q_m(X) − push_m·t ≥ floor_m                 only if the objective has a level

An objective differs from another only in `value`, `push` and `floor`. Rows are scaled by best_m, so that
coefficients of X are at most about 1 however many steps per second a model makes.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from dally.core.records import dataclass
from dally.policies.gavel.allocation.grid import Floats, Grid, Ints


@dataclass(frozen=True, slots=True)
class Program:
    """M rows of jobs, P rows of pairs, C columns, K types."""

    jobs: tuple[Hashable, ...]  # names that stay the same from program to program
    pairs: tuple[Hashable, ...]
    members: Ints  # (P, 2)
    column_type: Ints  # (C)
    capacity: Floats  # (K)
    gpus: Floats  # (M) GPUs that all of X = 1 takes: the gang, times the jobs that the row stands for
    gain: Floats  # (M, C) q per unit of X; 0 = may not run there
    value: Floats  # (M, C)
    least: Floats  # (M, C) lower bounds of X
    pair_gain: Floats  # (P, 2, C)
    pair_value: Floats  # (P, C)
    pull: float = 0.0
    push: Floats | None = None  # (M); None = no level, no floors
    floor: Floats | None = None  # (M); −inf = none
    level_limit: float = np.inf

    @property
    def levelled(self) -> bool:
        return self.push is not None


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found; fractions as it gave them, to its tolerance."""

    alone: Floats  # (M, C)
    together: Floats  # (P, C)
    level: float
    duals: Floats  # (M) how much the objective falls per unit of floor_m: ≥ 0
    lost: Floats  # (M, C) how much it falls per unit of X[m, c] above 0: the reduced costs, ≥ 0
    pair_lost: Floats  # (P, C)
    objective: float


def levelled(grid: Grid, push: Floats, floor: Floats | None = None) -> Program:
    """Maximise t with q_m(X) ≥ floor_m + push_m·t."""
    floors = np.zeros(len(grid.ids)) if floor is None else np.array(floor)
    # Copies: the solver compares a program with the last one, which must not have changed since.
    return _program(grid, grid.nothing, grid.pair_nothing, grid.nothing, 1.0, np.array(push), floors)


def summed(grid: Grid, value: Floats, pair_value: Floats, least: Floats | None = None) -> Program:
    """Maximise Σ value·X."""
    return _program(grid, value, pair_value, grid.nothing if least is None else least)


def _program(grid: Grid, value: Floats, pair_value: Floats, least: Floats, pull: float = 0.0,
             push: Floats | None = None, floor: Floats | None = None) -> Program:  # fmt: skip
    return Program(
        jobs=grid.ids,
        pairs=grid.pairs,
        members=grid.members,
        column_type=grid.column_type,
        capacity=grid.capacity,
        gpus=grid.gpus,
        gain=grid.gain,
        value=value,
        least=least,
        pair_gain=grid.pair_gain,
        pair_value=pair_value,
        pull=pull,
        push=push,
        floor=floor,
    )


def weighted(grid: Grid, weight: Floats, least: Floats | None = None) -> Program:
    """Maximise Σ weight_m·thr(m, X)."""
    together = (grid.pair_rate * weight[grid.members][:, :, None]).sum(axis=1)
    return summed(grid, grid.rate * weight[:, None], together, least)
