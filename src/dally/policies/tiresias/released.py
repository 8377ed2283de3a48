"""The released simulator's rules, late timers included, so that its results can be reproduced job by job.

At each event, in this order: ended jobs leave, new ones join the tail of queue 0; a running job whose executed time ×
GPUs has reached its queue's limit moves to the tail of the next queue, one queue at a time; with the knob N, a
preempted job below queue 0 whose pending time has reached N × its executed time restarts at the tail of queue 0
with both at zero; the cluster is handed out anew in the order of the queues; and inside each queue the pending jobs
step behind the running ones. Pending time is counted since the job last entered queue 0: it adds up over
preemptions, is not reset when the job runs again, and does not count before its first second of running.

The next event is the next arrival or end, or a timer: (limit − executed) // GPUs from now for a running job (seconds
less GPU-seconds: too late after any event in between, which is kept), and the rest of the pending time for a
preempted one. Timers are worked out anew at each event; one that was set earlier and does not hold any more is none.

The lists of the original are three counters here. Among running jobs the order is that of starting; a preempted job
goes before everybody pending, a new, demoted or promoted one behind. A demoted job stands among the pending ones for
one placement only. What is due is kept in order, so an event costs what changes, whatever the queue's length.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.plan import Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import ENDED, State
from dally.policies.greedy import plan_by_rank, waits_for_gpus
from dally.policies.placing import Rule
from dally.policies.tiresias.gittins import ReleasedIndex
from dally.policies.tiresias.memory import BACK, FINISHED, GOES, MEASURED, TIMER_DUE, answers
from dally.policies.tiresias.remembered_released import ReleasedMemory, Standing


class Released:
    """Queues by executed GPU time in whole seconds, FIFO or released Gittins index inside them."""

    def __init__(self, limits: tuple[float, ...], promote: float, place: Rule, index: ReleasedIndex | None) -> None:
        self.limits = limits  # of every queue but the last
        self.promote = promote
        self.place = place
        self.index = index

    def new_memory(self) -> ReleasedMemory:
        return ReleasedMemory()

    def attach(self, view: View, memory: ReleasedMemory) -> None:
        return None

    def rank(self, view: View, memory: ReleasedMemory, job: ActiveJob, now: float) -> Rank:
        standing = memory.standings.get(job.id) or Standing(job.number, job.gpus, memory.back + 1)  # is kept back
        queue, order = standing.queue, standing.order
        group = 0 if standing.running and not standing.tail else 1  # as in its `place`: whoever is ranked comes by here
        if self.index is None:
            return Rank(queue, then=group, tie=(order,))
        attained = standing.gpus * (job.executed_at(now) - standing.restart)
        return Rank(queue, then=-self.index(attained), tie=(job.job.submit_time, group, order))

    # --- events -------------------------------------------------------------------------------------------

    def hear(self, view: View, memory: ReleasedMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        at_once = answers(memory.planned, now, entries)
        if not at_once:
            stale = now != memory.jump and _only_timers(entries)
            if stale != memory.stale:
                memory.stale = stale
            if stale:
                return ()
        for entry in entries:
            if type(entry) is not MEASURED and type(entry) is not TIMER_DUE:  # most of all, and nothing to us
                self._happened(view, memory, now, entry)
        if at_once:
            return ()
        moved: list[str] = []
        demoted = self._demote(memory, now) if now >= memory.demotion else []
        if demoted or memory.demoted:
            moved = [job_id for job_id in memory.demoted if job_id in memory.standings]
            memory.demoted = tuple(demoted)
            moved += demoted
        if memory.promotions and memory.promotions[0][0] <= now:
            moved += self._promote(memory, now)
        if memory.crossings and memory.crossings[0][0] <= now:
            moved += self._recross(memory, now)
        return [view.job(job_id) for job_id in dict.fromkeys(moved)] if moved else ()

    def _happened(self, view: View, memory: ReleasedMemory, now: float, entry: Entry) -> None:
        if type(entry) is FINISHED:
            self._forget(memory, entry.job)
        elif isinstance(entry, (ev.Arrived, ev.Released)):
            job = view.job(entry.job.id if isinstance(entry, ev.Arrived) else entry.job)
            if job.state not in ENDED:
                standing = Standing(job.number, job.gpus, self._append(memory), idle_since=now)
                if job.first_start is not None:  # who comes from another policy's hands has executed already
                    done = job.executed_at(now)
                    queue = sum(done * job.gpus >= limit for limit in self.limits)
                    standing = standing._replace(queue=queue, executed=done)
                memory.standings[job.id] = standing
        elif isinstance(entry, GOES):
            self._forget(memory, entry.job)
        elif isinstance(entry, BACK):
            job = view.job(entry.job)
            if job.state is State.WAITING and memory.standings[job.id].running:  # by a fault: nobody planned that
                self._pause(memory, job, now, order=self._append(memory))
        elif isinstance(entry, Start):  # by somebody else, as the preemption below
            memory.runs += 1
            self._resume(memory, entry.job, now, order=memory.runs)
        elif isinstance(entry, Preempt):
            self._pause(memory, view.job(entry.job), now, order=self._append(memory))

    def _append(self, memory: ReleasedMemory) -> int:
        memory.back += 1
        return memory.back

    def _demote(self, memory: ReleasedMemory, now: float) -> list[str]:
        due: list[tuple[int, str]] = []
        for (queue, gpus), clock in memory.clocks.items():
            if clock and clock[0][0] + (needed := -(-self.limits[queue] // gpus)) <= now:  # whole seconds of running
                due += [(number, job_id) for since, number, job_id in clock if since + needed <= now]
        due.sort()
        for _, job_id in due:
            standing = memory.standings[job_id]
            behind = standing._replace(queue=standing.queue + 1, order=self._append(memory), tail=True)
            self._write(memory, job_id, behind)
        return [job_id for _, job_id in due]

    def _promote(self, memory: ReleasedMemory, now: float) -> list[str]:
        due = sorted((number, job_id) for _, number, job_id in memory.promotions.irange(None, (now, math.inf)))
        for _, job_id in due:
            standing = memory.standings[job_id]
            self._write(memory, job_id, standing._replace(
                queue=0, order=self._append(memory), restart=standing.restart + standing.executed, executed=0.0,
                waited=0.0, promotion=None))  # fmt: skip
        return [job_id for _, job_id in due]

    def _recross(self, memory: ReleasedMemory, now: float) -> list[str]:
        """Most of all that happens to a job here, and nothing but its crossing is another one by it."""
        crossings, standings, moved = memory.crossings, memory.standings, []
        for due in list(crossings.irange(None, (now, math.inf))):
            _, number, job_id = due
            standing = standings[job_id]
            crossing = self._next_crossing(standing.gpus, standing.since, now)
            standings[job_id] = Standing(
                standing.number, standing.gpus, standing.order, standing.queue, standing.running, standing.tail,
                standing.restart, standing.executed, standing.since, standing.waited, standing.idle_since,
                standing.promotion, crossing)  # fmt: skip
            crossings.remove(due)
            if crossing is not None:
                crossings.add((crossing, number, job_id))
            moved.append(job_id)
        return moved

    # --- decisions ----------------------------------------------------------------------------------------

    def plan(self, view: View, memory: ReleasedMemory, now: float) -> Plan:
        memory.planned = now
        if memory.stale:
            idle: Plan = [wait for wait in map(waits_for_gpus, view.waiting.buckets)
                          if view.reasons.get(wait.who) != wait.reason]  # fmt: skip
            return idle if memory.jump is None or memory.jump <= now else [*idle, WakeAt(memory.jump)]
        plan = plan_by_rank(view, now, self.place, preempt=True)
        evicted: list[str] = []
        entered: list[str] = []
        for action in plan:
            if type(action) is Start:
                entered.append(action.job)
            elif type(action) is Preempt:
                evicted.append(action.job)
        if evicted or entered or memory.demoted:
            self._stand(view, memory, now, evicted, entered)
        memory.jump = self._next_jump(memory, now)
        if memory.jump is not None:
            plan.append(WakeAt(memory.jump))
        return plan

    def _stand(self, view: View, memory: ReleasedMemory, now: float, evicted: list[str], entered: list[str]) -> None:
        orders = self._reorder(memory, evicted, entered)
        for job_id in evicted:
            self._pause(memory, view.job(job_id), now, orders.pop(job_id, None))
        for job_id in entered:
            self._resume(memory, job_id, now, orders.pop(job_id))
        for job_id, order in orders.items():  # demoted before, and still running
            self._write(memory, job_id, memory.standings[job_id]._replace(order=order, tail=False))

    def _reorder(self, memory: ReleasedMemory, evicted: list[str], entered: list[str]) -> dict[str, int]:
        """Pending jobs step behind running ones, both in the order in which they stood: places that are new."""
        standings, demoted = memory.standings, memory.demoted
        orders: dict[str, int] = {}
        if evicted:
            first = _as_they_stood(memory, [job_id for job_id in evicted if not standings[job_id].tail])
            memory.front -= len(first)
            for place, job_id in enumerate(first):
                orders[job_id] = memory.front + place
        if demoted:
            entered = [job_id for job_id in (*entered, *demoted) if job_id not in evicted]
        runs = memory.runs
        for job_id in _as_they_stood(memory, entered):
            runs += 1
            orders[job_id] = runs
        memory.runs = runs
        return orders

    def _pause(self, memory: ReleasedMemory, job: ActiveJob, now: float, order: int | None) -> None:
        standing = memory.standings[job.id]
        executed = job.executed_at(now) - standing.restart
        promotion = None
        if self.promote > 0 and standing.queue > 0 and executed > 0:
            promotion = now + int(executed * self.promote) - standing.waited
        self._write(memory, job.id, Standing(
            standing.number, standing.gpus, standing.order if order is None else order, standing.queue, False, False,
            standing.restart, executed, 0.0, standing.waited, now, promotion, None))  # fmt: skip

    def _resume(self, memory: ReleasedMemory, job_id: str, now: float, order: int) -> None:
        standing = memory.standings[job_id]
        since = now - standing.executed
        self._write(memory, job_id, Standing(
            standing.number, standing.gpus, order, standing.queue, True, False, standing.restart, standing.executed,
            since, standing.waited + (now - standing.idle_since if standing.executed > 0 else 0.0), 0.0, None,
            self._next_crossing(standing.gpus, since, now)))  # fmt: skip

    # --- timers -------------------------------------------------------------------------------------------

    def _write(self, memory: ReleasedMemory, job_id: str, standing: Standing) -> None:
        """The job stands there from now on, and so its clocks."""
        before = memory.standings.get(job_id)
        memory.standings[job_id] = standing
        self._tick(memory, job_id, before, standing)

    def _forget(self, memory: ReleasedMemory, job_id: str) -> None:
        if job_id in memory.standings:
            self._tick(memory, job_id, memory.standings.pop(job_id), None)

    def _tick(self, memory: ReleasedMemory, job_id: str, before: Standing | None, after: Standing | None) -> None:
        clocks = memory.clocks
        was, now = self._clock(before), self._clock(after)
        if was != now:
            if was is not None:
                queue, gpus, since, number = was
                clock = clocks[queue, gpus]
                at = bisect_left(clock, (since, number, job_id))
                clocks[queue, gpus] = clock[:at] + clock[at + 1 :]
            if now is not None:
                queue, gpus, since, number = now
                clock = clocks.get((queue, gpus), ())
                at = bisect_left(clock, (since, number, job_id))
                clocks[queue, gpus] = clock[:at] + ((since, number, job_id),) + clock[at:]  # noqa: RUF005 - half the time
                memory.demotion = -math.inf  # is worked out with the next jump
        if before is not None:
            if before.promotion is not None and (after is None or after.promotion != before.promotion):
                memory.promotions.remove((before.promotion, before.number, job_id))
            if before.crossing is not None and (after is None or after.crossing != before.crossing):
                memory.crossings.remove((before.crossing, before.number, job_id))
        if after is not None:
            if after.promotion is not None and (before is None or before.promotion != after.promotion):
                memory.promotions.add((after.promotion, after.number, job_id))
            if after.crossing is not None and (before is None or before.crossing != after.crossing):
                memory.crossings.add((after.crossing, after.number, job_id))

    def _clock(self, standing: Standing | None) -> tuple[int, int, float, int] | None:
        if standing is None or not standing.running or standing.queue == len(self.limits):
            return None
        return standing.queue, standing.gpus, standing.since, standing.number

    def _next_crossing(self, gpus: int, since: float, now: float) -> float | None:
        if self.index is None:
            return None
        service = self.index.next_change(gpus * (now - since))
        return None if service is None else since - (-service // gpus)

    def _next_jump(self, memory: ReleasedMemory, now: float) -> float | None:
        # (limit − executed) // GPUs can be 0: the original would stand still; ours looks a second later
        first = demotion = math.inf
        for (queue, gpus), clock in memory.clocks.items():
            if clock:
                limit, since = self.limits[queue], clock[0][0]
                first = min(first, now + max(1.0, (limit - (now - since)) // gpus))
                demotion = min(demotion, since - (-limit // gpus))
        memory.demotion = demotion
        # whose promotion is overdue is promoted at the next event, whenever it comes
        if memory.promotions:
            for due, _, _ in islice(memory.promotions.irange((now, math.inf)), 1):
                first = min(first, due)
        return None if first == math.inf else first


def _as_they_stood(memory: ReleasedMemory, jobs: list[str]) -> list[str]:
    """Who goes first in the queues; mostly there is one."""
    if len(jobs) > 1:
        standings = memory.standings
        jobs = [job_id for _, job_id in sorted([(standings[job_id].place, job_id) for job_id in jobs])]
    return jobs


def _only_timers(entries: Sequence[Entry]) -> bool:
    for entry in entries:  # noqa: SIM110 - at every event, and a generator costs
        if type(entry) is not TIMER_DUE:
            return False
    return True
