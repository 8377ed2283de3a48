"""Long poles: jobs that would still run when all else is done, if they were put off any longer.

Least remaining time first is right for the average and wrong for the end: it leaves the longest jobs to the last, where
one of them keeps a whole cluster waiting. With every GPU busy, what is known would be done after
D = Σ GPUs · time left / GPUs of the cluster. A job that needs longer than D ends last unless it runs now. It goes
first then, and only wider gangs that need a small part of its time may take its GPUs. D shrinks while jobs end, so each
long job gets its turn at the latest moment at which it does not prolong the whole. An eighth of the cluster is the most
that long poles get: a wide one held for its length would cost the average more than the end is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sortedcontainers import SortedList

from dally.core.active import ActiveJob
from dally.policies.dally.ends import Ends

URGENT = 1.2  # times D a job needs before it counts: later jobs, which nobody knows yet, will stretch D
SHARE = 1 / 8  # of the GPUs
BRIEF = 1 / 10  # of a pole's time left: a wider gang that needs less may still take its GPUs
WIDER = 1  # times a pole's GPUs; a narrow job finds GPUs elsewhere, and many of them would take the pole's in turn


class LongPoles:
    """Waiting jobs by the time they need, the GPU time they need together, and the poles of the present plan."""

    def __init__(self) -> None:
        self._need: dict[str, tuple[float, int]] = {}
        self._longest = SortedList()
        self._backlog = 0.0
        self._limit = float("inf")
        self._room = 0
        self._running: dict[str, float] = {}

    def queued(self, job: ActiveJob, time: float) -> None:
        self.left_queue(job.id)
        self._need[job.id] = (time, job.gpus)
        self._longest.add((time, job.id))
        self._backlog += time * job.gpus

    def left_queue(self, job_id: str) -> None:
        found = self._need.pop(job_id, None)
        if found is not None:
            self._longest.remove((found[0], job_id))
            self._backlog = self._backlog - found[0] * found[1] if self._need else 0.0

    def begin(self, ends: Ends, now: float, gpus: int, declares: Callable[[ActiveJob], bool]) -> None:
        """A new plan: the poles among the jobs that run and say for how long; a guess is no reason to keep GPUs."""
        self._limit = URGENT * (self._backlog + ends.gpu_time_left(now)) / gpus
        self._room = int(gpus * SHARE)
        self._running = {}
        for end, job in ends.latest():
            if end - now <= self._limit:
                return
            if job.gpus <= self._room and declares(job):
                self._room -= job.gpus
                self._running[job.id] = end - now

    def waiting(self) -> Iterator[str]:
        """Waiting poles, the longest first, as far as there is room; say `started` for each that gets GPUs."""
        for time, job_id in reversed(self._longest):
            if time <= self._limit:
                return
            if self._need[job_id][1] <= self._room:
                yield job_id

    def started(self, job: ActiveJob) -> None:
        self._room -= job.gpus

    def may_lose_gpus(self, job: ActiveJob, to: ActiveJob, need: float) -> bool:
        """Whether a running job may make room for another that needs so long."""
        time = self._running.get(job.id)
        return time is None or (to.gpus > WIDER * job.gpus and need < BRIEF * time)
