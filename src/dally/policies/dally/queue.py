"""What is known of waiting jobs: their size and need when they came, and the opening they hope for."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.policies.dally.remembered import QueueMemory, Waits


class Queue:
    """Waiting jobs, the longest last, and the GPU time they need together."""

    __slots__ = ("_memory", "longest", "waits")

    def __init__(self, memory: QueueMemory) -> None:
        self._memory = memory
        self.waits, self.longest = memory.waits, memory.longest  # looked up once: they stay the same objects

    @property
    def backlog(self) -> float:
        """Σ need · GPUs."""
        return self._memory.backlog

    def enqueue(self, job: ActiveJob, size: float, need: float | None) -> None:
        self.forget(job.id)
        self.waits[job.id] = Waits(size, need, job.gpus)
        if need is not None:
            self.longest.add((need, job.id))
            self._memory.backlog += need * job.gpus

    def hope(self, job_id: str, tier: int, now: float, wait: float) -> None:
        """The job begins to wait for GPUs of a tier, unless it does already."""
        before = self.waits.get(job_id)
        if before is not None and before.tier is None:
            self.waits[job_id] = before._replace(tier=tier, since=now, expected=wait)

    def dequeue(self, job_id: str) -> Waits | None:
        """The job is given GPUs; returns what it waited for. A plan in the making may say so: nothing is taken out of
        the table before the job is heard of, since that would cost a copy of it."""
        before = self.waits.get(job_id)
        if before is not None:
            self._take_need(job_id, before)
            self.waits[job_id] = None
        return before

    def forget(self, job_id: str) -> None:
        if job_id in self.waits:
            before = self.waits[job_id]
            del self.waits[job_id]
            if before is not None:
                self._take_need(job_id, before)

    def _take_need(self, job_id: str, waits: Waits) -> None:
        memory = self._memory
        if waits.need is not None:
            self.longest.remove((waits.need, job_id))
            memory.backlog = memory.backlog - waits.need * waits.gpus if len(self.longest) else 0.0
