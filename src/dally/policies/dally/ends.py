"""When running jobs are expected to end: kept in order, changed only when something about a job changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dally.core.active import ActiveJob
from dally.core.memory import Memory, Order, Table


class Expected(NamedTuple):
    """The end expected of a job, the GPUs that come free then, and its number."""

    end: float
    gpus: int
    number: int


class Ends(Memory):
    """Jobs by the end expected of them, and the GPU time they need together, whatever the time is."""

    ends: Table[str, Expected]
    ends_in_order: Order[tuple[float, int, str]]  # end, number of the job, its id
    held: int = 0  # GPUs of these jobs
    held_until: float = 0.0  # Σ GPUs · end, as it was added up

    def expect(self, job: ActiveJob, gpus: int, end: float) -> None:
        job_id, number = job.id, job.number
        held, until = self._without(job_id)
        self.ends[job_id] = Expected(end, gpus, number)
        self.ends_in_order.add((end, number, job_id))
        self.held, self.held_until = held + gpus, until + gpus * end

    def postpone(self, later: Iterable[tuple[str, float]]) -> None:
        """Other ends of jobs that are here, each with as many GPUs as before; `expect` for many."""
        ends, order, until = self.ends, self.ends_in_order, self.held_until
        alone = len(order) == 1
        for job_id, end in later:
            before, gpus, number = ends[job_id]
            order.remove((before, number, job_id))
            order.add((end, number, job_id))
            ends[job_id] = Expected(end, gpus, number)
            until = (0.0 if alone else until - gpus * before) + gpus * end
        self.held_until = until

    def forget_end(self, job_id: str) -> None:
        ends = self.ends
        if job_id in ends:
            self.held, self.held_until = self._without(job_id)
            del ends[job_id]

    def _without(self, job_id: str) -> tuple[int, float]:
        """The sums without a job, which is taken out of the order."""
        before = self.ends.get(job_id)
        if before is None:
            return self.held, self.held_until
        end, gpus, number = before
        order = self.ends_in_order
        order.remove((end, number, job_id))
        return self.held - gpus, self.held_until - gpus * end if order else 0.0

    def overdue(self, now: float) -> list[str]:
        """Jobs that should have ended: somebody has to expect something else of them."""
        order = self.ends_in_order
        return [job_id for _, _, job_id in order.irange(maximum=(now, -1, ""))] if order and order[0][0] < now else []

    def gpu_time_left(self, now: float) -> float:
        return self.held_until - self.held * now

    def soonest(self) -> Iterator[tuple[float, str]]:
        for end, _, job_id in self.ends_in_order:
            yield end, job_id

    def latest(self) -> Iterator[tuple[float, str]]:
        for end, _, job_id in reversed(self.ends_in_order):
            yield end, job_id
