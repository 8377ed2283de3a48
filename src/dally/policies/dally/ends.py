"""When running jobs are expected to end: kept in order, changed only when something about a job changes."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList

from dally.core.active import ActiveJob
from dally.core.placement import Placement


class Ends:
    """Jobs by the end expected of them, and the GPU time they need together, whatever the time is."""

    def __init__(self) -> None:
        self._end: dict[str, tuple[float, ActiveJob, Placement]] = {}
        self._order = SortedList()  # (end, number of the job, its id)
        self._gpus = 0
        self._gpus_end = 0.0  # Σ GPUs · end

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._end

    def expect(self, job: ActiveJob, placement: Placement, end: float) -> None:
        self.forget(job)
        self._end[job.id] = (end, job, placement)
        self._order.add((end, job.number, job.id))
        self._gpus += placement.gpus
        self._gpus_end += placement.gpus * end

    def forget(self, job: ActiveJob) -> None:
        found = self._end.pop(job.id, None)
        if found is not None:
            end, _, placement = found
            self._order.remove((end, job.number, job.id))
            self._gpus -= placement.gpus
            self._gpus_end = self._gpus_end - placement.gpus * end if self._end else 0.0

    def overdue(self, now: float) -> list[tuple[ActiveJob, Placement]]:
        """Jobs that should have ended: somebody has to expect something else of them."""
        return [self._end[job_id][1:] for _, _, job_id in self._order.irange(maximum=(now, -1, ""))]

    def gpu_time_left(self, now: float) -> float:
        return self._gpus_end - self._gpus * now

    def soonest(self) -> Iterator[tuple[float, Placement]]:
        for end, _, job_id in self._order:
            yield end, self._end[job_id][2]

    def latest(self) -> Iterator[tuple[float, ActiveJob]]:
        for end, _, job_id in reversed(self._order):
            yield end, self._end[job_id][1]
