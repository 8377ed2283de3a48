"""What every form of Tiresias but the released one makes of what it remembers: where gangs go, what total GPU times are
like, and who has not been told yet why it waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.events import Arrived, Finished, Measured, Released, Started, TimerDue, Yielded
from dally.core.journal import Entry
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.states import State
from dally.policies.greedy import plan_by_rank
from dally.policies.placing import Rule
from dally.policies.tiresias.gittins import Distribution
from dally.policies.tiresias.lanes import Lanes
from dally.policies.tiresias.locality import plan_with_locality
from dally.policies.tiresias.profile import Packing
from dally.policies.tiresias.remembered import PaperMemory

ENDS = (ev.Finished, ev.Failed, ev.Cancelled)
GOES = (*ENDS, ev.Held)  # what takes a job out of the queue for good, or until it is released
BACK = (ev.Yielded, ev.Interrupted, ev.StartFailed)  # what sends a job back to the queue
# what happens most, looked up once
ARRIVED: Final = Arrived
FINISHED: Final = Finished
MEASURED: Final = Measured
TIMER_DUE: Final = TimerDue
YIELDED: Final = Yielded


def answers(planned: float, now: float, entries: Sequence[Entry]) -> bool:
    """Whether this is what the world says at once to the plan just made: no instant of its own, nothing falls due."""
    if now != planned:
        return False
    for entry in entries:  # noqa: SIM110 - at every event, and a generator costs
        if type(entry) is not MEASURED and not isinstance(entry, (Yielded, Started)):
            return False
    return True


class Placing:
    """Where gangs go: by one rule for all, or by a decision per job that is learned from what they show."""

    def __init__(self, rule: Rule | None, packing: Packing | None) -> None:
        assert (rule is None) != (packing is None)
        self.rule = rule
        self.lanes = None if packing is None else Lanes(packing)

    def attach(self, view: View, memory: PaperMemory) -> None:
        if self.lanes is not None:
            packing = self.lanes.packing
            packing.recall(memory.seen)
            self.lanes = Lanes(packing)
            view.waiting.watch(self.lanes)

    def hear(self, view: View, memory: PaperMemory, entries: Sequence[Entry]) -> list[ActiveJob]:
        """Learn from those who leave their GPUs. Returns waiting jobs that are to be sorted into other lanes."""
        if self.lanes is None:
            return []
        learns, taught = self.lanes.packing.learns, False
        for entry in entries:
            if type(entry) is MEASURED:
                if learns:
                    self._runs(memory, view.job(entry.job))
            elif type(entry) is TIMER_DUE:
                continue
            elif type(entry) is YIELDED or isinstance(entry, BACK):
                job = view.job(entry.job)
                self._waits(memory, job)
                taught |= self._left(memory, job)
            elif type(entry) is ARRIVED:
                self._waits(memory, view.job(entry.job.id))
            elif type(entry) is FINISHED or isinstance(entry, GOES):
                _explained(memory, entry.job)
                taught |= self._left(memory, view.job(entry.job))
            elif isinstance(entry, Released):
                self._waits(memory, view.job(entry.job))
            elif isinstance(entry, pl.Start):  # by somebody else
                _explained(memory, entry.job)
                if learns:
                    self._runs(memory, view.job(entry.job))
        if not taught:
            return []
        astray = self.lanes.astray(view)
        for job in astray:
            memory.unexplained[job.id] = True
        return astray

    def _waits(self, memory: PaperMemory, job: ActiveJob) -> None:
        if job.state is State.WAITING:  # and was not turned away, nor has ended since
            memory.unexplained[job.id] = True

    def _runs(self, memory: PaperMemory, job: ActiveJob) -> None:
        if job.gpus > 1 and job.placement is not None and job.step_time > 0:
            machines, slices = memory.machines, len(job.placement.slices)
            if job.id not in machines or machines[job.id] != slices:
                machines[job.id] = slices

    def _left(self, memory: PaperMemory, job: ActiveJob) -> bool:
        if job.gpus == 1 or job.id not in memory.machines:
            return False  # nobody watched it
        machines = memory.machines[job.id]
        del memory.machines[job.id]
        return self.lanes is not None and self.lanes.packing.observe(job.job, machines, job.exposed)

    def plan(self, view: View, memory: PaperMemory, now: float, lease: float | None = None) -> Plan:
        memory.planned = now
        if self.lanes is None:
            assert self.rule is not None
            return plan_by_rank(view, now, self.rule, preempt=True, lease=lease)
        unexplained = memory.unexplained
        if not unexplained:
            return plan_with_locality(view, now, self.lanes, (), lease)
        plan = plan_with_locality(view, now, self.lanes, [view.job(job_id) for job_id in unexplained], lease)
        unexplained.clear()
        return plan


def _explained(memory: PaperMemory, job_id: str) -> None:
    """Nobody has to be told any more why it waits."""
    if job_id in memory.unexplained:
        del memory.unexplained[job_id]


class Service:
    """The distribution of total GPU time: given once and for all, or learned from jobs as they end."""

    def __init__(self, samples: Iterable[float] | None) -> None:
        self.known = Distribution(samples or ())
        self.learns = samples is None

    def attach(self, memory: PaperMemory) -> None:
        if self.learns:
            self.known = Distribution(islice(memory.totals.values(), memory.fitted))

    def hear(self, view: View, memory: PaperMemory, entries: Sequence[Entry]) -> bool:
        """True where the index of every job is another one from now on."""
        if not self.learns:
            return False
        for entry in entries:
            if isinstance(entry, (ev.Finished, ev.Failed)) and (job := view.job(entry.job)).attained > 0:
                memory.totals[job.id] = job.attained
        return self.fit(memory)

    def fit(self, memory: PaperMemory) -> bool:
        """Take in what was learned, where that is a tenth more than at the last fit. Fitting again moves every waiting
        job, so it is done a logarithmic number of times, not at every end."""
        if len(memory.totals) < max(memory.fitted + 1, 1.1 * memory.fitted):
            return False
        memory.fitted = len(memory.totals)
        self.known = Distribution(memory.totals.values())
        return True
