"""The rules of the house that a plan must keep; each broken one is a sentence.

A plan is looked at as a whole before anything of it is done: what it vacates, then what it gives out, in its order, on
a note of what would be free. Nothing is changed by looking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.journal import Leaving
from dally.core.placement import Placement, gpus_in
from dally.core.policy import View
from dally.core.reasons import Reason
from dally.core.shape import broken
from dally.core.sharing import Group, Interference, Share
from dally.core.states import State


class Broken(NamedTuple):
    job: str
    rule: str


class Rules:
    """Looks at the state of the house and never changes it."""

    __slots__ = ("_look", "_shares", "_view")

    def __init__(self, view: View, jobs: Mapping[str, ActiveJob], interference: Interference, shares: bool) -> None:
        self._view, self._shares = view, shares
        self._look = _Look(view, jobs, interference, shares)

    def look(self, now: float, plan: Sequence[pl.Action]) -> Broken | list[Leaving]:
        """The first rule the plan breaks; where it keeps them all, which GPUs those it preempts keep until they have
        saved their checkpoints: what they held and nobody is given."""
        if type(plan) is not list:
            return Broken("any", f"the plan is {type(plan).__name__} {plan!r:.60}, and must be a list of actions")
        if not plan:
            return _unexplained(self._view, (), ()) or []
        look = self._look
        look.begin(now)
        if not self._shares:
            return look.at(plan) or look.leaving()
        with self._view.groups.trial():
            return look.at(plan) or look.leaving()


class _Look:
    """One look at one plan: what it has vacated, given out and said so far."""

    __slots__ = ("freed", "groups", "interference", "jobs", "masks", "now", "said", "shares", "started", "taken",
                 "vacated", "view")  # fmt: skip

    def __init__(self, view: View, jobs: Mapping[str, ActiveJob], interference: Interference, shares: bool) -> None:
        self.view, self.jobs, self.interference, self.shares = view, jobs, interference, shares
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Another plan: nothing is vacated, given out or said yet."""
        self.now = now
        self.groups, self.masks = self.view.groups, self.view.free.masks
        self.vacated: dict[str, type] = {}
        self.started: dict[str, pl.Demand] = {}
        self.freed: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.said: set[str | pl.Demand] = set()

    def at(self, plan: Sequence[pl.Action]) -> Broken | None:
        for each in plan:
            if type(each) in _MOVES:
                rule = self._vacating(each)
                if rule is not None:
                    return Broken(getattr(each, "job", "any"), rule)
        action: Any
        for action in plan:
            kind = type(action)
            if kind is _START:  # objects
                rule = self._placing(action)
            elif kind is _WAIT:  # objects
                rule = self._waiting(action)
            elif kind is not _PREEMPT:  # objects
                check = _CHECKS.get(kind)
                if check is None:
                    return Broken("any", f"the plan holds {action!r}, which is no action of a policy")
                rule = check(self, action)
            else:
                continue
            if rule is not None:
                return Broken(getattr(action, "job", "any"), rule)
        return _unexplained(self.view, self.said, self.started)

    def _waiting(self, action: pl.Wait) -> str | None:
        self.said.add(action.who)
        return None

    def _waking(self, action: pl.WakeAt) -> str | None:
        if self.now < action.time < math.inf:
            return None
        if action.time == math.inf:
            return "asks to be woken at the end of time: who needs no wake-up asks for none"
        return f"asks to be woken at {action.time!r}, which is not after now ({self.now!r}): time would stand still"

    def _vacating(self, action: Any) -> str | None:
        job = self.jobs.get(action.job)
        if job is None:
            return "is not known"
        if action.job in self.vacated:
            return "is moved or preempted twice in one plan"
        if job.state is not State.RUNNING or job.placement is None:
            return f"is {job.state.value}; only a running job can be moved"
        if not job.job.preemptible:
            return "must not be preempted: it keeps its GPUs until it ends"
        self.vacated[action.job] = type(action)
        if not self.shares or not self.groups.leave(action.job):
            for machine, mask in job.placement.slices:
                self.freed[machine] = self.freed.get(machine, 0) | mask
        return None

    def _placing(self, action: pl.Places) -> str | None:
        """What is wrong with giving the job these GPUs now; None where nothing is."""
        job = self.jobs.get(action.job)
        if job is None:
            return "is not known"
        placement, lease = action.placement, action.lease
        if isinstance(action, pl.Start) and (job.state is not State.WAITING or job.id in self.started):
            state = State.STARTING if job.id in self.started else job.state
            return f"is {state.value} and cannot be given GPUs"
        if lease is not None and not lease >= 0:
            return f"a lease of {lease!r} s is no time"
        rule = _size(job, action)
        if rule is not None:
            return rule
        share = None if isinstance(action, pl.Resize) else action.share
        group = None
        if share is not None:
            group = self.groups.at(placement)
            rule = self._share(job, share, group, placement)
            if rule is not None:
                return rule
        rule = self._gpus(job, placement, shared=group is not None)
        if rule is not None:
            return rule
        if job.demand.where is not None and job.demand.within is not None:
            topology = self.view.topology
            if placement.level(topology) > topology.level_index(job.demand.within):
                return f"must be inside one {job.demand.within}, and is given GPUs of more than one"
        if job.demand.where is not None and (rule := broken(self.view.topology, job.demand, placement)):
            return rule
        if not self.shares or self.groups.enter(job.id, placement, share):
            for machine, mask in placement.slices:
                self.taken[machine] = self.taken.get(machine, 0) | mask
        if isinstance(action, pl.Start):
            self.started[job.id] = job.demand
        return None

    def _staying(self, action: pl.Extend | pl.Reshare) -> str | None:
        job = self.jobs.get(action.job)
        if job is None:
            return "is not known"
        if isinstance(action, pl.Extend):
            if job.state is not State.RUNNING or job.id in self.vacated:
                return f"is {job.state.value}; only a running job has a lease"
            return None if action.lease >= 0 else f"a lease of {action.lease!r} s is no time"
        if not self.shares:
            return "is given a share of GPUs, and the policy does not declare that it shares (shares = True)"
        if job.id not in self.groups:  # as they are after what the plan did so far
            return f"is {job.state.value}; only a job that has GPUs has a share of them"
        if action.share.beside == job.id:
            return "cannot be packed beside itself"
        group = self.groups.of(job.id)
        rule = self._share(job, action.share, group, group.placement)
        if rule is None:
            self.groups.reshare(job.id, action.share)
        return rule

    def leaving(self) -> list[Leaving]:
        found: list[Leaving] = []
        if not self.vacated:
            return found
        left = {machine: mask & ~self.taken.get(machine, 0) for machine, mask in self.freed.items()}
        for job_id, kind in self.vacated.items():
            placement = self.jobs[job_id].placement
            if kind is pl.Preempt and placement is not None:
                gpus = 0
                for machine, mask in placement.slices:
                    kept = mask & left.get(machine, 0)
                    if kept:
                        left[machine] ^= kept  # of jobs that shared GPUs and are preempted all at once, one keeps them
                        gpus += gpus_in(kept)
                if gpus:
                    found.append(Leaving(job_id, gpus))
        return found

    # --- GPUs and shares ------------------------------------------------------------------------------------

    def _has(self, machine: int, mask: int) -> bool:
        there = (self.masks[machine] | self.freed.get(machine, 0)) & ~self.taken.get(machine, 0)
        return there & mask == mask

    def _gpus(self, job: ActiveJob, placement: Placement, *, shared: bool) -> str | None:
        machines = self.view.topology.machines
        kind: str | None = None
        before = -1
        for machine, mask in placement.slices:
            if not before < machine < len(machines) or mask <= 0:
                return "its placement must name machines of the cluster once each, in order, with GPUs"
            before = machine
            if machine in self.view.down:
                return f"machine {machines[machine].name} is down"
            if not shared and not self._has(machine, mask):
                return f"GPUs {mask:x} of machine {machines[machine].name} are not all free"
            if kind is not None and machines[machine].gpu_type != kind:
                return f"a gang may not mix GPU types ({', '.join(sorted((kind, machines[machine].gpu_type)))})"
            kind = machines[machine].gpu_type
        if job.job.gpu_type is not None and kind != job.job.gpu_type:
            return f"wants GPU type {job.job.gpu_type} and was given {kind}"
        return None

    def _share(self, job: ActiveJob, share: Share, group: Group | None, placement: Placement) -> str | None:
        if not self.shares:
            return "is given a share of GPUs, and the policy does not declare that it shares (shares = True)"
        if not (share.weight > 0 and math.isfinite(share.weight)):
            return f"the weight of a share must be above 0, not {share.weight!r}"
        if not (share.quantum > 0 and math.isfinite(share.quantum)):
            return f"the quantum of a share must be above 0, not {share.quantum!r}"
        if group is None:
            if share.beside is not None:
                return f"cannot be packed beside {share.beside!r}: nobody else holds these very GPUs"
            if any(machine < len(self.masks) and not self._has(machine, mask) for machine, mask in placement.slices):
                return "only jobs that hold the very same GPUs can share them; these are neither free nor one group's"
            return None
        if share.beside is None:
            return None
        if share.beside not in group:
            return f"cannot be packed beside {share.beside!r}, which does not hold the very same GPUs"
        packed = [other for other in group.turn(share.beside) if other != job.id]
        return self._memory(job, packed, placement)

    def _memory(self, job: ActiveJob, packed: Sequence[str], placement: Placement) -> str | None:
        together = [*(self.jobs[other].job for other in packed), job.job]
        gpu_type = self.view.topology.machines[placement.slices[0][0]].gpu_type
        reason = self.interference.fits(together, gpu_type)
        return None if reason is None else f"cannot be packed beside {', '.join(packed)}: {reason}"


def _unexplained(view: View, said: Container[str | pl.Demand], started: Container[str]) -> Broken | None:
    """Every waiting job has a reason: the plan gives one per demand, and may add some for single jobs."""
    reasons = cast("dict[str | pl.Demand, Reason]", view.reasons)
    for demand, bucket in view.waiting.buckets.items():
        if demand not in reasons and demand not in said:
            for entry in bucket.entries:
                if entry[4].id not in started:
                    rule = f"waits, and the plan gives no reason for jobs of demand {demand.short}"
                    return Broken(entry[4].id, rule)
    return None


def _size(job: ActiveJob, action: pl.Places) -> str | None:
    given = 0
    for _, mask in action.placement.slices:
        given += gpus_in(mask)
    if isinstance(action, pl.Resize):
        fewest, most = job.job.limits
        if not job.job.elastic:
            return f"cannot be resized: it declares no min_gpus or max_gpus and is a gang of {job.gpus}"
        if not fewest <= given <= most or given != action.placement.gpus:
            return f"was given {given} GPUs; it can run on {fewest} to {most}"
        return None
    gang = job.gpus
    if isinstance(action, pl.Migrate) and job.placement is not None:
        gang = job.placement.gpus  # of an elastic job: what it was resized to
    if given != gang or given != action.placement.gpus:
        return f"a gang of {gang} was given {given} GPUs: a gang is whole or nothing"
    return None


_MOVES: Final = frozenset((pl.Preempt, pl.Migrate, pl.Resize))
_START: Final = pl.Start
_WAIT: Final = pl.Wait
_PREEMPT: Final = pl.Preempt
_CHECKS: Final[dict[type, Callable[[_Look, Any], str | None]]] = {
    pl.Migrate: _Look._placing, pl.Resize: _Look._placing, pl.WakeAt: _Look._waking, pl.Extend: _Look._staying,
    pl.Reshare: _Look._staying,
}  # fmt: skip
