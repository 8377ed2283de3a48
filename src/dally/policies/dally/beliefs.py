"""How long jobs take, from what they declare and what declarations were worth so far, or from the jobs before them.

Total work is taken to be log-normal around what the job declares, with the spread that ended jobs had around their
own declarations: none as long as everybody was right. What orders jobs is then the Gittins index (Gittins 1979;
Tiresias, NSDI'19, section 3.2) in the form of a size: min over Δ of E[min(T − a, Δ) | T > a] / P(T − a ≤ Δ | T > a),
the time to spend per job that ends. It is the work left if declarations are exact.

Where nothing is declared, least attained service orders jobs (a Gittins index of the ended jobs was tried and was
worse: those that end first are the short ones), and what is left is expected from the work of ended jobs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from dally.core.memory import Memory, Table
from dally.core.plan import Demand

_EXACT = 0.02  # a spread below this is rounding
_OVERDUE = 0.3  # spread assumed for a job that outlasts its declaration where all others kept theirs
_FEW = 5  # ended jobs that the mean of all demands counts for against those of one demand
_POINTS = 160
_ROOM, _LITTLE = 1.25, 60.0  # times and seconds that an upper bound of a size leaves it to grow
_FROM, _TO = -4.0, 6.0  # standard deviations covered by the table


class Left(NamedTuple):
    """What is left of a job: by its index, and in the mean."""

    size: float
    mean: float


class Beliefs(Memory):
    """Learns from every job that finishes."""

    declared: int = 0  # finished jobs that declared their work
    squared_errors: float = 0.0  # of the logarithms of what they declared
    finished: int = 0
    log_work: float = 0.0  # Σ logarithm of the work of finished jobs
    log_work_squared: float = 0.0
    finished_by_demand: Table[Demand, tuple[int, float]]  # jobs of a demand, Σ logarithm of their work

    def learn(self, demand: Demand, declared: float | None, work: float) -> None:
        if work <= 0:
            return
        log = math.log(work)
        count, total = self.finished_by_demand.get(demand, (0, 0.0))
        self.finished_by_demand[demand] = (count + 1, total + log)
        self.finished += 1
        self.log_work += log
        self.log_work_squared += log * log
        if declared is not None and declared > 0:
            self.declared += 1
            self.squared_errors += (log - math.log(declared)) ** 2

    @property
    def spread(self) -> float:
        """Of declarations around the truth: root of the mean squared log error."""
        return math.sqrt(self.squared_errors / self.declared) if self.declared else 0.0

    def left(self, demand: Demand, declared: float | None, done: float) -> Left:
        if declared is None:
            return self._unknown(demand, done)
        spread = math.sqrt(self.squared_errors / self.declared) if self.declared else 0.0  # asked for very often
        if spread < _EXACT:
            if done < declared:
                return Left(declared - done, declared - done)
            spread = _OVERDUE
        return _look_up(_steps(spread), max(declared, 1.0), done)

    def mean_left(self, demand: Demand, declared: float | None, done: float) -> float:
        """`left(…).mean` alone: asked for very often."""
        if declared is not None:
            return self.left(demand, declared, done).mean
        if self.finished < _FEW:
            return done
        count, total = self.finished_by_demand.get(demand, (0, 0.0))
        spread, median = _of_ended(self.finished, self.log_work, self.log_work_squared, count, total)
        times, _, means = _table(spread)
        return _between(times, means, median, done)

    def size(self, declared: float | None, done: float) -> float:
        """`left(…).size` alone: every running job is asked for it where somebody looks for GPUs to take."""
        if declared is None:
            return done  # least attained service
        spread = math.sqrt(self.squared_errors / self.declared) if self.declared else 0.0
        if spread < _EXACT:
            if done < declared:
                return declared - done
            spread = _OVERDUE
        times, sizes, _ = _table(_steps(spread))
        return _between(times, sizes, max(declared, 1.0), done)

    @property
    def basis(self) -> float:
        """What `size` and `most` go by besides the job: where it is another one, so may be what they say."""
        spread = self.spread
        return _steps(spread) if spread >= _EXACT else 0.0

    def most(self, declared: float | None, done: float, speed: float) -> tuple[float, float]:
        """What `size` is at most while the job goes on at this speed, and for how many seconds, on the same basis."""
        if declared is None:
            rise, size = 1.0, done
        else:
            spread = self.spread
            if spread < _EXACT:
                if done < declared:
                    return declared - done, (declared - done) / speed if speed > 0 else math.inf
                spread = _OVERDUE
            rise, size = _steepest(_steps(spread)), _look_up(_steps(spread), max(declared, 1.0), done).size
        most = _ROOM * size + _LITTLE
        return most, (most - size) / (rise * speed) if rise * speed > 0 else math.inf

    def _unknown(self, demand: Demand, done: float) -> Left:
        """Least attained service, and as long again as it has run, or what the ended jobs say."""
        return Left(done, self.mean_left(demand, None, done))


@lru_cache(maxsize=1024)
def _of_ended(finished: int, log_work: float, log_work_squared: float, count: int, total: float) -> tuple[float, float]:
    """Spread, in steps, and median of the work of a demand, from all ended jobs and those of it: asked for very often,
    and another one only when a job has ended."""
    mean = log_work / finished
    median = math.exp((total + _FEW * mean) / (count + _FEW))
    spread = math.sqrt(max(log_work_squared / finished - mean * mean, 0.0))
    return _steps(max(spread, _OVERDUE)), median


def _steps(spread: float) -> float:
    """In steps of a twentieth, so that a table serves many jobs."""
    return max(1, round(spread * 20)) / 20


def _look_up(spread: float, median: float, done: float) -> Left:
    times, sizes, means = _table(spread)
    return Left(_between(times, sizes, median, done), _between(times, means, median, done))


def _between(times: list[float], values: list[float], median: float, done: float) -> float:
    """What a table says of attained work, for a median of 1, as a line between its points."""
    at = done / median
    if at <= times[0]:
        gap = times[0] - at
        return median * (values[0] + gap)
    index = bisect_right(times, at) - 1
    if index >= len(times) - 1:
        grown = at / times[-1]
        return median * values[-1] * grown
    part = (at - times[index]) / (times[index + 1] - times[index])
    return median * (values[index] + part * (values[index + 1] - values[index]))


@lru_cache(maxsize=256)
def _table(spread: float) -> tuple[list[float], list[float], list[float]]:
    """For a median of 1: attained work, the index as a size, and the mean work left."""
    import numpy as np

    z = np.linspace(_FROM, _TO, _POINTS)
    times = np.exp(spread * z)
    above = np.array([0.5 * math.erfc(x / math.sqrt(2.0)) for x in z])  # P(T > t)
    spent = np.concatenate(([0.0], np.cumsum(0.5 * (above[1:] + above[:-1]) * np.diff(times))))  # ∫ P(T > t) dt
    sizes, means = [], []
    for i in range(_POINTS - 1):
        sizes.append(float(np.min((spent[i + 1 :] - spent[i]) / (above[i] - above[i + 1 :]))))
        means.append(float((spent[-1] - spent[i]) / above[i]))
    keep = int(_POINTS * 0.85)  # the last points see too little of the tail behind them
    return times[:keep].tolist(), sizes[:keep], means[:keep]


@lru_cache(maxsize=256)
def _steepest(spread: float) -> float:
    """By how much the index as a size grows with attained work, at most; it is a line between the points."""
    times, sizes, _ = _table(spread)
    rises = [(sizes[i + 1] - sizes[i]) / (times[i + 1] - times[i]) for i in range(len(times) - 1)]
    return max(0.0, sizes[-1] / times[-1], *rises)
