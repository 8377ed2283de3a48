"""How much work is left of a job whose work is log-normal, from tables: its Gittins index as a size, and the mean.

Nothing here is remembered: it follows from a spread, a median and the work done (`beliefs` has all three).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

EXACT: Final = 0.02  # a spread below this is rounding
OVERDUE: Final = 0.3  # spread assumed for a job that outlasts its declaration where all others kept theirs
FEW: Final = 5  # ended jobs that the mean of all demands counts for against those of one demand
_POINTS: Final = 160
_KEPT: Final = int(_POINTS * 0.85)  # the last points see too little of the tail behind them
_FROM, _TO = -4.0, 6.0  # standard deviations covered by the table
_ROOM: Final = 1.5  # times that an upper bound of a size leaves it to grow …
_LITTLE: Final = 120.0  # … and seconds


class Left(NamedTuple):
    """What is left of a job: by its index, and in the mean."""

    size: float
    mean: float


def left_of_declared(spread: float, declared: float, done: float) -> Left:
    """Of a job that declares its work, where declarations have this spread around the truth."""
    if spread < EXACT:
        if done < declared:
            return Left(declared - done, declared - done)
        spread = OVERDUE
    times, sizes, means = table(steps(spread))
    median = max(declared, 1.0)
    return Left(_between(times, sizes, median, done), _between(times, means, median, done))


def mean_of_declared(spread: float, declared: float, done: float) -> float:
    """`left_of_declared(…).mean` alone."""
    if spread < EXACT:
        if done < declared:
            return declared - done
        spread = OVERDUE
    times, means = mean_table(steps(spread))
    return _between(times, means, max(declared, 1.0), done)


def size_of_declared(spread: float, declared: float, done: float) -> float:
    """`left_of_declared(…).size` alone."""
    if spread < EXACT:
        if done < declared:
            return declared - done
        spread = OVERDUE
    times, sizes, _ = table(steps(spread))
    return _between(times, sizes, max(declared, 1.0), done)


class AllEnded:
    """What jobs that have ended say of any demand: the mean of the logarithms of their work, and how much is left, for
    a median of 1."""

    __slots__ = ("mean", "means", "times")

    def __init__(self, finished: int, log_work: float, log_work_squared: float) -> None:
        self.mean = mean = log_work / finished
        spread = math.sqrt(max(log_work_squared / finished - mean * mean, 0.0))
        self.times, self.means = mean_table(steps(max(spread, OVERDUE)))


class Ended:
    """Mean work left of the jobs of a demand, by those that have ended: all of them, and those of the same demand. It
    is another one only when a job has ended, and asked very often."""

    __slots__ = ("_means", "_median", "_times")

    def __init__(self, every: AllEnded, count: int, total: float) -> None:
        self._median = math.exp((total + FEW * every.mean) / (count + FEW))
        self._times, self._means = every.times, every.means

    def left(self, done: float) -> float:
        return _between(self._times, self._means, self._median, done)


def most_of(spread: float, declared: float | None, done: float, speed: float) -> tuple[float, float]:
    """What orders a job is at most so much while it goes on at this speed, and for how many seconds."""
    if declared is None:
        rise, size = 1.0, done
    else:
        if spread < EXACT:
            if done < declared:
                return declared - done, (declared - done) / speed if speed > 0 else math.inf
            spread = OVERDUE
        rise, size = steepest(steps(spread)), size_of_declared(spread, declared, done)
    most = _ROOM * size + _LITTLE
    return most, (most - size) / (rise * speed) if rise * speed > 0 else math.inf


def steps(spread: float) -> float:
    """In steps of a twentieth, so that a table serves many jobs."""
    return max(1, round(spread * 20)) / 20


def _before(times: list[float], at: float) -> int:
    """The last point that is not behind: `bisect_right` of numbers, less 1."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if at < times[middle]:
            high = middle
        else:
            low = middle + 1
    return low - 1


def _between(times: list[float], values: list[float], median: float, done: float) -> float:
    """What a table says of attained work, for a median of 1, as a line between its points."""
    at = done / median
    if at <= times[0]:
        gap = times[0] - at
        return median * (values[0] + gap)
    index = _before(times, at)
    if index >= len(times) - 1:
        grown = at / times[-1]
        return median * values[-1] * grown
    part = (at - times[index]) / (times[index + 1] - times[index])
    return median * (values[index] + part * (values[index + 1] - values[index]))


@lru_cache(maxsize=256)
def table(spread: float) -> tuple[list[float], list[float], list[float]]:
    """For a median of 1: attained work, the index as a size, and the mean work left."""
    import numpy as np

    _, above, spent = _curve(spread)
    # from each point to all behind it; the quotients of the others mean nothing, and may be 0 / 0
    with np.errstate(divide="ignore", invalid="ignore"):
        each = (spent[None, :] - spent[:, None]) / (above[:, None] - above[None, :])
    each[np.tri(_POINTS, dtype=bool)] = math.inf
    times, left = mean_table(spread)
    return times, each.min(axis=1)[:_KEPT].tolist(), left


@lru_cache(maxsize=256)
def mean_table(spread: float) -> tuple[list[float], list[float]]:
    """The first and the last of these, without the one that compares every point with every other."""
    times, above, spent = _curve(spread)
    return times[:_KEPT].tolist(), ((spent[-1] - spent) / above)[:_KEPT].tolist()


def _curve(spread: float) -> tuple[Any, Any, Any]:
    """Points of attained work t, P(T > t) there, and ∫ P(T > t) dt up to there."""
    import numpy as np

    z, above = _normal()
    times = np.exp(spread * z)
    return times, above, np.concatenate(([0.0], np.cumsum(0.5 * (above[1:] + above[:-1]) * np.diff(times))))


@lru_cache(maxsize=1)
def _normal() -> tuple[Any, Any]:
    """The points in standard deviations, and how likely more than that is."""
    import numpy as np

    z = np.linspace(_FROM, _TO, _POINTS)
    return z, np.array([0.5 * math.erfc(x / math.sqrt(2.0)) for x in z])


@lru_cache(maxsize=256)
def steepest(spread: float) -> float:
    """By how much the index as a size grows with attained work, at most; it is a line between the points."""
    times, sizes, _ = table(spread)
    rises = [(sizes[i + 1] - sizes[i]) / (times[i + 1] - times[i]) for i in range(len(times) - 1)]
    return max(0.0, sizes[-1] / times[-1], *rises)
