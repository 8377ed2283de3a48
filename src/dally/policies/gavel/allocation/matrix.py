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
        and _equal(one.gpus, other.gpus)
        and _equal(one.gain, other.gain)
        and _equal(one.pair_gain, other.pair_gain)
    )


def only_asks_otherwise(one: Program, other: Program) -> bool:
    """Whether two programs of one frame are the same but for pushes and floors, as those of one search for a level."""
    return (
        one.value is other.value  # objects
        and one.least is other.least
        and one.capacity is other.capacity
        and one.pair_value is other.pair_value
        and one.pull == other.pull
        and one.level_limit == other.level_limit
        and same_rows(one, other)
    )


def _equal(one: Floats, other: Floats) -> bool:
    return one is other or np.array_equal(one, other)  # objects


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
    blocks = [_block(program, program.gpus[jobs], [layout.job_row[jobs]], [program.gain[jobs]])]
    if len(pairs):
        first, second = program.members[pairs].T
        member_rows = [layout.job_row[first], layout.job_row[second]]
        gains = [program.pair_gain[pairs, 0], program.pair_gain[pairs, 1]]
        blocks.append(_block(program, program.gpus[first], member_rows, gains))
    elif blocks[0][1].all():  # no entry is 0
        rows, values = blocks[0]
        return np.arange(0, values.size + 1, values.shape[1]), rows.reshape(-1), values.reshape(-1)
    sizes = np.concatenate([(values != 0).sum(axis=1) for _, values in blocks])
    rows = np.concatenate([numbers[values != 0] for numbers, values in blocks])
    return np.concatenate([[0], np.cumsum(sizes)]), rows, np.concatenate([v[v != 0] for _, v in blocks])


def _block(program: Program, gpus: Floats, job_rows: list[Ints], gains: list[Floats]) -> tuple[Ints, Floats]:
    """One line per column: its type's row, the time of every job in it, their throughputs."""
    members, types = len(job_rows), program.column_type
    width = 1 + members * rows_per_job(program)
    rows, values = np.empty((len(gpus), len(types), width), dtype=np.int64), np.ones((len(gpus), len(types), width))
    rows[:, :, 0], values[:, :, 0] = types, gpus[:, None]
    for place, row in enumerate(job_rows, start=1):
        rows[:, :, place] = row[:, None]
        if program.levelled:
            rows[:, :, place + members], values[:, :, place + members] = row[:, None] + 1, gains[place - 1]
    return rows.reshape(-1, width), values.reshape(-1, width)


def column_bounds(program: Program, jobs: Ints, pairs: Ints) -> tuple[Floats, Floats]:
    """A column without gain is closed. Open ones need no upper bound: the row of the job's time is one."""
    if not len(pairs):
        return program.least[jobs].ravel(), np.where(program.gain[jobs].ravel() > 0, np.inf, 0.0)
    gains = np.concatenate([program.gain[jobs].ravel(), program.pair_gain[pairs].max(axis=1, initial=0.0).ravel()])
    lower = np.concatenate([program.least[jobs].ravel(), np.zeros(len(pairs) * len(program.column_type))])
    return lower, np.where(gains > 0, np.inf, 0.0)


def row_bounds(program: Program, jobs: Ints) -> tuple[Floats, Floats]:
    """Time at most 1; throughput at least the floor."""
    if program.floor is None:
        return np.full(len(jobs), -np.inf), np.ones(len(jobs))
    lower, upper = np.full(2 * len(jobs), -np.inf), np.full(2 * len(jobs), np.inf)
    lower[1::2], upper[::2] = program.floor[jobs], 1.0
    return lower, upper


def costs(program: Program, jobs: Ints, pairs: Ints) -> Floats:
    """HiGHS minimises."""
    return -np.concatenate([program.value[jobs].ravel(), program.pair_value[pairs].ravel()])
