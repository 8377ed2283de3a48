"""Chance for synthesisers: one independent stream per column, quantile tables, and two linked columns.

Each column draws from a stream of its own, so that adding a column or asking for more jobs leaves what was drawn
before as it was: the first thousand jobs of a longer trace are the jobs of the shorter one.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Streams:
    """Random streams by name, all from one seed."""

    seed: int

    def __getitem__(self, column: str) -> np.random.Generator:
        sequence = np.random.SeedSequence(self.seed, spawn_key=(crc32(column.encode()),))
        return np.random.Generator(np.random.PCG64(sequence))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution as measured points of its quantile function, joined by straight lines.

    `log`: join the logarithms, as suits durations that span six powers of ten.
    """

    points: tuple[tuple[float, float], ...]  # (probability, value), both rising
    log: bool = True

    def at(self, probability: Floats) -> Floats:
        p, v = (np.array(column) for column in zip(*self.points, strict=True))
        if self.log:
            return np.asarray(np.exp(np.interp(probability, p, np.log(v))))
        return np.asarray(np.interp(probability, p, v))


@dataclass(frozen=True, slots=True)
class Shares:
    """A discrete distribution: values with weights, in rising order of value where order matters."""

    values: tuple[int, ...]
    weights: tuple[float, ...]

    def at(self, probability: Floats) -> Ints:
        return np.array(self.values, dtype=np.int64)[self.index_at(probability)]

    def index_at(self, probability: Floats) -> Ints:
        edges = np.cumsum(self.weights) / np.sum(self.weights)
        return np.minimum(np.searchsorted(edges, probability, side="right"), len(edges) - 1).astype(np.int64)

    def above_one(self) -> Shares:
        """The same distribution among values above 1: multi-GPU jobs only."""
        kept = [(v, w) for v, w in zip(self.values, self.weights, strict=True) if v > 1]
        return Shares(tuple(v for v, _ in kept), tuple(w for _, w in kept))

    def at_most_one(self) -> float:
        """Probability of a value of at most 1."""
        low = sum(w for v, w in zip(self.values, self.weights, strict=True) if v <= 1)
        return low / sum(self.weights)


def normal_cdf(z: Floats) -> Floats:
    """Φ(z) to 1.5e-7, by the rational approximation 7.1.26 of Abramowitz and Stegun."""
    x = np.abs(z) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper = 0.5 * poly * np.exp(-x * x)
    return np.asarray(np.where(z >= 0, 1.0 - upper, upper))


def linked(streams: Streams, jobs: int, correlation: float, block: str = "") -> tuple[Floats, Floats]:
    """Two columns of uniform numbers, each uniform by itself, tied by a Gaussian copula.

    It lets demand and duration keep their published distributions while larger jobs run longer.
    """
    first = streams["demand" + block].standard_normal(jobs)
    own = streams["duration" + block].standard_normal(jobs)
    second = correlation * first + np.sqrt(1.0 - correlation**2) * own
    return normal_cdf(first), normal_cdf(second)


def linked_above(streams: Streams, jobs: int, correlation: float, above: float) -> tuple[Floats, Floats]:
    """The same two columns given that the first exceeds `above`, by rejection in blocks of fixed size."""
    first, second, found, block = [], [], 0, 0
    while found < jobs:
        sizes, lengths = linked(streams, 65536, correlation, f"-{block}")
        kept = sizes > above
        first.append(sizes[kept])
        second.append(lengths[kept])
        found += int(kept.sum())
        block += 1
    return np.concatenate(first)[:jobs], np.concatenate(second)[:jobs]
