"""An age threshold, which the original lacks: who has waited for longer gets its turn, whatever is in the way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from dally.core.active import ActiveJob
from dally.core.free import lowest_gpus
from dally.core.placement import Placement, gpus_in
from dally.core.topology import Machine
from dally.policies.gandiva.arrival import on_free_gpus, on_shared_gpus
from dally.policies.gandiva.draft import Draft

_NO_LIMIT: Final = 1 << 30
_AT_ONCE: Final = 16  # jobs that are helped in one plan: bounds the cost of one event


class Starvation:
    """Looks at the job at the head of each demand; the others of it come next."""

    def __init__(self, age: float, slicing: bool) -> None:
        self.age, self.slicing = age, slicing

    def next_look(self, draft: Draft) -> float:
        """When the next head is old enough, of those that are not yet."""
        times = [job.last_change + self.age for job in self._heads(draft)]
        return min((time for time in times if time > draft.now), default=math.inf)

    @staticmethod
    def _heads(draft: Draft) -> Iterator[ActiveJob]:
        """The first job of each demand that this plan has not started."""
        return (bucket.job(begun) for bucket, begun in draft.still_waiting())

    def serve(self, draft: Draft) -> None:
        """The longest waiting first: free GPUs, or turns beyond the height limit. Where there are neither, servers
        are cleared, for one job per plan."""
        for _ in range(_AT_ONCE):
            old = [job for job in self._heads(draft) if job.last_change + self.age <= draft.now]
            if not old:
                return
            job = min(old, key=lambda job: (job.last_change, job.number))
            placement = on_free_gpus(draft.free, draft.servers, job.demand)
            if placement is None and self.slicing:
                placement = on_shared_gpus(draft.servers, job.demand, _NO_LIMIT)
            if placement is None:
                self._clear_for(draft, sorted(old, key=lambda job: (job.last_change, job.number)))
                return
            draft.start(job, placement)

    def _clear_for(self, draft: Draft, old: list[ActiveJob]) -> None:
        for job in old:
            for kind in (job.demand.gpu_type,) if job.demand.gpu_type else draft.free.topology.gpu_types:
                for among in self._together(draft, job.demand.within):
                    servers = self._servers(draft, kind, job, among)
                    if servers:
                        self._clear(draft, servers, job)
                        return

    @staticmethod
    def _together(draft: Draft, within: str | None) -> Iterator[Sequence[Machine]]:
        """Servers that hold a gang together; nothing is cleared for one that must be inside a part of a server."""
        topology = draft.free.topology
        if within is None:
            yield topology.machines
        elif draft.servers.any_part(within):
            for domain in topology.domains[topology.level_index(within)]:
                yield topology.machines[domain.start : domain.stop]

    def _servers(self, draft: Draft, kind: str, job: ActiveJob, among: Sequence[Machine]) -> list[Machine]:
        """Where most is free first; none where those that can be cleared are too few."""
        free, size, nodes = draft.free, job.gpus, job.demand.nodes
        allowed = -1 if job.demand.among is None else free.topology.among(job.demand.among)
        usable = [machine for machine in among if machine.gpu_type == kind and allowed >> machine.index & 1
                  and all(self._may_go(draft, member) for member in draft.groups.residents(machine.index))]
        usable.sort(key=lambda m: (m.gpus < size, -gpus_in(free.masks[m.index]), -m.gpus, m.index))
        if nodes is not None:
            roomy = [machine for machine in usable if self._reach(draft, machine) >= size // nodes][:nodes]
            return roomy if len(roomy) == nodes else []
        chosen, found = [], 0
        for machine in usable:
            reach = self._reach(draft, machine)
            if reach:
                chosen.append(machine)
                found += reach
            if found >= size:
                return chosen
        return []

    def _may_go(self, draft: Draft, member: str) -> bool:
        rescued = draft.memory.rescued.get(member)
        return draft.may_touch(member) and (rescued is None or rescued + self.age <= draft.now)

    @staticmethod
    def _reach(draft: Draft, machine: Machine) -> int:
        """GPUs of the server that are free or held by jobs."""
        mask = draft.free.masks[machine.index]
        for group in draft.groups.on(machine.index):
            mask |= dict(group.placement.slices)[machine.index]
        return gpus_in(mask)

    def _clear(self, draft: Draft, servers: list[Machine], job: ActiveJob) -> None:
        """Preempt who is in the way, whole groups at a time, until the gang fits on these servers."""
        most = job.gpus if job.demand.nodes is None else job.gpus // job.demand.nodes  # of any one of them

        def enough(machine: Machine) -> bool:
            if job.demand.nodes is not None:
                return gpus_in(draft.free.masks[machine.index]) >= most
            return sum(gpus_in(draft.free.masks[each.index]) for each in servers) >= job.gpus

        for machine in servers:
            for group in list(draft.groups.on(machine.index)):
                if not enough(machine):
                    for member in list(group.members):
                        draft.preempt(draft.view.job(member))
        left, slices = job.gpus, []
        for machine in servers:
            mask = draft.free.masks[machine.index]
            part = lowest_gpus(mask, min(left, most, gpus_in(mask)))
            left -= gpus_in(part)
            if part:
                slices.append((machine.index, part))
        draft.start(job, Placement.of(slices))
        draft.memory.rescued[job.id] = draft.now
