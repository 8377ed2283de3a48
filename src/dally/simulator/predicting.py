"""How long a job will take, from jobs that have ended before it came: what a cluster learns of its users by itself.

Online: a job's prediction is made when it arrives, from those that have ended by then, and stays with it (`Job.work`).
Jobs are alike by user, name, account, time limit and size, in several grains: the last two of the same user and name,
the last thirty of the same size, …. Each grain keeps count of how far off it would have been, and of those that know
anything the one that has been nearest lately is believed. Who is like nobody is said to take what its owner declares;
if nothing is declared, nobody knows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from dally.core.job import Job

SHORT, LONG = 2, 30  # jobs looked back at: users repeat themselves, and change
_RECENT = 0.02  # weight of the newest error in what a grain is believed by
_UNPROVEN = 1.5  # error (of the natural logarithm) a grain is taken to have before it has shown any
_LEAST = 1.0  # seconds: shorter jobs are alike


class Grain(NamedTuple):
    """Which jobs count as alike, and how many of them are looked at."""

    name: str
    key: Callable[[Job], Hashable | None]  # None: the job does not say
    last: int


def _of(*fields: str) -> Callable[[Job], Hashable | None]:
    def key(job: Job) -> Hashable | None:
        found = tuple(_declared(job) if field == "limit" else getattr(job, field) for field in fields)
        return None if any(value is None for value in found) else found

    return key


# Limits say little of run times and much of which jobs are alike: who asks for 90 minutes again runs the same again.
_KINDS = (("user", "name", "limit"), ("user", "name", "gpus"), ("user", "name"), ("user", "limit", "gpus"),
          ("user", "limit"), ("user", "gpus"), ("user",), ("tenant", "gpus"), ("limit", "gpus"), ("limit",),
          ("gpus",))  # fmt: skip
GRAINS = tuple(Grain(" and ".join(kind), _of(*kind), last) for kind in _KINDS for last in (SHORT, LONG))


class Calibration(NamedTuple):
    """How predictions compared with what came: factors of the real over the predicted time."""

    jobs: int  # that ended
    predicted: int  # of which something had been predicted
    median: float  # 1: neither too short nor too long on the whole
    low: float  # a tenth were below
    high: float  # a tenth were above
    within_two: float  # share that was off by less than a factor of two
    error: float  # typical factor by which it was off: e to the mean |ln|

    @property
    def text(self) -> str:
        if not self.predicted:
            return f"predicted nothing of {self.jobs:,} jobs that ended"
        return (f"predicted {self.predicted:,} of {self.jobs:,} jobs that ended; real ÷ predicted {self.median:.2g} in "
                f"the median, {self.low:.2g} to {self.high:.2g} for 80 %, within × 2 for {self.within_two:.0%}, off by "
                f"a factor of {self.error:.2g} on average")  # fmt: skip


class Predictor:
    """Hears of every end, in the order of the world, and of nothing that has not happened."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, Hashable], deque[float]] = {}  # logarithms of run times, the newest last
        self._errors = [_UNPROVEN] * len(GRAINS)
        self._said: dict[str, float | None] = {}  # predictions of jobs that have not ended
        self._factors: list[float] = []  # real ÷ predicted, sorted
        self._ended = 0

    def predict(self, job: Job) -> float | None:
        """Seconds at full speed; None where nobody knows."""
        best: tuple[float, float] | None = None
        for number, mean in self._grains(job):
            if best is None or self._errors[number] < best[0]:
                best = self._errors[number], mean
        found = _declared(job) if best is None else math.exp(best[1])
        if found is not None and job.limit is not None:
            found = min(found, job.limit)
        self._said[job.id] = found
        return found

    def ended(self, job: Job, ran: float) -> None:
        """It took so long, at full speed."""
        log = math.log(max(_LEAST, ran))
        for number, mean in self._grains(job):
            self._errors[number] += _RECENT * (abs(log - mean) - self._errors[number])
        for number, grain in enumerate(GRAINS):
            key = grain.key(job)
            if key is not None:
                self._seen.setdefault((number, key), deque(maxlen=grain.last)).append(log)
        said = self._said.pop(job.id, None)
        self._ended += 1
        if said is not None and said > 0:
            factor = max(_LEAST, ran) / max(_LEAST, said)
            self._factors.insert(bisect_left(self._factors, factor), factor)

    def _grains(self, job: Job) -> list[tuple[int, float]]:
        """(grain, mean of the logarithms) of those that have seen jobs like this one."""
        found = []
        for number, grain in enumerate(GRAINS):
            key = grain.key(job)
            seen = None if key is None else self._seen.get((number, key))
            if seen:
                found.append((number, sum(seen) / len(seen)))
        return found

    @property
    def calibration(self) -> Calibration:
        factors, count = self._factors, len(self._factors)
        if not count:
            return Calibration(self._ended, 0, 1.0, 1.0, 1.0, 0.0, 1.0)
        near = sum(0.5 <= factor <= 2.0 for factor in factors) / count
        error = math.exp(sum(abs(math.log(factor)) for factor in factors) / count)
        low, middle, high = (factors[count * tenth // 10] for tenth in (1, 5, 9))
        return Calibration(self._ended, count, middle, low, high, near, error)


def _declared(job: Job) -> float | None:
    return job.limit if job.limit is not None else job.declared_duration
