"""Differences with their intervals: paired by seed, bootstrapped, and called noise where they may be none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from dally.core.records import dataclass

CONFIDENCE = 0.95
RESAMPLES = 20_000
FEWEST_SEEDS = 5  # below this resamples cannot reach far enough out: three normal values are covered 74 % of the time


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure over the baseline's, over the seeds both have: below 1 is less."""

    seeds: int
    value: float  # geometric mean
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """`less`, `more`, `noise` where the interval holds 1, `too few seeds` where there is none, `same`."""
        if self.low is None or self.high is None:
            return "too few seeds"
        if self.low == self.high == 1.0:
            return "same"
        if self.low <= 1.0 <= self.high:
            return "noise"
        return "less" if self.high < 1.0 else "more"


def paired(figures: Mapping[int, float], baseline: Mapping[int, float]) -> Ratio | None:
    """The ratio over the seeds that both have; None where they have none, or where a figure is 0 and no ratio."""
    common = sorted(figures.keys() & baseline.keys())
    pairs = [(figures[seed], baseline[seed]) for seed in common]
    if not pairs or any(not (a > 0 and b > 0) for a, b in pairs):
        return None
    logs = np.log([a / b for a, b in pairs])
    interval = bootstrap(logs.tolist())
    low, high = (None, None) if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    return Ratio(len(pairs), math.exp(float(logs.mean())), low, high)


def bootstrap(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Interval of the mean: the expanded percentile bootstrap (Hesterberg, The American Statistician 69(4), 2015).

    The plain percentile interval is too short for few values: its spread is that of n, not of n − 1, and it is normal
    where Student's t is due. So the percentiles are taken further out, until both are made up for. The resamples are
    drawn from a fixed seed: the same values give the same interval.
    """
    count = len(values)
    if count < FEWEST_SEEDS:
        return None
    data = np.asarray(values, dtype=np.float64)
    if float(data.max()) == float(data.min()):
        return float(data[0]), float(data[0])
    tail = _expanded_tail(count, confidence)
    draws = np.random.Generator(np.random.PCG64(20150401)).integers(0, count, size=(RESAMPLES, count))
    means = data[draws].mean(axis=1)
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


@lru_cache(maxsize=256)
def _expanded_tail(count: int, confidence: float) -> float:
    """α′/2 = Φ(−√(n/(n−1)) · t(1−α/2, n−1))."""
    t = student_quantile(0.5 + confidence / 2, count - 1)
    z = math.sqrt(count / (count - 1)) * t
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def student_quantile(probability: float, freedom: int) -> float:
    """Student's t, by bisection on its integral: a table would do, but this has no gaps."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def above_zero(x: float) -> float:
        # x = √freedom · tan(θ) makes the range finite, however heavy the tails
        theta = np.linspace(0.0, math.atan(x / math.sqrt(freedom)), 4001)
        density = scale * math.sqrt(freedom) * np.cos(theta) ** (freedom - 1)
        return float(np.trapezoid(density, theta))

    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if above_zero(middle) < probability - 0.5 else (low, middle)
    return (low + high) / 2
