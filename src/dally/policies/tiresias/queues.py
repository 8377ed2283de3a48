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
from typing import NamedTuple

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.memory import Order, Table
from dally.core.plan import Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import ENDED, State
from dally.policies.tiresias.memory import BACK, ENDS, PaperMemory, Placing, Service, answers

LOOKS = 16  # times on the way through a queue that a running job's Gittins index is brought up to date


class Standing(NamedTuple):
    """Where a job stands, and when it moves on by itself."""

    queue: int = 0
    start: float = math.inf  # its place in the order of starts
    restart: float = 0.0  # service it had had at its last promotion
    restart_executed: float = 0.0  # and time it had executed
    running: bool = False
    promoted: bool = False  # until it is demoted again
    due: float | None = None  # its demotion, while it runs, or promotion, while it waits
    look: float | None = None  # when its index is to be worked out again


Due = tuple[float, int, str]  # time, order of arrival, job


class QueuesMemory(PaperMemory):
    standings: Table[str, Standing]
    due: Order[Due]  # demotions and promotions, as the standings have them
    looks: Order[Due]  # likewise


class Queues:
    """Queues by attained service; `service` is None for least attained service, else the Gittins index decides."""

    def __init__(self, limits: tuple[float, ...], promote: float, placing: Placing, service: Service | None, *,
                 running_first: bool) -> None:  # fmt: skip
        self.limits = limits  # of every queue but the last
        self.promote = promote
        self.running_first = running_first
        self.placing = placing
        self.service = service

    def new_memory(self) -> QueuesMemory:
        return QueuesMemory()

    def attach(self, view: View, memory: QueuesMemory) -> None:
        self.placing.attach(view, memory)
        if self.service is not None:
            self.service.attach(memory)

    def rank(self, view: View, memory: QueuesMemory, job: ActiveJob, now: float) -> Rank:
        standing = memory.standings[job.id]
        if standing.promoted:  # before any other: a job that is promoted into starvation is not promoted
            return Rank(standing.queue, then=-math.inf, tie=(standing.start,))
        if self.service is not None and standing.queue < len(self.limits):
            attained = job.attained_at(now) - standing.restart
            index = self.service.known.until(attained, self.limits[standing.queue])
            return Rank(standing.queue, then=-index, tie=(standing.start,))
        if self.running_first:
            return Rank(standing.queue, then=0.0 if standing.running else 1.0, tie=(standing.start,))
        return Rank(standing.queue, then=standing.start)

    def plan(self, view: View, memory: QueuesMemory, now: float) -> Plan:
        plan = self.placing.plan(view, memory, now)
        for action in plan:
            if isinstance(action, Start):
                self._resume(memory, view.job(action.job), now)
            elif isinstance(action, Preempt):
                self._pause(memory, view.job(action.job), now)
        if memory.due:
            plan.append(WakeAt(max(memory.due[0][0], math.nextafter(now, math.inf))))
        return plan

    # --- what happened ------------------------------------------------------------------------------------

    def hear(self, view: View, memory: QueuesMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        for entry in entries:
            if isinstance(entry, ev.Arrived):
                self._join(memory, view.job(entry.job.id), now)
            elif isinstance(entry, ENDS):
                self._forget(memory, view.job(entry.job))
            elif isinstance(entry, BACK):
                job = view.job(entry.job)
                if job.state is State.WAITING and memory.standings[job.id].running:  # by a fault: nobody planned that
                    self._pause(memory, job, now)
            elif isinstance(entry, Start):  # by somebody else, as the preemption below
                self._resume(memory, view.job(entry.job), now)
            elif isinstance(entry, Preempt):
                self._pause(memory, view.job(entry.job), now)
        moved = self.placing.hear(view, memory, entries)
        if not answers(memory.planned, now, entries):
            moved += self._move(view, memory, now)
            if self.service is not None and self.service.hear(view, memory, entries):
                return [*view.waiting, *view.preemptible]
            moved += self._look(view, memory, now)
        return moved

    def _join(self, memory: QueuesMemory, job: ActiveJob, now: float) -> None:
        if job.state in ENDED:
            return
        # who comes from another policy's hands may have had service already
        queue = sum(job.attained_at(now) >= limit for limit in self.limits)
        standing = Standing(queue, math.inf if job.first_start is None else job.first_start)
        self._write(memory, job, standing, self._promotion(job, standing, now))

    def _forget(self, memory: QueuesMemory, job: ActiveJob) -> None:
        if job.id in memory.standings:
            self._write(memory, job, memory.standings[job.id], None)
            del memory.standings[job.id]

    def _resume(self, memory: QueuesMemory, job: ActiveJob, now: float) -> None:
        standing = memory.standings[job.id]
        standing = standing._replace(running=True, start=min(standing.start, now))
        self._write(memory, job, standing, *self._demotion(job, standing, now))

    def _pause(self, memory: QueuesMemory, job: ActiveJob, now: float) -> None:
        standing = memory.standings[job.id]._replace(running=False)
        self._write(memory, job, standing, self._promotion(job, standing, now))

    # --- moving between queues ----------------------------------------------------------------------------

    def _demotion(self, job: ActiveJob, standing: Standing, now: float) -> tuple[float | None, float | None]:
        """When a running job leaves its queue, and when its index is to be looked at before."""
        if standing.queue == len(self.limits):
            return None, None
        left = self.limits[standing.queue] - (job.attained_at(now) - standing.restart)
        return now + max(0.0, left) / job.gpus, self._next_look(job, standing, now)

    def _next_look(self, job: ActiveJob, standing: Standing, now: float) -> float | None:
        if self.service is None:
            return None
        return max(now + self.limits[standing.queue] / LOOKS / job.gpus, math.nextafter(now, math.inf))

    def _promotion(self, job: ActiveJob, standing: Standing, now: float) -> float | None:
        if self.promote <= 0:
            return None
        executed = job.executed_at(now) - standing.restart_executed
        if standing.queue == 0:
            if standing.promoted or (self.service is None and not self.running_first and standing.start < math.inf):
                return None  # nobody who starts later is served before it
            executed = max(executed, self.limits[0] / job.gpus)  # what queue 0 would give it
        return now + self.promote * executed

    def _write(self, memory: QueuesMemory, job: ActiveJob, standing: Standing, due: float | None,
               look: float | None = None) -> None:  # fmt: skip
        """The job stands there from now on, and this is when it moves next; what was due before is void."""
        before = memory.standings.get(job.id)
        for index, old, new in ((memory.due, before and before.due, due), (memory.looks, before and before.look, look)):
            if old != new:
                if old is not None:
                    index.remove((old, job.number, job.id))
                if new is not None:
                    index.add((new, job.number, job.id))
        memory.standings[job.id] = standing._replace(due=due, look=look)

    def _move(self, view: View, memory: QueuesMemory, now: float) -> list[ActiveJob]:
        """Everybody whose demotion or promotion is due."""
        moved = []
        while memory.due and memory.due[0][0] <= now:
            job = view.job(memory.due[0][2])
            standing = memory.standings[job.id]
            if standing.running:
                standing = standing._replace(queue=standing.queue + 1, promoted=False)
                self._write(memory, job, standing, *self._demotion(job, standing, now))
            elif standing.start == math.inf:
                self._write(memory, job, standing._replace(start=now, promoted=True), None)
            else:
                again = standing._replace(queue=0, promoted=True, restart=job.attained, restart_executed=job.executed)
                self._write(memory, job, again, None)
            moved.append(job)
        return moved

    def _look(self, view: View, memory: QueuesMemory, now: float) -> list[ActiveJob]:
        """Everybody whose index is to be worked out again."""
        moved = []
        while memory.looks and memory.looks[0][0] <= now:
            job = view.job(memory.looks[0][2])
            standing = memory.standings[job.id]
            self._write(memory, job, standing, standing.due, self._next_look(job, standing, now))
            moved.append(job)
        return moved
