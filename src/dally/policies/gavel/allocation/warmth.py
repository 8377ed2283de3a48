"""Where the last allocation ended, as plain data: the next one starts there.

A simplex method started from the last basis needs a few steps instead of hundreds, and where many allocations are
optimal it stays near the last one. So which optimum is found depends on it, and it must be kept by whoever wants the
same answer again: in words, not inside a solver.
"""

from __future__ import annotations

from typing import NamedTuple

Statuses = str  # one letter per column and row: see `solver`


class Basis(NamedTuple):
    """Of one model: which columns and rows are basic, at which bound the others are."""

    frame: tuple[int, ...]  # rows per job, GPU types, then the type of every column
    level: Statuses
    kinds: Statuses
    jobs: dict[str, Statuses]  # by the row's name: its columns, then its rows
    pairs: dict[str, Statuses]


class Warmth(NamedTuple):
    guess: float | None = None  # where a search for a level ended
    basis: Basis | None = None
    beside: Basis | None = None  # of the second model, for an objective that asks two kinds of question


COLD = Warmth()
