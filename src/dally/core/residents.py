"""Who is on which GPUs: taken by the first of a group, given back by the last, served by share in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.sharing import Group, Groups, Share


class Residents:
    """Keeps free GPUs, groups and the jobs' shares of time in step. Groups are kept for policies that share, only."""

    __slots__ = ("_down", "_free", "_groups", "_jobs", "shares")

    def __init__(self, free: FreeGpus, groups: Groups, jobs: Mapping[str, ActiveJob], down: Set[int],
                 shares: bool) -> None:  # fmt: skip
        self._free, self._groups, self._jobs, self._down, self.shares = free, groups, jobs, down, shares

    def enter(self, now: float, job: ActiveJob, placement: Placement, share: Share | None) -> None:
        """The job is on these GPUs from now on."""
        job.placement, job.share = placement, share
        job.fraction, job.serving = 1.0, float(placement.gpus)
        job.watched_seconds = job.watched_batches = 0.0
        if not self.shares or self._groups.enter(job.id, placement, share):
            self._free.take(placement)
            return
        group = self._groups.of(job.id)
        self._share_out(now, group)
        self._watch_anew(group.others(job.id))

    def leave(self, now: float, job: ActiveJob, placement: Placement) -> None:
        """The job is off these GPUs; those who stay have them to themselves."""
        if self.shares:
            packed = self._groups.of(job.id).others(job.id)
            group = self._groups.leave(job.id)
            job.share = None
            if group:
                self._share_out(now, group)
                self._watch_anew(packed)
                return
        self.give(placement)

    def give(self, placement: Placement) -> None:
        """Nobody holds these GPUs any more; they are free but on machines that are down."""
        if self._down and any(machine in self._down for machine, _ in placement.slices):
            placement = Placement.of((m, mask) for m, mask in placement.slices if m not in self._down)
        self._free.give(placement)

    def reshare(self, now: float, job: ActiveJob, share: Share) -> None:
        """The job stays where it is, on other terms."""
        before = self._groups.of(job.id).others(job.id)
        group = self._groups.reshare(job.id, share)
        job.share = share
        self._share_out(now, group)
        self._watch_anew({job.id: None, **dict.fromkeys((*before, *group.others(job.id)))})

    def _share_out(self, now: float, group: Group) -> None:
        """Who is on these GPUs or in which turn has changed: book what was, and note the new shares of time."""
        for member in group.members:
            job = self._jobs[member]
            job.accrue(now)
            job.fraction = group.fraction(member)
            job.serving = group.placement.gpus * job.fraction

    def _watch_anew(self, members: Iterable[str]) -> None:
        """What was seen of their mini-batches says nothing about those to come."""
        for member in members:
            job = self._jobs[member]
            job.watched_seconds = job.watched_batches = 0.0
