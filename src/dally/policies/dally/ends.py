"""When running jobs are expected to end: kept in order, changed only when something about a job changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dally.core.active import ActiveJob
from dally.policies.dally.remembered import EndsMemory, Expected


class Ends:
    """Jobs by the end expected of them, and the GPU time they need together, whatever the time is."""

    __slots__ = ("_memory", "in_order", "of")

    def __init__(self, memory: EndsMemory) -> None:
        self._memory = memory
        self.of, self.in_order = memory.ends, memory.ends_in_order  # looked up once: they stay the same objects

    def expect(self, job: ActiveJob, gpus: int, end: float) -> None:
        memory, job_id, number = self._memory, job.id, job.number
        held, until = self._without(job_id)
        self.of[job_id] = Expected(end, gpus, number)
        self.in_order.add((end, number, job_id))
        memory.held, memory.held_until = held + gpus, until + gpus * end

    def postpone(self, later: Iterable[tuple[str, float]]) -> None:
        """Other ends of jobs that are here, each with as many GPUs as before; `expect` for many."""
        ends, order, until = self.of, self.in_order, self._memory.held_until
        alone = len(order) == 1
        for job_id, end in later:
            before, gpus, number = ends[job_id]
            order.remove((before, number, job_id))
            order.add((end, number, job_id))
            ends[job_id] = Expected(end, gpus, number)
            until = (0.0 if alone else until - gpus * before) + gpus * end
        self._memory.held_until = until

    def forget(self, job_id: str) -> None:
        if job_id in self.of:
            self._memory.held, self._memory.held_until = self._without(job_id)
            del self.of[job_id]

    def _without(self, job_id: str) -> tuple[int, float]:
        """The sums without a job, which is taken out of the order."""
        before, memory = self.of.get(job_id), self._memory
        if before is None:
            return memory.held, memory.held_until
        end, gpus, number = before
        self.in_order.remove((end, number, job_id))
        return memory.held - gpus, memory.held_until - gpus * end if len(self.in_order) else 0.0

    def overdue(self, now: float) -> list[str]:
        """Jobs that should have ended: somebody has to expect something else of them."""
        order = self.in_order
        if not len(order) or order[0][0] >= now:
            return []
        return [job_id for _, _, job_id in order.irange(maximum=(now, -1, ""))]

    def gpu_time_left(self, now: float) -> float:
        return self._memory.held_until - self._memory.held * now

    def soonest(self) -> Iterator[tuple[float, str]]:
        for end, _, job_id in self.in_order:
            yield end, job_id

    def latest(self) -> Iterator[tuple[float, str]]:
        for end, _, job_id in reversed(self.in_order):
            yield end, job_id
