"""Tiresias' queues: few priorities instead of a continuous one, so that jobs are not preempted all the time.

A job starts in queue 0 and moves down when the GPU-seconds it has had reach its queue's limit (NSDI'19, section
3.2). Inside a queue the order is that of first starts, and those who never ran come last; or, as in the released
simulator, those who run come before those who wait. With the Gittins index, in every queue but the last, the index
decides first, with Δ up to the queue's limit; it changes while a job runs, and is brought up to date sixteen times
on the way through a queue. Moving down is an event with a time of its own.

PROMOTEKNOB k: a job that has run and then waits for k × the time it has executed goes back to queue 0, and both
counts begin anew. It is served before all that were not promoted, until it is demoted again. Who waits in queue 0
can starve too: one that has never run comes behind all who run, and a low index behind a stream of high ones. After
k × the time queue 0 would give it, such a job gets the place of one that starts now, so that those who start later
yield to it (ours: without this the wait of a large gang has no bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from dally.core.active import ActiveJob
from dally.core.events import Released
from dally.core.journal import Entry
from dally.core.memory import Order
from dally.core.plan import Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import ENDED, State
from dally.policies.tiresias.memory import (
    ARRIVED,
    BACK,
    FINISHED,
    GOES,
    MEASURED,
    TIMER_DUE,
    YIELDED,
    Placing,
    Service,
    answers,
)
from dally.policies.tiresias.remembered import Due, QueuesMemory, Standing

LOOKS: Final = 16  # times on the way through a queue that a running job's Gittins index is brought up to date


class Queues:
    """Queues by attained service; `service` is None for least attained service, else the Gittins index decides."""

    def __init__(self, limits: tuple[float, ...], promote: float, placing: Placing, service: Service | None, *,
                 running_first: bool) -> None:  # fmt: skip
        self.limits = limits  # of every queue but the last
        self.promote = promote
        self.running_first = running_first
        self.placing = placing
        self.service = service
        self._wake = WakeAt(0.0)  # as last said: mostly that has not changed

    def new_memory(self) -> QueuesMemory:
        return QueuesMemory()

    def attach(self, view: View, memory: QueuesMemory) -> None:
        self.placing.attach(view, memory)
        if self.service is not None:
            self.service.attach(memory)

    def rank(self, view: View, memory: QueuesMemory, job: ActiveJob, now: float) -> Rank:
        standings = memory.standings
        # who is kept back is not known yet
        standing = standings[job.id] if job.id in standings else self._new(job, now)
        if standing.promoted:  # before any other: a job that is promoted into starvation is not promoted
            return Rank(standing.queue, then=-math.inf, tie=(standing.start,))
        if self.service is not None and standing.queue < len(self.limits):
            attained = job.attained_at(now) - standing.restart
            index = self.service.known.until(attained, self.limits[standing.queue])
            return Rank(standing.queue, then=-index, tie=(standing.start,))
        if self.running_first:
            return Rank(standing.queue, then=0.0 if standing.running else 1.0, tie=(standing.start,))
        return Rank(standing.queue, 0.0, standing.start)

    def plan(self, view: View, memory: QueuesMemory, now: float) -> Plan:
        plan = self.placing.plan(view, memory, now)
        for action in plan:
            if type(action) is Start:
                self._resume(memory, view.job(action.job), now)
            elif type(action) is Preempt:
                self._pause(memory, view.job(action.job), now)
        due = memory.due
        if due:
            time = due[0][0]
            if time <= now:
                time = math.nextafter(now, math.inf)
            if time != self._wake.time:
                self._wake = WakeAt(time)
            plan.append(self._wake)
        return plan

    # --- what happened ------------------------------------------------------------------------------------

    def hear(self, view: View, memory: QueuesMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        for entry in entries:
            if type(entry) is MEASURED or type(entry) is TIMER_DUE:  # most of all, and nothing to the queues
                continue
            if type(entry) is YIELDED or isinstance(entry, BACK):
                job = view.job(entry.job)
                if job.state is State.WAITING and memory.standings[job.id].running:  # by a fault: nobody planned that
                    self._pause(memory, job, now)
            elif type(entry) is ARRIVED:
                self._join(memory, view.job(entry.job.id), now)
            elif type(entry) is FINISHED or isinstance(entry, GOES):
                self._forget(memory, view.job(entry.job))
            elif isinstance(entry, Released):
                self._join(memory, view.job(entry.job), now)
            elif isinstance(entry, Start):  # by somebody else, as the preemption below
                self._resume(memory, view.job(entry.job), now)
            elif isinstance(entry, Preempt):
                self._pause(memory, view.job(entry.job), now)
        moved = self.placing.hear(view, memory, entries)
        if not answers(memory.planned, now, entries):
            moved += self._move(view, memory, now)
            if self.service is not None:
                if self.service.hear(view, memory, entries):
                    return [*view.waiting, *view.preemptible]
                moved += self._look(view, memory, now)
        return moved

    def _join(self, memory: QueuesMemory, job: ActiveJob, now: float) -> None:
        if job.state in ENDED:
            return
        new = self._new(job, now)
        due = self._promotion(job, new, now)
        memory.standings[job.id] = new if due is None else new._replace(due=due)
        _retime(memory.due, job, None, due)

    def _new(self, job: ActiveJob, now: float) -> Standing:
        """Who comes from another policy's hands may have had service already."""
        queue = 0 if job.first_start is None else sum(job.attained_at(now) >= limit for limit in self.limits)
        return Standing(queue, math.inf if job.first_start is None else job.first_start)

    def _forget(self, memory: QueuesMemory, job: ActiveJob) -> None:
        standings = memory.standings
        if job.id in standings:
            before = standings[job.id]
            del standings[job.id]
            _retime(memory.due, job, before.due, None)
            _retime(memory.looks, job, before.look, None)

    def _resume(self, memory: QueuesMemory, job: ActiveJob, now: float) -> None:
        was = memory.standings[job.id]
        due, look = self._demotion(job, was.queue, was.restart, now)
        start = was.start if was.start <= now else now
        self._write(memory, job, was, Standing(
            was.queue, start, was.restart, was.restart_executed, True, was.promoted, due, look))

    def _pause(self, memory: QueuesMemory, job: ActiveJob, now: float) -> None:
        was = memory.standings[job.id]
        self._write(memory, job, was, Standing(
            was.queue, was.start, was.restart, was.restart_executed, False, was.promoted,
            self._promotion(job, was, now)))  # fmt: skip

    # --- moving between queues ----------------------------------------------------------------------------

    def _demotion(self, job: ActiveJob, queue: int, restart: float, now: float) -> tuple[float | None, float | None]:
        """When a running job leaves its queue, and when its index is to be looked at before."""
        if queue == len(self.limits):
            return None, None
        left = self.limits[queue] - (job.attained_at(now) - restart)
        return now + max(0.0, left) / job.gpus, self._next_look(job, queue, now)

    def _next_look(self, job: ActiveJob, queue: int, now: float) -> float | None:
        if self.service is None:
            return None
        return max(now + self.limits[queue] / LOOKS / job.gpus, math.nextafter(now, math.inf))

    def _promotion(self, job: ActiveJob, standing: Standing, now: float) -> float | None:
        if self.promote <= 0:
            return None
        executed = job.executed_at(now) - standing.restart_executed
        if standing.queue == 0:
            if standing.promoted or (self.service is None and not self.running_first and standing.start < math.inf):
                return None  # nobody who starts later is served before it
            executed = max(executed, self.limits[0] / job.gpus)  # what queue 0 would give it
        return now + self.promote * executed

    def _write(self, memory: QueuesMemory, job: ActiveJob, was: Standing, standing: Standing) -> None:
        """The job stands there from now on; what was due before is void."""
        memory.standings[job.id] = standing
        _retime(memory.due, job, was.due, standing.due)
        if self.service is not None:  # nobody is looked at else
            _retime(memory.looks, job, was.look, standing.look)

    def _move(self, view: View, memory: QueuesMemory, now: float) -> list[ActiveJob]:
        """Everybody whose demotion or promotion is due."""
        moved: list[ActiveJob] = []
        order = memory.due
        while order and order[0][0] <= now:
            job = view.job(order[0][2])
            was = memory.standings[job.id]
            if was.running:
                due, look = self._demotion(job, was.queue + 1, was.restart, now)
                then = Standing(was.queue + 1, was.start, was.restart, was.restart_executed, True, False, due, look)
            elif was.start == math.inf:
                then = was._replace(start=now, promoted=True, due=None)
            else:
                then = Standing(0, was.start, job.attained, job.executed, promoted=True)
            self._write(memory, job, was, then)
            moved.append(job)
        return moved

    def _look(self, view: View, memory: QueuesMemory, now: float) -> list[ActiveJob]:
        """Everybody whose index is to be worked out again."""
        moved = []
        while memory.looks and memory.looks[0][0] <= now:
            job = view.job(memory.looks[0][2])
            was = memory.standings[job.id]
            self._write(memory, job, was, was._replace(look=self._next_look(job, was.queue, now)))
            moved.append(job)
        return moved


def _retime(order: Order[Due], job: ActiveJob, was: float | None, due: float | None) -> None:
    """What was due for the job at one time is due at another."""
    if was != due:
        if was is not None:
            order.remove((was, job.number, job.id))
        if due is not None:
            order.add((due, job.number, job.id))
