"""Throughputs nobody has measured, completed from those that were: low-rank matrix completion (sections 3.3 and
6).

Rows are job types, columns ways to run them (gang size and GPU type, or beside some other job type). Speeds
multiply: a GPU twice as fast is about twice as fast for every job, up to what kind of job it is. So the logarithms
of the rates are nearly of low rank: a level per row, a level per column, and a few patterns,

    log T[m, j] ≈ a_m + b_j + u_m · v_j,

fitted to the known entries by alternating ridge regressions. How sure an estimate is comes from hiding known
entries and predicting them: the spread of those errors, in logarithms, is the standard error of an unknown entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Way = tuple[int, int]  # gang size, and the column of the allocation

SMOOTHING = 0.5  # of a new measurement against the old value; released code: EMA with 0.5
RANK, RIDGE = 2, 0.3  # the best of a few on Gavel's own table, by hiding entries (docs/gavel.md)
_FOLDS = 10
_SWEEPS = 30


class Estimate(NamedTuple):
    """A rate and how sure it is: with 95 % it lies between `low` and `high`."""

    rate: float
    low: float
    high: float
    measured: bool


def complete(matrix: Floats, rank: int = RANK, ridge: float = RIDGE) -> Floats:
    """The matrix of positive rates with its unknown entries (NaN) filled; known ones stay as they are.

    A row or column without any entry gets the level of the others.
    """
    known = np.isfinite(matrix)
    if not known.any():
        return np.ones_like(matrix)
    logs = np.where(known, np.log(np.where(known, matrix, 1.0)), 0.0)
    rows, columns = matrix.shape
    level = logs[known].mean()
    row, column = np.zeros(rows), np.zeros(columns)
    # patterns start from fixed directions, so that the same entries give the same answer
    left = np.cos(np.outer(np.arange(rows) + 1.0, np.arange(rank) + 1.0)) * 0.1
    right = np.sin(np.outer(np.arange(columns) + 1.0, np.arange(rank) + 1.0)) * 0.1
    for _ in range(_SWEEPS):
        rest = np.where(known, logs - level - column - left @ right.T, 0.0)
        row = rest.sum(axis=1) / (known.sum(axis=1) + 1e-3)
        rest = np.where(known, logs - level - row[:, None] - left @ right.T, 0.0)
        column = rest.sum(axis=0) / (known.sum(axis=0) + 1e-3)
        rest = logs - level - row[:, None] - column
        left = _regress(rest, known, right, ridge)
        right = _regress(rest.T, known.T, left, ridge)
    guess = np.exp(level + row[:, None] + column + left @ right.T)
    filled: Floats = np.where(known, matrix, guess)
    return filled


def _regress(rest: Floats, known: NDArray[np.bool_], basis: Floats, ridge: float) -> Floats:
    """For every row the pattern weights that explain its known entries best."""
    weights = known.astype(float)
    gram = np.einsum("ij,ja,jb->iab", weights, basis, basis) + ridge * np.eye(basis.shape[1])
    right = np.einsum("ij,ja->ia", weights * rest, basis)
    found: Floats = np.linalg.solve(gram, right[:, :, None])[:, :, 0]
    return found


def spread(matrix: Floats, rank: int = RANK, ridge: float = RIDGE) -> float:
    """Standard error of a filled entry, in logarithms: known entries are hidden a tenth at a time and predicted."""
    places = np.argwhere(np.isfinite(matrix))
    if len(places) < 4:
        return float("inf")
    folds = min(_FOLDS, len(places))
    shuffled = places[np.random.default_rng(0).permutation(len(places))]
    errors = []
    for fold in range(folds):
        hidden = shuffled[fold::folds]
        partial = matrix.copy()
        partial[hidden[:, 0], hidden[:, 1]] = np.nan
        filled = complete(partial, rank, ridge)
        errors.append(np.log(filled[hidden[:, 0], hidden[:, 1]] / matrix[hidden[:, 0], hidden[:, 1]]))
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


class Measured(NamedTuple):
    """The rate at which jobs of a type ran in one way."""

    kind: str | None
    way: Way
    rate: float


class Estimator:
    """Learns rates by job type and way to run as they are measured, and guesses the rest. All it knows is what was
    `measured`, in the order of the first measurements."""

    def __init__(self, measured: tuple[Measured, ...] = ()) -> None:
        self._measured: tuple[Measured, ...] | None = measured
        self._order: dict[tuple[str | None, Way], None] = {}
        self._rates: dict[str | None, dict[Way, float]] = {}
        self._columns: dict[Way, int] = {}
        self._filled: tuple[dict[str | None, int], Floats] | None = None
        self._spread: float | None = None
        self._answers: dict[tuple[str | None, tuple[Way, ...]], tuple[float, ...]] = {}
        for kind, way, rate in measured:
            self._put(kind, way, rate)

    @property
    def measured(self) -> tuple[Measured, ...]:
        """The very same tuple as long as nothing has changed."""
        if self._measured is None:
            self._measured = tuple(Measured(kind, way, self._rates[kind][way]) for kind, way in self._order)
        return self._measured

    def observe(self, kind: str | None, way: Way, rate: float) -> None:
        """One measurement: the first counts whole, later ones half against what was believed."""
        if not 0 < rate < float("inf"):
            return
        old = self._rates.get(kind, {}).get(way)
        new = rate if old is None else SMOOTHING * rate + (1.0 - SMOOTHING) * old
        if old is None or abs(new - old) > 1e-3 * old:
            self._put(kind, way, new)
            self._measured = self._filled = self._spread = None
            self._answers = {}

    def _put(self, kind: str | None, way: Way, rate: float) -> None:
        self._order[kind, way] = None
        self._columns.setdefault(way, len(self._columns))
        self._rates.setdefault(kind, {})[way] = rate

    def rates(self, kind: str | None, ways: tuple[Way, ...]) -> tuple[float, ...]:
        """Best guess for each way to run; a job type never seen follows the others' pattern, a way never seen their
        level."""
        found = self._answers.get((kind, ways))
        if found is None:
            found = self._answers[kind, ways] = self._guess(kind, ways)
        return found

    def _guess(self, kind: str | None, ways: tuple[Way, ...]) -> tuple[float, ...]:
        places, filled = self._complete()
        row, measured = filled[places.get(kind, len(places))], self._rates.get(kind, {})
        unseen = float(np.exp(np.log(row).mean()))
        return tuple(measured[way] if way in measured else
                     float(row[self._columns[way]]) if way in self._columns else unseen for way in ways)  # fmt: skip

    def estimates(self, kind: str | None, ways: tuple[Way, ...]) -> Sequence[Estimate]:
        """The same with intervals: what was measured is taken as it is."""
        if self._spread is None:
            self._spread = spread(self._matrix()[:-1]) if self._rates else float("inf")
        factor = math.exp(min(1.96 * self._spread, 700.0))
        measured = self._rates.get(kind, {})
        return [Estimate(rate, rate, rate, True) if way in measured else
                Estimate(rate, rate / factor, rate * factor, False)
                for rate, way in zip(self.rates(kind, ways), ways, strict=True)]  # fmt: skip

    def _matrix(self) -> Floats:
        """Job types × ways, and a last row of nothing known."""
        matrix = np.full((len(self._rates) + 1, max(1, len(self._columns))), math.nan)
        for row, rates in enumerate(self._rates.values()):
            for way, rate in rates.items():
                matrix[row, self._columns[way]] = rate
        return matrix

    def _complete(self) -> tuple[dict[str | None, int], Floats]:
        if self._filled is None:
            self._filled = {kind: row for row, kind in enumerate(self._rates)}, complete(self._matrix())
        return self._filled
