"""A plan in the making: each decision is tried on the free GPUs and on the mirror of the servers at once."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Migrate, Plan, Preempt, Reshare, Resize, Start
from dally.core.policy import View
from dally.core.sharing import Group, Share
from dally.policies.gandiva.servers import Servers


class Draft:
    """Decisions in order. No job is touched twice in one plan."""

    __slots__ = ("changed", "free", "moved", "now", "plan", "preempted", "quantum", "servers", "started", "view")

    def __init__(self, view: View, now: float, free: FreeGpus, servers: Servers, quantum: float) -> None:
        self.view, self.now, self.free, self.servers, self.quantum = view, now, free, servers, quantum
        self.plan: Plan = []
        self.moved: set[str] = set()  # jobs this plan says something about
        self.started: list[ActiveJob] = []
        self.preempted: list[str] = []
        self.changed: dict[Placement, Group] = {}  # groups that somebody left or joined, by their GPUs

    def share(self, job: ActiveJob, beside: str | None = None) -> Share:
        """Weighted round robin: a job of priority p > 0 has the weight 1 + p (ours; the paper names no weights)."""
        return Share(1.0 + max(0, job.job.priority), beside, self.quantum)

    def start(self, job: ActiveJob, placement: Placement) -> None:
        share = self.share(job)
        self.plan.append(Start(job.id, placement, share=share))
        self._enter(job, placement, share)
        self.started.append(job)

    def migrate(self, job: ActiveJob, placement: Placement, beside: str | None = None) -> None:
        share = self.share(job, beside)
        self.plan.append(Migrate(job.id, placement, share=share))
        self.leave(job)
        self._enter(job, placement, share)
        if beside is not None:
            self.servers.note_packed(job.id)

    def pack(self, job: ActiveJob, beside: str) -> None:
        """Beside a job of the same GPUs: nothing has to be moved."""
        share = self.share(job, beside)
        self.plan.append(Reshare(job.id, share))
        self.moved.add(job.id)
        self.servers.reshare(job.id, share)
        self.servers.note_packed(job.id)

    def unpack(self, job: ActiveJob) -> None:
        share = self.share(job)
        self.plan.append(Reshare(job.id, share))
        self.moved.add(job.id)
        self.servers.reshare(job.id, share)

    def resize(self, job: ActiveJob, placement: Placement) -> None:
        self.plan.append(Resize(job.id, placement))
        self.leave(job)
        self._enter(job, placement, self.share(job))

    def preempt(self, job: ActiveJob) -> None:
        self.plan.append(Preempt(job.id))
        self.preempted.append(job.id)
        self.leave(job)

    def leave(self, job: ActiveJob) -> None:
        self.moved.add(job.id)
        group = self.servers.leave(job.id)
        if group is not None:
            self.changed[group.placement] = group
            if not group.turns:
                self.free.give(group.placement)

    def _enter(self, job: ActiveJob, placement: Placement, share: Share) -> None:
        self.moved.add(job.id)
        if self.servers.enter(job.id, job.gpus, placement, share):
            self.free.take(placement)
        self.changed[placement] = self.servers.groups.of(job.id)
