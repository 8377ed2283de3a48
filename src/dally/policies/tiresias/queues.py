"""Tiresias' queues: few priorities instead of a continuous one, so that jobs are not preempted all the time.

A job starts in queue 0 and moves down when the GPU-seconds it has had reach its queue's limit (NSDI'19, section
3.2). Inside a queue the order is that of first starts, and those who never ran come last; or, as in the released
simulator, those who run come before those who wait. With the Gittins index, in every queue but the last, the index
decides first, with Δ up to the queue's limit; it changes while a job runs, and is brought up to date sixteen times
on the way through a queue. Moving down is an event with a time of its own, kept in a heap.

PROMOTEKNOB k: a job that has run and then waits for k × the time it has executed goes back to queue 0, and both
counts begin anew. It is served before all that were not promoted, until it is demoted again. Who waits in queue 0
can starve too: one that has never run comes behind all who run, and a low index behind a stream of high ones. After
k × the time queue 0 would give it, such a job gets the place of one that starts now, so that those who start later
yield to it (ours: without this the wait of a large gang has no bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heappop, heappush

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.plan import Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import State
from dally.policies.tiresias.memory import Placing, Service

LOOKS = 16  # times on the way through a queue that a running job's Gittins index is brought up to date


class _Standing:
    __slots__ = ("epoch", "promoted", "queue", "restart", "restart_executed", "running", "start")

    def __init__(self) -> None:
        self.queue = 0
        self.start = math.inf  # its place in the order of starts
        self.restart = self.restart_executed = 0.0  # service and time it had had at its last promotion
        self.running = False
        self.promoted = False  # until it is demoted again
        self.epoch = 0  # raised when what the heaps say of it stops being true


class Queues:
    """Queues by attained service; `service` is None for least attained service, else the Gittins index decides."""

    def __init__(self, limits: tuple[float, ...], promote: float, placing: Placing, service: Service | None, *,
                 running_first: bool) -> None:  # fmt: skip
        self.limits = limits  # of every queue but the last
        self.promote = promote
        self.running_first = running_first
        self.placing = placing
        self.service = service
        self._jobs: dict[str, _Standing] = {}
        self._due: list[tuple[float, int, str, int]] = []  # demotions and promotions: time, number, job, epoch
        self._looks: list[tuple[float, int, str, int]] = []  # when a running job's index is to be worked out again

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        standing = self._jobs.get(job.id)
        if standing is None:
            standing = self._jobs[job.id] = _Standing()
            self._time_promotion(job, standing, now)
        elif standing.running and job.state is State.WAITING:  # a fault took its GPUs: nobody planned that
            self._pause(job, standing, now)
        return self.placing.ranked(job, self._rank(job, standing, now))

    def _rank(self, job: ActiveJob, standing: _Standing, now: float) -> Rank:
        if standing.promoted:  # before any other: a job that is promoted into starvation is not promoted
            return Rank(standing.queue, then=-math.inf, tie=(standing.start,))
        if self.service is not None and standing.queue < len(self.limits):
            attained = job.attained_at(now) - standing.restart
            index = self.service.known.until(attained, self.limits[standing.queue])
            return Rank(standing.queue, then=-index, tie=(standing.start,))
        if self.running_first:
            return Rank(standing.queue, then=0.0 if standing.running else 1.0, tie=(standing.start,))
        return Rank(standing.queue, then=standing.start)

    def _resume(self, job: ActiveJob, standing: _Standing, now: float) -> None:
        standing.running = True
        standing.epoch += 1
        standing.start = min(standing.start, now)
        self._time_demotion(job, standing, now)

    def _pause(self, job: ActiveJob, standing: _Standing, now: float) -> None:
        standing.running = False
        standing.epoch += 1
        self._time_promotion(job, standing, now)

    # --- moving between queues ----------------------------------------------------------------------------

    def _time_demotion(self, job: ActiveJob, standing: _Standing, now: float) -> None:
        if standing.queue == len(self.limits):
            return
        left = self.limits[standing.queue] - (job.attained_at(now) - standing.restart)
        heappush(self._due, (now + max(0.0, left) / job.gpus, job.number, job.id, standing.epoch))
        if self.service is not None:
            self._time_look(job, standing, now)

    def _time_look(self, job: ActiveJob, standing: _Standing, now: float) -> None:
        step = self.limits[standing.queue] / LOOKS
        heappush(self._looks, (now + step / job.gpus, job.number, job.id, standing.epoch))

    def _time_promotion(self, job: ActiveJob, standing: _Standing, now: float) -> None:
        if self.promote <= 0:
            return
        executed = job.executed_at(now) - standing.restart_executed
        if standing.queue == 0:
            if standing.promoted or (self.service is None and not self.running_first and standing.start < math.inf):
                return  # nobody who starts later is served before it
            executed = max(executed, self.limits[0] / job.gpus)  # what queue 0 would give it
        heappush(self._due, (now + self.promote * executed, job.number, job.id, standing.epoch))

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        for event in view.news:
            if isinstance(event, (ev.Finished, ev.Failed, ev.Cancelled)):
                self._jobs.pop(event.job, None)
        moved = self._move(view, now)
        everybody = self.placing.refresh(view)
        if self.service is not None:
            everybody |= self.service.refresh(view)
        if everybody:
            return [*view.waiting, *view.preemptible]
        while self._looks and self._looks[0][0] <= now:
            _, _, job_id, epoch = heappop(self._looks)
            standing = self._jobs.get(job_id)
            if standing is not None and standing.epoch == epoch:
                job = view.job(job_id)
                moved.append(job)
                self._time_look(job, standing, now)
        return moved

    def _move(self, view: View, now: float) -> list[ActiveJob]:
        moved = []
        while self._due and self._due[0][0] <= now:
            _, _, job_id, epoch = heappop(self._due)
            standing = self._jobs.get(job_id)
            if standing is None or standing.epoch != epoch:
                continue
            job = view.job(job_id)
            if standing.running:
                standing.queue += 1
                standing.promoted = False
                standing.epoch += 1
                self._time_demotion(job, standing, now)
            elif standing.start == math.inf:
                standing.start, standing.promoted = now, True
            else:
                standing.epoch += 1
                standing.queue, standing.promoted = 0, True
                standing.restart, standing.restart_executed = job.attained, job.executed
            moved.append(job)
        return moved

    def plan(self, view: View, now: float) -> Plan:
        plan = self.placing.plan(view, now)
        for action in plan:
            if isinstance(action, Start):
                self._resume(view.job(action.job), self._jobs[action.job], now)
            elif isinstance(action, Preempt):
                self._pause(view.job(action.job), self._jobs[action.job], now)
        while self._due:
            due, _, job_id, epoch = self._due[0]
            standing = self._jobs.get(job_id)
            if standing is not None and standing.epoch == epoch:
                plan.append(WakeAt(max(due, math.nextafter(now, math.inf))))
                break
            heappop(self._due)
        return plan
