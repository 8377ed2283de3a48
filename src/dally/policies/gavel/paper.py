"""Gavel as published: GPU time allocated when jobs come and go, dealt out in rounds of fixed length (sections 3 to
5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.placement import Placement
from dally.core.plan import Plan, Preempt, WakeAt
from dally.core.policy import View
from dally.core.states import ENDED, State
from dally.policies.gavel.allocation.problem import Fractions
from dally.policies.gavel.allotting import COUNTS_MONEY, Allotter
from dally.policies.gavel.columns import Columns, gpu_type_of
from dally.policies.gavel.estimator import Estimator
from dally.policies.gavel.job_standings import Standings
from dally.policies.gavel.known import Known
from dally.policies.gavel.memory import Edition, PaperMemory
from dally.policies.gavel.reasons import explain_all, explain_waiting
from dally.policies.gavel.rounds import Placer, choose, is_dealt, look

if TYPE_CHECKING:
    from dally.policies.gavel.policy import GavelOptions

_FAR: Final = 1e6  # rounds


class PaperRounds:
    """Plans round by round. What it remembers is a `PaperMemory`; what is kept here is worked out again if missing."""

    def __init__(self, options: GavelOptions) -> None:
        self.options = options
        self.conserving = options.objective not in COUNTS_MONEY
        self.learns = options.throughputs == "estimated"

    def new_memory(self) -> PaperMemory:
        return PaperMemory()

    def attach(self, view: View, memory: PaperMemory) -> None:
        columns = self.columns = Columns.of(view.topology, self.options.placement_sensitive)
        workers = tuple(view.topology.capacity(kind) for kind in columns.kinds)
        self.allotter = Allotter(self.options, columns, workers)
        self.placer = Placer(view.topology, columns, self.options.placement_sensitive)
        self.equal = [gpus / sum(workers) for gpus in workers]  # X^eq: time in proportion to the GPUs there are
        if memory.columns != columns.all:
            _translate(memory, columns)
        self.estimator = Estimator(memory.measured)
        self._known: dict[str, Known] = {}
        self._standings = Standings(len(columns.all))

    def notes(self, memory: PaperMemory) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.allotter.unpriced, *memory.notes)))

    def known(self, view: View, job_id: str) -> Known:
        """What is believed of a job; with learned rates, those of the last time somebody asked for them."""
        found = self._known.get(job_id)
        if found is None:
            job = view.job(job_id)
            found = self._known[job_id] = Known(view, job, self.columns.all)
            if self.options.placement_sensitive and job.gpus == 1:  # one GPU cannot be spread
                found.rates = tuple(rate if near else 0.0
                                    for rate, (_, near) in zip(found.rates, self.columns.all, strict=True))  # fmt: skip
        return found

    def standings(self, view: View, memory: PaperMemory, write: float | None = None) -> Standings:
        """The memory's tables as lists; `write`: the time of a plan that is going to change them."""
        if self._standings.edition is not memory.edition:  # objects: named tuples are never taken apart
            self._standings = Standings.read(memory, [self.known(view, job_id) for job_id in memory.share])
        if write is not None:
            self._standings.edition = memory.edition = Edition(write)
        return self._standings

    # --- who is there -------------------------------------------------------------------------------------

    def hear(self, view: View, memory: PaperMemory, entries: Sequence[Entry]) -> None:
        for entry in entries:
            kind = type(entry)
            if kind is ev.Measured or kind is ev.TimerDue:  # most of what is heard
                continue
            if kind is ev.Arrived:
                self._admit(view, memory, view.job(entry.job.id))  # type: ignore[union-attr]
            elif kind is ev.Released:
                self._admit(view, memory, view.job(entry.job))  # type: ignore[union-attr, arg-type]
            elif kind is ev.Finished or kind is ev.Failed or kind is ev.Cancelled or kind is ev.Held:
                self._forget(memory, entry.job)  # type: ignore[union-attr, arg-type]
            elif kind is ev.Interrupted or kind is ev.StartFailed or kind is pl.Preempt:
                self._lose(memory, entry.job)  # type: ignore[union-attr, arg-type]
                memory.freed = memory.restless = True
            elif kind is ev.Yielded:
                self._lose(memory, entry.job)  # type: ignore[union-attr, arg-type]
            elif kind is ev.MachineUp:
                memory.freed = memory.restless = True
            elif kind is ev.MachinesChanged:
                memory.freed = memory.restless = memory.changed = True
                memory.beside.clear()
            elif kind is ev.ContactRestored and self._is_strange(view, view.job(entry.job)):  # type: ignore[union-attr, arg-type]
                memory.strangers[entry.job] = True  # type: ignore[union-attr, index]
                memory.freed = memory.restless = True
            elif isinstance(entry, (pl.Start, pl.Migrate, pl.Resize)):
                self._find(view, memory, entry.job, entry.placement)
                memory.freed = memory.restless = True

    def _admit(self, view: View, memory: PaperMemory, job: ActiveJob) -> None:
        if job.id in memory.gone and job.state not in ENDED:  # held, and released before the round was over
            del memory.gone[job.id]
            self.known(view, job.id).job = job
            memory.came = memory.changed = True
        if job.state in ENDED or job.id in memory.share:
            return
        known = self.known(view, job.id)
        if self.learns:
            self._guess(memory, known, job)
        share = self._meanwhile(known)
        if self._standings.edition is memory.edition:  # objects
            self._standings.add(known, share)
        memory.share[job.id] = share
        memory.came = memory.changed = True

    def _forget(self, memory: PaperMemory, job_id: str) -> None:
        if job_id not in memory.share or job_id in memory.gone:
            return
        self._lose(memory, job_id)
        memory.gone[job_id] = True
        memory.freed = memory.changed = True

    def _lose(self, memory: PaperMemory, job_id: str) -> None:
        """It has no GPUs any more."""
        if job_id in memory.running:
            del memory.running[job_id]
        if memory.strangers:
            memory.strangers.pop(job_id, None)

    def _find(self, view: View, memory: PaperMemory, job_id: str, placement: Placement) -> None:
        """Somebody else gave it these GPUs: its time counts there, unless it cannot go on so."""
        self._lose(memory, job_id)
        if job_id in memory.share and job_id not in memory.gone and placement.slices:
            memory.running[job_id] = self._column(view, placement)
            if self._is_strange(view, view.job(job_id)):
                memory.strangers[job_id] = True

    def _is_strange(self, view: View, job: ActiveJob) -> bool:
        """Whether it has GPUs in a way that is not ours: somebody resized it, or part of them is gone."""
        return job.placement is not None and job.placement.gpus != job.gpus

    def _column(self, view: View, placement: Placement) -> int:
        kind = view.topology.machines[placement.slices[0][0]].gpu_type
        near = self.placer.is_near(placement, kind)
        return self.columns.all.index((kind, near))

    def _meanwhile(self, known: Known) -> Fractions:
        """Until the next allocation a new job is owed time by how fast it is where, or on all types alike if nobody
        may look; it has had none, so it goes first."""
        if self.options.aware:
            best = max(max(known.rates), 1e-300)
            return tuple([rate / best for rate in known.rates])
        columns = self.columns
        return tuple([self.equal[kind] if near and rate > 0 else 0.0 for rate, kind, (_, near)
                      in zip(known.rates, columns.kind_of, columns.all, strict=True)])  # fmt: skip

    # --- learned rates --------------------------------------------------------------------------------------

    def _learn(self, view: View, memory: PaperMemory) -> None:
        """What ran in the round that ends has been measured: that is its rate where it ran."""
        learned = self._learned(memory)
        for job_id, column in memory.running.items():
            job = view.job(job_id)
            if job.state is State.RUNNING:
                learned.observe(job.job.model, (job.gpus, column), job.speed)
        if learned.measured is not memory.measured:  # objects
            memory.measured = learned.measured

    def _learned(self, memory: PaperMemory) -> Estimator:
        if self.estimator.measured is not memory.measured:  # objects
            self.estimator = Estimator(memory.measured)
        return self.estimator

    def _guess(self, memory: PaperMemory, known: Known, job: ActiveJob) -> None:
        """Learned rates where profiles would say; whether it fits or runs there at all is still known."""
        ways = tuple((job.gpus, column) for column in range(len(self.columns.all)))
        guessed = self._learned(memory).rates(job.job.model, ways)
        known.rates = tuple(rate / known.step if told > 0 else 0.0
                            for rate, told in zip(guessed, known.rates, strict=True))  # fmt: skip

    # --- rounds -------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: PaperMemory, now: float) -> Plan:
        came, freed, restless = memory.came, memory.freed, memory.restless
        if came:
            memory.came = False
        if freed:
            memory.freed = memory.restless = False
        plan: Plan = []
        if memory.quiet and (came or freed):
            at_once = came or restless or self.options.backfill or len(memory.gone) == len(memory.share)
            plan += self._stir(view, memory, now) if at_once else self._sleep(memory, now)
        if memory.ends is None or now >= memory.ends:
            plan = self._round(view, memory, now)
        elif self.options.backfill and (came or freed):
            plan += self._between(view, memory, now)
        return plan + explain_waiting(view, plan)

    def _round(self, view: View, memory: PaperMemory, now: float) -> Plan:
        self._settle(view, memory, now)
        if self.learns:
            self._learn(view, memory)
        if not memory.share:
            memory.ends, memory.quiet = None, False
            return []
        plan: Plan = []
        due = memory.allocated_at is None or now - memory.allocated_at >= self.options.reallocate
        told = memory.changed and due
        if told:
            self._allocate(view, memory, now)
        plan += self._deal(view, memory, now)
        memory.began, memory.boundary = now, now + self.options.round
        quiet = self._all_run_all_the_time(view, memory) and not (memory.changed and self.options.backfill)
        memory.quiet = quiet
        plan += self._sleep(memory, now) if quiet else self._wake_at(memory, memory.boundary, now)
        return plan + (self._explain(view, memory) if told else [])

    def _settle(self, view: View, memory: PaperMemory, now: float) -> None:
        """The books of the round up to now: time received; those who have gone leave."""
        self._book(view, memory, now)
        if memory.gone:
            self.standings(view, memory, now).remove(memory, memory.gone)
            for job_id in memory.gone:
                memory.isolated.pop(job_id, None)
                self._known.pop(job_id, None)
            memory.gone.clear()

    def _book(self, view: View, memory: PaperMemory, now: float) -> None:
        """Time received in the round that ends."""
        if memory.running:
            self.standings(view, memory, now).book(memory, memory.running, now - memory.began)

    def _all_run_all_the_time(self, view: View, memory: PaperMemory) -> bool:
        """Whether everybody has the GPUs on which it is allocated all of its time, and nothing elsewhere. Such a cell
        is ahead of all cells without a share however long it has been served, and all of them fit: the next rounds
        deal the same."""
        if len(memory.running) < len(memory.share) or self.learns or self.options.placement_sensitive:
            return False
        columns, running = self.columns, memory.running
        if not self.standings(view, memory).all_served(running):
            return False
        return len(columns.kinds) == 1 or all(
            (job := view.job(job_id)).placement is None  # about to start there
            or gpu_type_of(view, job) == columns.all[column][0] for job_id, column in running.items())  # fmt: skip

    def _wake_at(self, memory: PaperMemory, time: float, now: float) -> Plan:
        memory.ends = time
        return [WakeAt(time)] if now < time < math.inf else []

    def _sleep(self, memory: PaperMemory, now: float) -> Plan:
        """Rounds that deal the same are not looked at, up to the next allocation if one is to be made."""
        if not memory.changed or memory.allocated_at is None:
            return self._wake_at(memory, math.inf, now)
        time = memory.boundary
        if max(now, memory.allocated_at + self.options.reallocate) - time > _FAR * self.options.round:
            return self._wake_at(memory, math.inf, now)  # nobody lives to see it
        while time < now or time - memory.allocated_at < self.options.reallocate:
            time += self.options.round
        return self._wake_at(memory, time, now)

    def _stir(self, view: View, memory: PaperMemory, now: float) -> Plan:
        """Somebody came, or a fault: the next boundary may deal otherwise. Books the rounds that were not looked at."""
        memory.quiet = False
        time, last = memory.boundary, memory.began
        while time < now:
            last, time = time, time + self.options.round
        self._book(view, memory, last)
        memory.began = last
        return self._wake_at(memory, time, now)

    def _allocate(self, view: View, memory: PaperMemory, now: float) -> None:
        standings = self.standings(view, memory, now)
        if self.learns:
            for known in standings.known:
                self._guess(memory, known, view.job(known.id))
        standings.allocate(memory, self.allotter.allocate(view, memory, standings.known, now))
        memory.allocated_at, memory.changed = now, False

    def _deal(self, view: View, memory: PaperMemory, now: float) -> Plan:
        away = self._send_away(view, memory) if memory.strangers else []
        standings, running = self.standings(view, memory), memory.running
        order = standings.order(self.options.round / 2.0, self.conserving)
        holders = look(view, standings, self.columns, running, now)
        choice = choose(standings, self.columns, order, holders, away)
        strict = self.options.placement_sensitive
        if not strict and is_dealt(holders, choice):
            return [Preempt(job_id) for job_id in away]
        plan = self.placer.carry(view, standings, running, holders, choice)
        plan = [*map(Preempt, away), *plan]
        if strict or len(running) < choice.count:
            stopped = {action.job for action in plan if isinstance(action, Preempt)}
            self.placer.fill(view, standings, order, plan, running, stopped)
        return plan

    def _send_away(self, view: View, memory: PaperMemory) -> list[str]:
        """Jobs found on GPUs in a way that is not ours go back to the queue; who cannot be moved yet goes later."""
        movable = [job_id for job_id in memory.strangers if view.job(job_id).movable]
        away = [job_id for job_id in movable if self._is_strange(view, view.job(job_id))]
        for job_id in movable:
            del memory.strangers[job_id]
        for job_id in away:
            memory.running.pop(job_id, None)
        return away

    def _between(self, view: View, memory: PaperMemory, now: float) -> Plan:
        """Inside a round free GPUs go to those who wait, in the same order; nobody is stopped for them."""
        if not view.free.total or not view.waiting:
            return []
        if memory.gone:
            self._settle(view, memory, now)
            memory.began = now
        plan: Plan = []
        standings = self.standings(view, memory)
        order = standings.order(self.options.round / 2.0, self.conserving)
        self.placer.fill(view, standings, order, plan, memory.running, set())
        return plan

    def _explain(self, view: View, memory: PaperMemory) -> Plan:
        shares = {job_id: share for job_id, share in memory.share.items() if job_id not in memory.running}
        return explain_all(view, self.columns.names, shares, len(memory.share))


def _translate(memory: PaperMemory, columns: Columns) -> None:
    """The cluster's GPU types are others than when this was written: figures move to the columns of today."""
    was = {column: place for place, column in enumerate(memory.columns)}
    places = [was.get(column) for column in columns.all]
    now = {place: now for now, place in enumerate(places) if place is not None}
    width, received = len(was), memory.received
    memory.received = tuple([0.0 if place is None else received[first + place]
                             for first in range(0, len(received), max(width, 1)) for place in places])  # fmt: skip
    tables: list[Any] = [memory.share, memory.pair_share, memory.pair_received]
    for table in tables:
        for key, figures in list(table.items()):
            table[key] = tuple(0.0 if place is None else figures[place] for place in places)
    running: list[Any] = [memory.running, memory.pairs]
    for table in running:
        for key, column in list(table.items()):
            if column in now:
                table[key] = now[column]
            else:
                del table[key]
    memory.measured = tuple(each._replace(way=(each.way[0], now[each.way[1]]))
                            for each in memory.measured if each.way[1] in now)  # fmt: skip
    memory.columns = columns.all
