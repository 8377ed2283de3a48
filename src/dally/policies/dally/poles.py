"""Long poles: jobs that would still run when all else is done, if they were put off any longer.

Least remaining time first is right for the average and wrong for the end: it leaves the longest jobs to the last, where
one of them keeps a whole cluster waiting. With every GPU busy, what is known would be done after
D = Σ GPUs · time left / GPUs of the cluster. A job that needs longer than D ends last unless it runs now. It goes
first then, and only wider gangs that need a small part of its time may take its GPUs. D shrinks while jobs end, so each
long job gets its turn at the latest moment at which it does not prolong the whole. An eighth of the cluster is the most
that long poles get: a wide one held for its length would cost the average more than the end is worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from dally.core.active import ActiveJob
from dally.policies.dally.ends import Ends
from dally.policies.dally.queue import Queue

URGENT: Final = 1.2  # times D a job needs before it counts: later jobs, which nobody knows yet, will stretch D
SHARE: Final = 1 / 8  # of the GPUs
BRIEF: Final = 1 / 10  # of a pole's time left: a wider gang that needs less may still take its GPUs
WIDER: Final = 1  # times a pole's GPUs; a narrow job finds GPUs elsewhere, and many would take the pole's in turn


class LongPoles:
    """The poles of one plan: among the jobs that wait, and among those that run and say for how long. A guess is no
    reason to keep GPUs."""

    def __init__(self, queue: Queue, ends: Ends, now: float, gpus: int, declares: Callable[[str], bool],
                 *, nobody_comes: bool) -> None:  # fmt: skip
        self._queue, self._ends, self._now, self._declares = queue, ends, now, declares
        self._limit = URGENT * (queue.backlog + ends.gpu_time_left(now)) / gpus if nobody_comes else math.inf
        self._share, self._given = int(gpus * SHARE), 0
        self._poles: tuple[dict[str, float], int] | None = None

    @property
    def looked(self) -> bool:
        """Whether somebody has asked who of the running ones are poles."""
        return self._poles is not None

    def _running(self) -> tuple[dict[str, float], int]:
        """Running poles with the time they have left, and the GPUs they leave to others. The first who asks does so
        before the plan has changed anything."""
        if self._poles is None:
            self._poles = self._look()
        return self._poles

    def _look(self) -> tuple[dict[str, float], int]:
        found: dict[str, float] = {}
        room = self._share
        for end, job_id in self._ends.latest():
            if end - self._now <= self._limit or room <= 0:
                break
            gpus = self._ends.of[job_id].gpus
            if gpus <= room and self._declares(job_id):
                room -= gpus
                found[job_id] = end - self._now
        return found, room

    def waiting(self) -> Iterator[str]:
        """Waiting poles, the longest first, as far as there is room; say `started` for each that gets GPUs."""
        for time, job_id in reversed(self._queue.longest):
            if time <= self._limit:
                return
            waits = self._queue.waits[job_id]
            if waits is not None and waits.gpus <= self._running()[1] - self._given:
                yield job_id

    def started(self, job: ActiveJob) -> None:
        self._given += job.gpus

    def runs(self) -> bool:
        """Whether any pole does."""
        return bool(self._running()[0])

    def may_lose_gpus(self, job: ActiveJob, to: ActiveJob, need: float) -> bool:
        """Whether a running job may make room for another that needs so long."""
        time = self._running()[0].get(job.id)
        return time is None or (to.gpus > WIDER * job.gpus and need < BRIEF * time)
