"""Gandiva by its options: which of its mechanisms are on, and the order in which they are asked at every event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Reshare, Resize, Start, Wait, WakeAt
from dally.core.policy import PolicyBase, View
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
from dally.policies.options import option, unless, when, written

_PAPER = "OSDI'18"
_WHOLE = unless("variant=dally-paper is affinity and migration only", variant="dally-paper")
_GONE = (ev.Finished, ev.Failed, ev.Cancelled, ev.Interrupted, ev.StartFailed, ev.Yielded)
_HEARD = frozenset((*_GONE, ev.MachineDown, ev.MachineDrained, ev.MachineUp, ev.MachinesChanged, ev.ContactRestored,
                    Start, Migrate, Resize, Reshare, Preempt))  # fmt: skip


class Gandiva(PolicyBase):
    """Time-slicing, packing, migration and growth, judged by the time per mini-batch that jobs show."""

    title: ClassVar[str] = "gandiva"
    source: ClassVar[str] = "Gandiva, Xiao et al., OSDI'18"
    shares = True

    @dataclass(frozen=True, slots=True)
    class Options:
        quantum: float = option(60.0, "a turn of weight 1 on shared GPUs", source=_PAPER, unit="s", only_with=_WHOLE)
        slicing: bool = option(True, "jobs of one size take turns where no GPUs are free", source=_PAPER,
                               only_with=_WHOLE)  # fmt: skip
        height: int = option(4, "turns on the same GPUs at most; who comes then waits",
                             only_with=(_WHOLE, when("without slicing nobody takes turns", slicing=True)))  # fmt: skip
        packing: bool = option(True, "under overload, try jobs beside each other", source=_PAPER, only_with=_WHOLE)
        migration: bool = option(True, "lower heights, bring gangs together, empty servers", source=_PAPER)
        grow_shrink: bool = option(True, "jobs that declare it use idle GPUs of their server", source=_PAPER,
                                   only_with=_WHOLE)  # fmt: skip
        minibatches: int = option(20, "mini-batches over which a job is measured before it is judged")
        gain: float = option(0.05, "how much better a pair or a move must be than before to be kept")
        defragment: float = option(0.75, "share of free GPUs from which a server is emptied",
                                   only_with=when("migration is off", migration=True))  # fmt: skip
        grow_after: float = option(300.0, "how long GPUs must be idle before a job grows onto them", unit="s",
                                   only_with=(_WHOLE, when("grow_shrink is off", grow_shrink=True)))  # fmt: skip
        starvation: float | None = option(None, "who has waited for so long gets its turn, whatever is in the way; "
                                          "none: as in the paper, never", unit="s")  # fmt: skip
        seed: int = option(0, "of the noise in what is measured")
        variant: Literal["paper", "dally-paper"] = option(
            "paper", "the paper, or what Dally was compared with: affinity and migration only",
            source="OSDI'18; arXiv 2401.16492")  # fmt: skip

    def __init__(self, options: Options) -> None:
        _check(options)
        self.options = options
        self.name = written(self.title, options)
        lean = options.variant == "dally-paper"
        slicing = options.slicing and not lean
        self._limit = options.height if slicing else 1
        self.watch = Introspection(options.minibatches, options.seed, options.quantum)
        # An undone trial leaves its two jobs to take turns, even where slicing is off.
        packs = options.packing and not lean
        self.packing = Packing(self.watch, options.gain, max(2, self._limit)) if packs else None
        self.migration = Migration(self.watch, options.gain, options.defragment) if options.migration else None
        self.elastic = Elastic(options.grow_after) if options.grow_shrink and not lean else None
        self.starving = None if options.starvation is None else Starvation(options.starvation, slicing)

    def new_memory(self) -> GandivaMemory:
        return GandivaMemory()

    def attach(self, view: View, memory: GandivaMemory) -> None:
        """Index who is where and who could be packed: all that follows from the view and the memory."""
        self.servers, self.ready = Servers(view, memory), Ready(memory.draft)
        if self.packing is not None:
            moment = Moment(view, memory, 0.0, self.servers, self.ready)
            for group in view.groups:
                self.packing.index(moment, group)

    # --- what happened --------------------------------------------------------------------------------------

    def hear(self, view: View, memory: GandivaMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        """Jobs that are gone from their GPUs: their groups are smaller, their neighbours' trials void."""
        heard = [entry for entry in entries if type(entry) in _HEARD]
        if not heard:
            return ()
        moment = Moment(view, memory, now, self.servers, self.ready)
        touched: set[int] = set()
        for entry in heard:
            if isinstance(entry, (*_GONE, Preempt)):
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
        return ()

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
        memory.rescued.pop(job_id, None)
        self.watch.forget(memory, job_id)

    # --- what is decided ------------------------------------------------------------------------------------

    def plan(self, view: View, memory: GandivaMemory, now: float) -> Plan:
        """What is due is judged first; then who waits is served; what is left over makes the others faster."""
        with view.free.trial(), view.groups.trial():
            draft = Draft(view, memory, now, self.servers, self.ready, self.options.quantum)
            self._judge(draft)
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
                self.migration.bring_together(draft)
            if self.elastic is not None:
                self.elastic.grow(draft)
            self._settle(draft)
            plan = draft.plan + [_waits(demand, self._limit) for demand in waiting]
            looks = [self.watch.next_look(memory), self.elastic.next_look(memory) if self.elastic else None,
                     self.starving.next_look(draft) if self.starving else None]  # fmt: skip
        times = [look for look in looks if look is not None]
        if times:
            plan.append(WakeAt(max(min(times), _just_after(now))))
        return plan

    def _judge(self, draft: Draft) -> None:
        """Jobs that have done their mini-batches: profiles are complete, trials are kept or undone."""
        for verdict in self.watch.verdicts(draft.view, draft.memory, draft.now):
            if verdict.check.partner is not None:
                assert self.packing is not None
                self.packing.judge(draft, verdict)
                continue
            draft.memory.alone[verdict.job] = verdict.seconds
            if verdict.check.before is not None and self.migration is not None:
                self.migration.judge(draft, draft.view.job(verdict.job), verdict)
            if self.packing is not None:
                self.packing.refresh(draft, draft.groups.of(verdict.job))

    def _settle(self, draft: Draft) -> None:
        """Take note of what this plan does: who is where, who is to be profiled there, whose neighbours changed."""
        for action in draft.plan:
            if isinstance(action, (Start, Migrate, Resize)):
                self._placed(draft, draft.view.job(action.job), action.placement, packed=_packed(action))
        if self.packing is not None:
            for placement in draft.changed:
                self.packing.refresh(draft, draft.groups.at(placement))
        if self.elastic is not None:
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


def _check(options: Gandiva.Options) -> None:
    """Values that make no sense are refused in a sentence."""
    def refuse(text: str) -> None:
        raise UserError(f"policy 'gandiva': {text}")

    if not 0 < options.quantum < float("inf"):
        refuse("a turn needs a quantum above 0")
    if options.height < 1:
        refuse(f"height={options.height}: at least one job has its GPUs")
    if options.minibatches < 1:
        refuse(f"minibatches={options.minibatches}: nothing is measured in less than one")
    if not 0 < options.defragment <= 1:
        refuse(f"defragment={options.defragment:g} is a share of a server's GPUs, above 0 and at most 1")
    if not 0 < options.grow_after < float("inf"):
        refuse("grow_after must be a time above 0: GPUs are never idle for ever, nor is it looked at them all the time")
    if options.starvation == 0:
        refuse("starvation=0 would help everybody at once; write none or a time above 0")
