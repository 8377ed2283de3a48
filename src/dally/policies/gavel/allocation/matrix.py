"""A program as HiGHS wants it: the numbers of rows and columns, the entries by column, and the bounds.

Rows: one per GPU type, then per job one for its time and, if the program has a level, one for its throughput.
Columns: the level, then one per (job or pair, column of the problem).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from dally.core.records import dataclass
from dally.policies.gavel.allocation.grid import Floats, Ints
from dally.policies.gavel.allocation.program import Program

Entries = tuple[Ints, Ints, Floats]  # where each column starts (and the end), row numbers, values


@dataclass(slots=True)
class Layout:
    """Where the rows and columns of each job and pair are in the model: the first of each."""

    job_column: Ints
    job_row: Ints
    pair_column: Ints

    @staticmethod
    def in_order(program: Program) -> Layout:
        count, pairs, columns = len(program.jobs), len(program.pairs), len(program.column_type)
        return Layout(
            1 + columns * np.arange(count),
            len(program.capacity) + rows_per_job(program) * np.arange(count),
            1 + columns * (count + np.arange(pairs)),
        )


def rows_per_job(program: Program) -> int:
    return 2 if program.levelled else 1


def same_frame(one: Program, other: Program) -> bool:
    """Whether one model can become the other by adding, deleting and changing."""
    return (
        one.levelled == other.levelled
        and len(one.capacity) == len(other.capacity)
        and np.array_equal(one.column_type, other.column_type)
    )


def same_rows(one: Program, other: Program) -> bool:
    """Whether two programs of one frame have the same coefficients of X."""
    return (
        one.jobs == other.jobs
        and one.pairs == other.pairs
        and np.array_equal(one.gpus, other.gpus)
        and np.array_equal(one.gain, other.gain)
        and np.array_equal(one.pair_gain, other.pair_gain)
    )


def missing(count: int, was: Ints) -> Ints:
    """Those of so many old ones that none of the new was."""
    gone = np.ones(count, dtype=bool)
    gone[was[was >= 0]] = False
    return np.flatnonzero(gone)


def places(old: Sequence[Hashable], new: Sequence[Hashable]) -> Ints:
    """For each of the new, where it is among the old; −1 = nowhere."""
    if old == new:
        return np.arange(len(new))
    known = {key: place for place, key in enumerate(old)}
    return np.array([known.get(key, -1) for key in new], dtype=np.int64)


def entries(program: Program, layout: Layout, jobs: Ints, pairs: Ints) -> Entries:
    """The matrix of the columns of these jobs and pairs."""
    types = program.column_type
    row = layout.job_row[jobs]
    blocks = [_block(program, types, program.gpus[jobs], [row], [program.gain[jobs]])]
    if len(pairs):
        first, second = program.members[pairs].T
        member_rows = [layout.job_row[first], layout.job_row[second]]
        gains = [program.pair_gain[pairs, 0], program.pair_gain[pairs, 1]]
        blocks.append(_block(program, types, program.gpus[first], member_rows, gains))
    sizes = np.concatenate([(values != 0).sum(axis=1) for _, values in blocks])
    rows = np.concatenate([numbers[values != 0] for numbers, values in blocks])
    return np.concatenate([[0], np.cumsum(sizes)]), rows, np.concatenate([v[v != 0] for _, v in blocks])


def _block(
    program: Program, types: Ints, gpus: Floats, job_rows: list[Ints], gains: list[Floats]
) -> tuple[Ints, Floats]:
    """One line per column: its type's row, the time of every job in it, their throughputs."""
    shape = (len(gpus), len(types))
    rows = [np.broadcast_to(types, shape)] + [np.broadcast_to(row[:, None], shape) for row in job_rows]
    values = [np.broadcast_to(gpus[:, None], shape)] + [np.ones(shape) for _ in job_rows]
    if program.levelled:
        rows += [np.broadcast_to(row[:, None] + 1, shape) for row in job_rows]
        values += gains
    width = len(rows)
    return np.stack(rows, axis=-1).reshape(-1, width), np.stack(values, axis=-1).reshape(-1, width)


def column_bounds(program: Program, jobs: Ints, pairs: Ints) -> tuple[Floats, Floats]:
    """A column without gain is closed. Open ones need no upper bound: the row of the job's time is one."""
    gains = np.concatenate([program.gain[jobs].ravel(), program.pair_gain[pairs].max(axis=1, initial=0.0).ravel()])
    lower = np.concatenate([program.least[jobs].ravel(), np.zeros(len(pairs) * len(program.column_type))])
    return lower, np.where(gains > 0, np.inf, 0.0)


def row_bounds(program: Program, jobs: Ints) -> tuple[Floats, Floats]:
    """Time at most 1; throughput at least the floor."""
    if program.floor is None:
        return np.full(len(jobs), -np.inf), np.ones(len(jobs))
    lower = np.column_stack([np.full(len(jobs), -np.inf), program.floor[jobs]])
    upper = np.column_stack([np.ones(len(jobs)), np.full(len(jobs), np.inf)])
    return lower.ravel(), upper.ravel()


def costs(program: Program, jobs: Ints, pairs: Ints) -> Floats:
    """HiGHS minimises."""
    return -np.concatenate([program.value[jobs].ravel(), program.pair_value[pairs].ravel()])
