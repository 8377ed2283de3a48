"""Grow and shrink (OSDI'18): a job that declares it takes its server's idle GPUs, and gives them back
the moment somebody needs them."""

from __future__ import annotations

import heapq

from dally.core.active import ActiveJob
from dally.core.free import lowest_gpus
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.policies.gandiva.draft import Draft


class Elastic:
    """Which jobs can grow, which have, and since when a server's GPUs lie idle."""

    def __init__(self, after: float) -> None:
        self.after = after  # seconds GPUs must have been idle
        self.grown: dict[str, tuple[ActiveJob, Placement]] = {}  # with the GPUs they had before, oldest first
        self._on: dict[int, dict[str, ActiveJob]] = {}  # jobs that could grow, by server
        self._where: dict[str, int] = {}
        self._looks: list[tuple[float, int]] = []  # (when, server); of a server only the one in `_next` counts
        self._next: dict[int, float] = {}

    def hear(self, machines: set[int], now: float) -> None:
        """GPUs of these servers changed hands: their idle time starts anew."""
        for machine in machines:
            if self._on.get(machine):
                self._look(machine, now)

    def settled(self, job: ActiveJob, placement: Placement, now: float) -> None:
        """A job got GPUs. Only inside one server does it ever grow."""
        self.forget(job.id, keep_grown=True)
        if len(placement.slices) == 1 and job.job.limits[1] > placement.gpus:
            machine = placement.slices[0][0]
            self._on.setdefault(machine, {})[job.id] = job
            self._where[job.id] = machine
            self._look(machine, now)

    def _look(self, machine: int, now: float) -> None:
        self._next[machine] = now + self.after
        heapq.heappush(self._looks, (now + self.after, machine))

    def forget(self, job_id: str, *, keep_grown: bool = False) -> None:
        machine = self._where.pop(job_id, None)
        if machine is not None:
            del self._on[machine][job_id]
        if not keep_grown:
            self.grown.pop(job_id, None)

    def next_look(self) -> float | None:
        return self._looks[0][0] if self._looks else None

    def grow(self, draft: Draft) -> None:
        """Servers whose GPUs have been idle for long enough lend them, while nobody waits."""
        now = draft.now
        while self._looks and self._looks[0][0] <= now:
            when, machine = heapq.heappop(self._looks)
            jobs = list(self._on.get(machine, {}).values())
            if self._next.get(machine) != when or not jobs:
                continue
            if len(draft.view.waiting) > len(draft.started):
                self._look(machine, now)  # somebody waits, if not for these GPUs: later, perhaps
                continue
            for job in jobs:
                if free := draft.free.masks[machine]:
                    self._grow(draft, job, machine, free)

    def _grow(self, draft: Draft, job: ActiveJob, machine: int, free: int) -> None:
        group = draft.servers.groups.of(job.id)
        more = min(job.job.limits[1] - group.placement.gpus, free.bit_count())
        if len(group) > 1 or more <= 0 or job.id in draft.moved:
            return
        ((_, held),) = group.placement.slices
        self.grown.setdefault(job.id, (job, group.placement))
        draft.resize(job, Placement.of([(machine, held | lowest_gpus(free, more))]))

    def reclaim(self, draft: Draft, demand: Demand) -> bool:
        """Shrink grown jobs, the latest first, if the job that waits can then be placed; True where one was."""
        topology = draft.free.topology
        lent: dict[str, int] = {}
        usable: list[tuple[str, ActiveJob, Placement]] = []
        for job_id, (job, before) in reversed(self.grown.items()):
            kind = topology.machines[before.slices[0][0]].gpu_type
            if job_id not in draft.moved and demand.gpu_type in (None, kind):
                usable.append((kind, job, before))
                lent[kind] = lent.get(kind, 0) + draft.servers.groups.of(job_id).placement.gpus - before.gpus
        enough = [kind for kind in lent if draft.free.pools[kind].total + lent[kind] >= demand.gpus]
        if not enough:
            return False
        for kind, job, before in usable:
            if kind == enough[0]:
                draft.resize(job, before)
                del self.grown[job.id]
                if draft.free.pools[kind].total >= demand.gpus:
                    break
        return True
