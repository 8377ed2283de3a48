"""The rules of the house that a plan must keep; each broken one is a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.sharing import Group, Groups, Interference, Share
from dally.core.states import State
from dally.core.topology import Topology


class Rules:
    """Looks at the state of the house and never changes it."""

    __slots__ = ("_down", "_free", "_groups", "_interference", "_jobs", "_shares", "_topology")

    def __init__(self, topology: Topology, free: FreeGpus, groups: Groups, jobs: Mapping[str, ActiveJob],
                 down: Set[int], interference: Interference, shares: bool) -> None:  # fmt: skip
        self._topology, self._free, self._groups, self._jobs = topology, free, groups, jobs
        self._down, self._interference, self._shares = down, interference, shares

    def broken_by_placing(self, job: ActiveJob, action: pl.Start | pl.Migrate | pl.Resize) -> str | None:
        """What is wrong with giving the job these GPUs now; None where nothing is."""
        if job.state is not (State.WAITING if type(action) is pl.Start else State.RUNNING):
            return f"is {job.state.value} and cannot be given GPUs"
        rule = self._size(job, action)
        if rule is not None:
            return rule
        group = None
        if not isinstance(action, pl.Resize) and action.share is not None:
            group = self._groups.at(action.placement)
            rule = self._share(job, action.share, group, action.placement)
            if rule is not None:
                return rule
        return self._gpus(job, action.placement, taken=group is not None)

    def broken_by_resharing(self, job: ActiveJob, action: pl.Reshare) -> str | None:
        if job.state is not State.RUNNING or job.placement is None:
            return f"is {job.state.value}; only a running job has a share of GPUs"
        if action.share.beside == job.id:
            return "cannot be packed beside itself"
        group = self._groups.of(job.id) if job.id in self._groups else None
        return self._share(job, action.share, group, job.placement)

    def _size(self, job: ActiveJob, action: pl.Start | pl.Migrate | pl.Resize) -> str | None:
        given = 0
        for _, mask in action.placement.slices:
            given += mask.bit_count()
        if type(action) is pl.Resize:
            fewest, most = job.job.limits
            if not job.job.elastic:
                return f"cannot be resized: it declares no min_gpus or max_gpus and is a gang of {job.gpus}"
            if not fewest <= given <= most or given != action.placement.gpus:
                return f"was given {given} GPUs; it can run on {fewest} to {most}"
            return None
        gang = job.gpus
        if type(action) is pl.Migrate and job.placement is not None:
            gang = job.placement.gpus  # of an elastic job: what it was resized to
        if given != gang or given != action.placement.gpus:
            return f"a gang of {gang} was given {given} GPUs: a gang is whole or nothing"
        return None

    def _gpus(self, job: ActiveJob, placement: Placement, *, taken: bool) -> str | None:
        types = set()
        before = -1
        for machine, mask in placement.slices:
            if not before < machine < len(self._topology.machines) or mask <= 0:
                return "its placement must name machines of the cluster once each, in order, with GPUs"
            before = machine
            if machine in self._down:
                return f"machine {self._topology.machines[machine].name} is down"
            if not taken and not self._free.has(machine, mask):
                return f"GPUs {mask:x} of machine {self._topology.machines[machine].name} are not all free"
            types.add(self._topology.machines[machine].gpu_type)
        if len(types) > 1:
            return f"a gang may not mix GPU types ({', '.join(sorted(types))})"
        if job.job.gpu_type is not None and types != {job.job.gpu_type}:
            return f"wants GPU type {job.job.gpu_type} and was given {types.pop()}"
        return None

    def _share(self, job: ActiveJob, share: Share, group: Group | None, placement: Placement) -> str | None:
        if not self._shares:
            return "is given a share of GPUs, and the policy does not declare that it shares (shares = True)"
        if not (share.weight > 0 and math.isfinite(share.weight)):
            return f"the weight of a share must be above 0, not {share.weight!r}"
        if not (share.quantum > 0 and math.isfinite(share.quantum)):
            return f"the quantum of a share must be above 0, not {share.quantum!r}"
        if group is None:
            if share.beside is not None:
                return f"cannot be packed beside {share.beside!r}: nobody else holds these very GPUs"
            if any(machine < len(self._topology.machines) and not self._free.has(machine, mask)
                   for machine, mask in placement.slices):  # fmt: skip
                return "only jobs that hold the very same GPUs can share them; these are neither free nor one group's"
            return None
        if share.beside is None:
            return None
        if share.beside not in group:
            return f"cannot be packed beside {share.beside!r}, which does not hold the very same GPUs"
        packed = [other for other in group.turn(share.beside) if other != job.id]
        return self._memory(job, packed, placement)

    def _memory(self, job: ActiveJob, packed: Sequence[str], placement: Placement) -> str | None:
        together = [*(self._jobs[other].job for other in packed), job.job]
        gpu_type = self._topology.machines[placement.slices[0][0]].gpu_type
        reason = self._interference.fits(together, gpu_type)
        return None if reason is None else f"cannot be packed beside {', '.join(packed)}: {reason}"
