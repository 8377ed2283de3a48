"""A plan in the making: each decision is tried on the free GPUs and on the groups of jobs at once."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Reshare, Resize, Start
from dally.core.policy import View
from dally.core.ranking import Bucket
from dally.core.sharing import Share
from dally.policies.gandiva.memory import GandivaMemory
from dally.policies.gandiva.ready import Ready
from dally.policies.gandiva.servers import Servers


class Moment:
    """What is seen and remembered at one time."""

    __slots__ = ("memory", "now", "ready", "servers", "view")

    def __init__(self, view: View, memory: GandivaMemory, now: float, servers: Servers, ready: Ready) -> None:
        self.view, self.memory, self.now, self.servers, self.ready = view, memory, now, servers, ready


class Draft(Moment):
    """Decisions in order. No job is touched twice in one plan. To be used inside trials of the view's free GPUs and
    groups."""

    __slots__ = ("begun", "changed", "free", "groups", "moved", "plan", "preempted", "quantum")

    def __init__(self, view: View, memory: GandivaMemory, now: float, servers: Servers, ready: Ready,
                 quantum: float) -> None:  # fmt: skip
        super().__init__(view, memory, now, servers, ready)
        self.free, self.groups, self.quantum = view.free, view.groups, quantum
        self.plan: Plan = []
        self.moved: set[str] = set()  # jobs this plan says something about
        self.begun: dict[Demand, int] = {}  # the first so many of those who wait
        self.preempted: list[str] = []
        self.changed: dict[Placement, None] = {}  # GPUs that somebody left or came to

    def still_waiting(self) -> list[tuple[Bucket, int]]:
        """Demands of which this plan has not started everybody, and how many it has."""
        buckets, begun = self.view.waiting.buckets, self.begun
        if not begun:
            return [(bucket, 0) for bucket in buckets.values()]
        found = [(bucket, begun.get(demand, 0)) for demand, bucket in buckets.items()]
        return [(bucket, count) for bucket, count in found if count < len(bucket)]

    def may_touch(self, job_id: str) -> bool:
        """It runs, as far as anybody knows, and this plan has not said anything about it."""
        if job_id in self.moved:
            return False
        job = self.view.job(job_id)
        return job.movable and (not self.view.down or (job.placement is not None and self.servers.up(job.placement)))

    def share(self, job: ActiveJob, beside: str | None = None) -> Share:
        """Weighted round robin: a job of priority p > 0 has the weight 1 + p (ours; the paper names no weights)."""
        return Share(1.0 + max(0, job.job.priority), beside, self.quantum)

    def start(self, job: ActiveJob, placement: Placement) -> None:
        share = self.share(job)
        self.plan.append(Start(job.id, placement, share=share))
        self._enter(job, placement, share)
        self.begun[job.demand] = self.begun.get(job.demand, 0) + 1

    def migrate(self, job: ActiveJob, placement: Placement, beside: str | None = None) -> None:
        share = self.share(job, beside)
        self.plan.append(Migrate(job.id, placement, share=share))
        self._leave(job)
        self._enter(job, placement, share)
        if beside is not None:
            self.servers.note_packed(job.id)

    def pack(self, job: ActiveJob, beside: str) -> None:
        """Beside a job of the same GPUs: nothing has to be moved."""
        self._reshare(job, self.share(job, beside))
        self.servers.note_packed(job.id)

    def unpack(self, job: ActiveJob) -> None:
        self._reshare(job, self.share(job))

    def resize(self, job: ActiveJob, placement: Placement) -> None:
        self.plan.append(Resize(job.id, placement))
        self._leave(job)
        self._enter(job, placement, None)

    def preempt(self, job: ActiveJob) -> None:
        self.plan.append(Preempt(job.id))
        self.preempted.append(job.id)
        self._leave(job, for_good=True)

    def _reshare(self, job: ActiveJob, share: Share) -> None:
        self.plan.append(Reshare(job.id, share))
        self.moved.add(job.id)
        self.servers.recount(self.groups.reshare(job.id, share).placement)

    def _leave(self, job: ActiveJob, *, for_good: bool = False) -> None:
        self.moved.add(job.id)
        group = self.groups.leave(job.id)
        self.servers.left(job.id, for_good=for_good)
        self.changed[group.placement] = None
        if not group:
            self.free.give(group.placement)

    def _enter(self, job: ActiveJob, placement: Placement, share: Share | None) -> None:
        self.moved.add(job.id)
        if self.groups.enter(job.id, placement, share):
            self.free.take(placement)
        self.servers.entered(job.id, placement)
        self.changed[placement] = None
