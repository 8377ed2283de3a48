"""Grow and shrink (OSDI'18): a job that declares it takes its server's idle GPUs, and gives them back
the moment somebody needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dally.core.active import ActiveJob
from dally.core.free import lowest_gpus
from dally.core.placement import Placement
from dally.core.plain import MachineNumber
from dally.core.plan import Demand
from dally.policies.gandiva.draft import Draft, Moment
from dally.policies.gandiva.memory import GandivaMemory


class Elastic:
    """Which jobs can grow, which have, and since when a server's GPUs lie idle."""

    def __init__(self, after: float) -> None:
        self.after = after  # seconds GPUs must have been idle

    def hear(self, moment: Moment, machines: Iterable[int]) -> None:
        """GPUs of these servers changed hands: their idle time starts anew."""
        for machine in machines if moment.memory.could_grow else ():
            if _on(moment.memory, machine):
                self._look(moment, MachineNumber(machine))

    def settled(self, moment: Moment, job: ActiveJob, placement: Placement) -> None:
        """A job got GPUs. Only inside one server does it ever grow."""
        memory = moment.memory
        _no_candidate(memory, job.id)
        if len(placement.slices) == 1 and (job.job.max_gpus or job.gpus) > placement.gpus and job.job.preemptible \
                and moment.servers.any_part(job.demand.within):  # fmt: skip
            machine = MachineNumber(placement.slices[0][0])
            memory.could_grow[job.id] = machine, memory.next()
            memory.growing_on.add((*memory.could_grow[job.id], job.id))
            self._look(moment, machine)

    @staticmethod
    def found(moment: Moment, job: ActiveJob, placement: Placement) -> None:
        """Somebody else made the job as large as it is: what it has beyond its size is lent to it."""
        if len(placement.slices) == 1 and placement.gpus > job.gpus:
            ((machine, mask),) = placement.slices
            moment.memory.grown[job.id] = Placement.of([(machine, lowest_gpus(mask, job.gpus))])

    def _look(self, moment: Moment, machine: MachineNumber) -> None:
        when = moment.memory.idle_next[machine] = moment.now + self.after
        if (when, machine) not in moment.memory.idle_looks:
            moment.memory.idle_looks.add((when, machine))

    @staticmethod
    def forget(memory: GandivaMemory, job_id: str) -> None:
        _no_candidate(memory, job_id)
        if job_id in memory.grown:
            del memory.grown[job_id]

    @staticmethod
    def next_look(memory: GandivaMemory) -> float:
        looks = memory.idle_looks
        return looks[0][0] if looks else math.inf

    def grow(self, draft: Draft) -> None:
        """Servers whose GPUs have been idle for long enough lend them, while nobody waits."""
        memory, now = draft.memory, draft.now
        while memory.idle_looks and memory.idle_looks[0][0] <= now:
            when, machine = memory.idle_looks[0]
            memory.idle_looks.remove((when, machine))
            jobs = _on(memory, machine)
            if memory.idle_next.get(machine) != when or not jobs:
                continue
            if len(draft.view.waiting) > sum(draft.begun.values()):
                self._look(draft, machine)  # somebody waits, if not for these GPUs: later, perhaps
                continue
            for job_id in jobs:
                job = draft.view.job(job_id)
                if not job.movable:
                    self._look(draft, machine)  # it is not there yet, or nobody knows
                elif free := draft.free.masks[machine]:
                    self._grow(draft, job, machine, free)

    def _grow(self, draft: Draft, job: ActiveJob, machine: int, free: int) -> None:
        group = draft.groups.of(job.id)
        more = min(job.job.limits[1] - group.placement.gpus, free.bit_count())
        if len(group) > 1 or more <= 0 or not draft.may_touch(job.id):
            return
        ((_, held),) = group.placement.slices
        draft.memory.grown.setdefault(job.id, group.placement)
        draft.resize(job, Placement.of([(machine, held | lowest_gpus(free, more))]))

    def reclaim(self, draft: Draft, demand: Demand) -> bool:
        """Shrink grown jobs, the latest first, if the job that waits can then be placed; True where one was."""
        grown, topology = draft.memory.grown, draft.free.topology
        level = len(topology.levels) - 1 if demand.within is None else \
            max(topology.level_index(demand.within), topology.machine_level)  # fmt: skip
        if demand.nodes == 1:
            level = topology.machine_level
        allowed = -1 if demand.among is None else topology.among(demand.among)
        lent: dict[tuple[str, int], int] = {}  # of a type in a domain
        usable: list[tuple[tuple[str, int], str, Placement]] = []
        for job_id, before in reversed(grown.items()):
            kind = draft.servers.gpu_type(before)
            if demand.gpu_type in (None, kind) and draft.may_touch(job_id) and allowed >> before.slices[0][0] & 1:
                where = kind, topology.domain_of(before.slices[0][0], level).index
                usable.append((where, job_id, before))
                lent[where] = lent.get(where, 0) + draft.groups.of(job_id).placement.gpus - before.gpus

        def free(where: tuple[str, int]) -> int:
            pool = draft.free.pools[where[0]]
            return pool.total if level == len(topology.levels) - 1 else pool.counts[level][where[1]]

        enough = [where for where in lent if free(where) + lent[where] >= demand.gpus]
        if not enough:
            return False
        for where, job_id, before in usable:
            if where == enough[0]:
                draft.resize(draft.view.job(job_id), before)
                del grown[job_id]
                if free(where) >= demand.gpus:
                    break
        return True


def _on(memory: GandivaMemory, machine: int) -> list[str]:
    """Jobs of a server that could grow."""
    return [job_id for _, _, job_id in memory.growing_on.irange((machine,), (machine + 1,))]


def _no_candidate(memory: GandivaMemory, job_id: str) -> None:
    could_grow = memory.could_grow
    if job_id in could_grow:
        memory.growing_on.remove((*could_grow.pop(job_id), job_id))
