"""What Gandiva does with what it hears, and the order in which its mechanisms are asked at every event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Reshare, Resize, Start, Wait, WakeAt
from dally.core.policy import View
from dally.core.reasons import Reason, Token
from dally.policies.gandiva.arrival import serve
from dally.policies.gandiva.draft import Draft, Moment
from dally.policies.gandiva.elastic import Elastic
from dally.policies.gandiva.introspection import Introspection
from dally.policies.gandiva.memory import GandivaMemory
from dally.policies.gandiva.moving import Migration
from dally.policies.gandiva.packing import Packing
from dally.policies.gandiva.ready import Ready
from dally.policies.gandiva.servers import Servers
from dally.policies.gandiva.starving import Starvation

_GONE = (ev.Finished, ev.Failed, ev.Cancelled, ev.Interrupted, ev.StartFailed, ev.Yielded, Preempt)
_HEARD: Final = frozenset((*_GONE, ev.MachineDown, ev.MachineDrained, ev.MachineUp, ev.MachinesChanged,
                           ev.ContactRestored, Start, Migrate, Resize, Reshare))  # fmt: skip


class Deciding:
    """The mechanisms that are on, and who is where as they see it."""

    def __init__(self, watch: Introspection, packing: Packing | None, migration: Migration | None,
                 elastic: Elastic | None, starving: Starvation | None, limit: int, quantum: float) -> None:  # fmt: skip
        self.watch, self.packing, self.migration = watch, packing, migration
        self.elastic, self.starving = elastic, starving
        self._limit, self._quantum = limit, quantum

    def attach(self, view: View, memory: GandivaMemory) -> None:
        """Index who is where and who could be packed: all that follows from the view and the memory."""
        self._idle = -1  # by `FreeGpus.changes`: as long as nothing happens there is nothing to do
        self.servers = Servers(view, memory)
        self.ready = Ready(view, memory.draft, self.watch)
        if self.migration is not None:
            self.migration.attach()
        if self.packing is not None:
            moment = Moment(view, memory, 0.0, self.servers, self.ready)
            for group in view.groups:
                self.packing.index(moment, group)

    # --- what happened --------------------------------------------------------------------------------------

    def hear(self, view: View, memory: GandivaMemory, now: float, entries: Sequence[Entry]) -> None:
        """Jobs that are gone from their GPUs: their groups are smaller, their neighbours' trials void."""
        heard = [entry for entry in entries if type(entry) in _HEARD]
        if not heard:
            return
        moment = Moment(view, memory, now, self.servers, self.ready)
        touched: set[int] = set()
        for entry in heard:
            if isinstance(entry, _GONE):
                touched |= self._gone(moment, entry.job)
            elif isinstance(entry, (ev.MachineDown, ev.MachineDrained, ev.MachineUp)):
                machine = view.topology.machine_by_name.get(entry.machine)
                if machine is not None:  # it may have been taken out in the same instant
                    self.servers.relist(machine)
                    touched.add(machine)
            elif isinstance(entry, ev.MachinesChanged):
                touched |= {machine.index for machine in view.topology.machines}
            elif isinstance(entry, (ev.ContactRestored, Start, Migrate, Resize, Reshare)):
                touched |= self._found(moment, entry)
        if self.elastic is not None and touched:
            self.elastic.hear(moment, touched)

    def _gone(self, moment: Moment, job_id: str) -> set[int]:
        """The job is off its GPUs. Returns the servers it was on."""
        placement = self.servers.left(job_id)
        self._forget(moment, job_id)
        if placement is None:
            return set()
        if self.packing is not None:
            self.packing.refresh(moment, moment.view.groups.at(placement))
        return {machine for machine, _ in placement.slices}

    def _found(self, moment: Moment, entry: ev.ContactRestored | Start | Migrate | Resize | Reshare) -> set[int]:
        """Somebody else put the job where it is, or it is there after all: it is watched from now on."""
        job, groups = moment.view.job(entry.job), moment.view.groups
        if job.id not in groups:
            return set()
        touched = set() if isinstance(entry, (ev.ContactRestored, Reshare)) else self._gone(moment, job.id)
        group = groups.of(job.id)
        if isinstance(entry, (Start, Migrate, Resize)):
            self.servers.entered(job.id, group.placement)
            self._placed(moment, job, group.placement)
            if self.elastic is not None:
                self.elastic.found(moment, job, group.placement)
        elif isinstance(entry, Reshare):
            self._end_trial(moment, job.id)
            self.servers.recount(group.placement)
        if group.turn(job.id)[0] != job.id and group.placement.gpus == job.gpus:
            self.servers.note_packed(job.id)
        if self.packing is not None:
            self.packing.refresh(moment, group)
        return touched | {machine for machine, _ in group.placement.slices}

    def _end_trial(self, moment: Moment, job_id: str) -> None:
        if self.packing is not None:
            self.packing.end_trial(moment, job_id)

    def _forget(self, moment: Moment, job_id: str) -> None:
        memory = moment.memory
        self._end_trial(moment, job_id)
        self.ready.drop(job_id)
        if self.migration is not None:
            self.migration.forget(memory, job_id)
        if self.elastic is not None:
            self.elastic.forget(memory, job_id)
        if job_id in memory.rescued:
            del memory.rescued[job_id]
        self.watch.forget(memory, job_id)

    # --- what is decided ------------------------------------------------------------------------------------

    def plan(self, view: View, memory: GandivaMemory, now: float) -> Plan:
        """What is due is judged first; then who waits is served; what is left over makes the others faster."""
        idle, self._idle = self._idle == view.free.changes and _only_timers(view.news), -1
        with view.free.trial(), view.groups.trial():
            draft = Draft(view, memory, now, self.servers, self.ready, self._quantum)
            if self._judge(draft) or not idle or self.starving is not None:
                waiting = self._serve(draft)
            else:
                waiting = _still_waiting(draft)
            if self.migration is not None:
                self.migration.bring_together(draft)
            if self.elastic is not None:
                self.elastic.grow(draft)
            self._settle(draft)
            plan = draft.plan + [_waits(demand, self._limit) for demand in waiting]
            look = self._next_look(draft)
        if not draft.plan:
            self._idle = view.free.changes
        if look < math.inf:
            plan.append(WakeAt(max(look, _just_after(now))))
        return plan

    def _next_look(self, draft: Draft) -> float:
        """When there may be something to do, whatever happens; infinity: never."""
        look = self.watch.next_look(draft.memory)
        if self.elastic is not None:
            look = min(look, self.elastic.next_look(draft.memory))
        if self.starving is not None:
            look = min(look, self.starving.next_look(draft))
        return look

    def _serve(self, draft: Draft) -> list[Demand]:
        """Whatever follows from who is where and who waits, at whatever time. Returns whose jobs still wait."""
        if self.starving is not None:
            self.starving.serve(draft)
            for job_id in draft.preempted:
                self._forget(draft, job_id)
        serve(draft, self.elastic, self._limit)
        waiting = _still_waiting(draft)
        if self.packing is not None:
            self.packing.note_waiting(draft, waiting)
            if self.packing.attempt(draft) and waiting:
                serve(draft, self.elastic, self._limit)  # what packing has freed is for them
                waiting = _still_waiting(draft)
        if self.migration is not None:
            self.migration.lower_heights(draft, overloaded=bool(waiting))
            self.migration.defragment(draft)
        return waiting

    def _judge(self, draft: Draft) -> bool:
        """Jobs that have done their mini-batches: profiles are complete, trials are kept or undone. True where there
        are any."""
        verdicts = self.watch.verdicts(draft.view, draft.memory, draft.now)
        for verdict in verdicts:
            if verdict.check.partner is not None:
                assert self.packing is not None
                self.packing.judge(draft, verdict)
                continue
            draft.memory.alone[verdict.job] = verdict.seconds
            if verdict.check.before is not None and self.migration is not None:
                self.migration.judge(draft, draft.view.job(verdict.job), verdict)
            if self.packing is not None:
                self.packing.refresh(draft, draft.groups.of(verdict.job))
        return bool(verdicts)

    def _settle(self, draft: Draft) -> None:
        """Take note of what this plan does: who is where, who is to be profiled there, whose neighbours changed."""
        if not draft.plan:
            return
        for action in draft.plan:
            if isinstance(action, (Start, Migrate, Resize)):
                self._placed(draft, draft.view.job(action.job), action.placement, packed=_packed(action))
        if self.packing is not None:
            for placement in draft.changed:
                self.packing.refresh(draft, draft.groups.at(placement))
        if self.elastic is not None and draft.memory.could_grow:
            self.elastic.hear(draft, {machine for placement in draft.changed for machine, _ in placement.slices})

    def _placed(self, moment: Moment, job: ActiveJob, placement: Placement, packed: bool = False) -> None:
        memory = moment.memory
        if not packed:
            watched = memory.watched.get(job.id)
            if watched is None or watched.check.before is None:
                self.ready.drop(job.id)
                self.watch.watch(memory, job.id, moment.now, pace=memory.alone.pop(job.id, None))
        if self.migration is not None:
            self.migration.settled(moment, job, placement)
        if self.elastic is not None:
            self.elastic.settled(moment, job, placement)


def _packed(action: Start | Migrate | Resize) -> bool:
    return isinstance(action, Migrate) and action.share is not None and action.share.beside is not None


def _only_timers(news: Sequence[Entry]) -> bool:
    for entry in news:  # noqa: SIM110 - a generator costs
        if type(entry) is not ev.TimerDue:
            return False
    return True


def _still_waiting(draft: Draft) -> list[Demand]:
    return [bucket.demand for bucket, _ in draft.still_waiting()]


def _just_after(now: float) -> float:
    """A time the clock can tell from now."""
    return now + max(1e-6, abs(now) * 1e-12)


@lru_cache(maxsize=4096)
def _waits(demand: Demand, limit: int) -> Wait:
    kind = f"{demand.gpu_type} " if demand.gpu_type else ""
    told = f"fewer than {demand.gpus} {kind}GPUs{demand.inside} are free"
    if limit > 1:
        told += f", and no server for jobs of {demand.gpus} has fewer than {limit} taking turns"
    return Wait(demand, Reason(Token.WAITING_FOR_GPUS, told))
