"""Gavel as published: GPU time allocated when jobs come and go, dealt out in rounds of fixed length (sections 3 to
5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.plan import Plan, Preempt, WakeAt
from dally.core.policy import View
from dally.core.states import State
from dally.policies.gavel.allotting import COUNTS_MONEY, Allotter, Member
from dally.policies.gavel.estimator import Estimator
from dally.policies.gavel.known import Known
from dally.policies.gavel.reasons import explain_all, explain_waiting
from dally.policies.gavel.rounds import (
    Columns,
    Floats,
    Placer,
    Standings,
    choose,
    kind_index,
    room_of,
    still_loading,
)

if TYPE_CHECKING:
    from dally.policies.gavel.policy import GavelOptions


class PaperRounds:
    """What is remembered between two plans: who is there, what it was allocated, what it got."""

    def __init__(self, options: GavelOptions) -> None:
        self.options = options
        self.conserving = options.objective not in COUNTS_MONEY
        self.members: dict[str, Member] = {}
        self.allotter: Allotter | None = None
        self._gone: set[str] = set()
        self._running: dict[str, int] = {}  # job → column, in this round
        self._began: float = 0.0
        self._ends: float | None = None  # when something is done next; None: nobody is there
        self._allocated_at: float | None = None
        self._changed = False
        self._quiet = False  # the rounds to come would deal what this one did, until somebody comes or goes
        self._boundary = 0.0  # the end of the round in which it became quiet

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.allotter is None else tuple(self.allotter.notes)

    def plan(self, view: View, now: float) -> Plan:
        if self.allotter is None:
            self._start(view)
        came = freed = restless = False
        for event in view.news:
            kind = type(event)
            if kind is ev.Arrived:
                came |= self._admit(view, view.job(event.job.id))  # type: ignore[union-attr]
            elif kind is ev.Finished or kind is ev.Failed or kind is ev.Cancelled:
                freed |= self._forget(event.job)  # type: ignore[union-attr, arg-type]
            elif kind is ev.Interrupted:
                self._lose(event.job)  # type: ignore[union-attr, arg-type]
                freed = restless = True
            elif kind is ev.MachineUp:
                freed = restless = True
        plan: Plan = []
        if self._quiet and (came or freed):
            at_once = came or restless or self.options.backfill or not self.members
            plan += self._stir(now) if at_once else self._sleep(now)
        if self._ends is None or now >= self._ends:
            plan = self._round(view, now)
        elif self.options.backfill and (came or freed):
            plan += self._between(view, now)
        return plan + explain_waiting(view, plan)

    def _start(self, view: View) -> None:
        columns = self.columns = Columns.of(view.topology, self.options.placement_sensitive)
        workers = tuple(view.topology.capacity(kind) for kind in columns.kinds)
        self.allotter = Allotter(self.options, columns, workers)
        self.standings = Standings(len(columns.all))
        self.placer = Placer(view.topology, columns, self.options.placement_sensitive)
        self.estimator = Estimator() if self.options.throughputs == "estimated" else None
        self._learned = 0
        self.equal = np.array(workers, dtype=float) / sum(workers)  # X^eq: time in proportion to the GPUs there are

    # --- who is there -------------------------------------------------------------------------------------

    def _admit(self, view: View, job: ActiveJob) -> bool:
        if job.state is not State.WAITING:
            return False
        known = Known(view, job, self.columns.all)
        if self.estimator is not None:
            self._guess(known, job)
        if self.options.placement_sensitive and job.gpus == 1:  # one GPU cannot be spread
            known.rates = tuple(rate if near else 0.0
                                for rate, (_, near) in zip(known.rates, self.columns.all, strict=True))  # fmt: skip
        self.members[job.id] = Member(known, job)
        runs = np.array(known.rates) > 0
        self.standings.add(job.id, job.gpus, self._meanwhile(known), runs)
        self._changed = True
        return True

    def _learn(self) -> None:
        """What ran in the round that ends has been measured: that is its rate where it ran."""
        for job_id, column in self._running.items() if self.estimator is not None else ():
            job = self.members[job_id].job
            if job.state is State.RUNNING and self.estimator is not None:
                self.estimator.observe(job.job.model, (job.gpus, column), job.speed)

    def _guess(self, known: Known, job: ActiveJob) -> None:
        """Learned rates where profiles would say; whether it fits or runs there at all is still known."""
        assert self.estimator is not None
        ways = [(job.gpus, column) for column in range(len(self.columns.all))]
        guessed = self.estimator.rates(job.job.model, ways)
        known.rates = tuple(rate / known.step if told > 0 else 0.0
                            for rate, told in zip(guessed, known.rates, strict=True))  # fmt: skip

    def _meanwhile(self, known: Known) -> Floats:
        """Until the next allocation a new job is owed time by how fast it is where, or on all types alike if nobody
        may look; it has had none, so it goes first."""
        rates = np.array(known.rates)
        if self.options.aware:
            found: Floats = rates / max(float(rates.max()), 1e-300)
            return found
        near = [self.equal[kind] if near else 0.0
                for kind, (_, near) in zip(self.columns.kind_of, self.columns.all, strict=True)]  # fmt: skip
        return np.where(rates > 0, np.array(near), 0.0)

    def _forget(self, job_id: str) -> bool:
        if self.members.pop(job_id, None) is None:
            return False
        self._gone.add(job_id)
        self._running.pop(job_id, None)
        self._changed = True
        return True

    def _lose(self, job_id: str) -> None:
        """A fault took its GPUs."""
        self._running.pop(job_id, None)

    # --- rounds -------------------------------------------------------------------------------------------

    def _round(self, view: View, now: float) -> Plan:
        self._book(now)
        self._learn()
        if self._gone:
            self.standings.remove(self._gone)
            self._gone = set()
        self._quiet = False
        if not self.members:
            self._ends = None
            return []
        plan: Plan = []
        due = self._allocated_at is None or now - self._allocated_at >= self.options.reallocate
        told = self._changed and due
        if told:
            self._allocate(view, now)
        plan += self._deal(view, now)
        self._began, self._boundary = now, now + self.options.round
        self._quiet = self._all_run_all_the_time(view) and not (self._changed and self.options.backfill)
        plan += self._sleep(now) if self._quiet else self._wake_at(self._boundary, now)
        return plan + (self._explain(view) if told else [])

    def _all_run_all_the_time(self, view: View) -> bool:
        """Whether everybody has the GPUs on which it is allocated all of its time, and nothing elsewhere. Such a cell
        is ahead of all cells without a share however long it has been served, and all of them fit: the next rounds
        deal the same."""
        if len(self._running) < len(self.members) or self.estimator is not None or self.options.placement_sensitive:
            return False
        share, index, columns = self.standings.share, self.standings.index, self.columns
        if np.count_nonzero(share[: len(index)]) > len(index):
            return False
        return all(share[index[job_id], column] == 1.0
                   and ((job := self.members[job_id].job).placement is None  # about to start there
                        or kind_index(view, columns, job) == columns.kind_of[column])
                   for job_id, column in self._running.items())  # fmt: skip

    def _wake_at(self, time: float, now: float) -> Plan:
        self._ends = time
        return [WakeAt(time)] if now < time < math.inf else []

    def _sleep(self, now: float) -> Plan:
        """Rounds that deal the same are not looked at, up to the next allocation if one is to be made."""
        if not self._changed or self._allocated_at is None:
            return self._wake_at(math.inf, now)
        time = self._boundary
        while time < now or time - self._allocated_at < self.options.reallocate:
            time += self.options.round
        return self._wake_at(time, now)

    def _stir(self, now: float) -> Plan:
        """Somebody came, or a fault: the next boundary may deal otherwise. Books the rounds that were not looked at."""
        self._quiet = False
        time, last = self._boundary, self._began
        while time < now:
            last, time = time, time + self.options.round
        self._book(last)
        self._began = last
        return self._wake_at(time, now)

    def _book(self, now: float) -> None:
        """Time received in the round that ends."""
        index = self.standings.index
        rows = [index[job_id] for job_id in self._running]
        self.standings.received[rows, list(self._running.values())] += now - self._began

    def _allocate(self, view: View, now: float) -> None:
        assert self.allotter is not None
        if self.estimator is not None and self.estimator.version != self._learned:
            self._learned = self.estimator.version
            for member in self.members.values():
                self._guess(member.known, member.job)
        running = {job_id: self.columns.kind_of[column] for job_id, column in self._running.items()}
        found = self.allotter.allocate(view, self.members, running, now)
        count = len(self.standings.ids)
        if list(self.members) != self.standings.ids:
            places = {job_id: row for row, job_id in enumerate(self.members)}
            found = found[[places[job_id] for job_id in self.standings.ids]]
        self.standings.share[:count] = found
        self.standings.received[:count] = 0.0
        self._allocated_at, self._changed = now, False

    def _deal(self, view: View, now: float) -> Plan:
        order = self.standings.order(self.options.round / 2.0, self.conserving)
        loading = still_loading(view, self._running, now)
        chosen = choose(self.standings, self.columns, order, room_of(view, self.columns, self._running), loading)
        if chosen == self._running and not self.options.placement_sensitive:
            return []
        plan, after = self.placer.carry(view, self._running, chosen)
        if len(after) < len(chosen) or self.options.placement_sensitive:
            stopped = {action.job for action in plan if isinstance(action, Preempt)}
            self.placer.fill(view, self.standings, order, plan, after, stopped)
        self._running = after
        return plan

    def _between(self, view: View, now: float) -> Plan:
        """Inside a round free GPUs go to those who wait, in the same order; nobody is stopped for them."""
        if not view.free.total or not view.waiting:
            return []
        if self._gone:
            self._settle(now)
        plan: Plan = []
        order = self.standings.order(self.options.round / 2.0, self.conserving)
        self.placer.fill(view, self.standings, order, plan, self._running, set())
        return plan

    def _settle(self, now: float) -> None:
        self._book(now)
        self._began = now
        self.standings.remove(self._gone)
        self._gone = set()

    def _explain(self, view: View) -> Plan:
        shares = {job_id: self.standings.share[place].tolist() for job_id, place in self.standings.index.items()
                  if job_id not in self._running}  # fmt: skip
        return explain_all(view, self.columns.names, shares, len(self.members))

