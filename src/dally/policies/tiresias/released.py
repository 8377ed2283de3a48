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
one placement only. What is due is found in heaps, so an event costs what changes, whatever the queue's length.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.plan import Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import State
from dally.policies.greedy import plan_by_rank, waits_for_gpus
from dally.policies.placing import Rule
from dally.policies.tiresias.gittins import ReleasedIndex

_ENDS = (ev.Finished, ev.Failed, ev.Cancelled)


class _Standing:
    """Where a job stands: its queue, its place in it, and the two clocks that move it between queues."""

    __slots__ = ("epoch", "executed", "gpus", "idle_since", "number", "order", "queue", "restart", "running",
                 "since", "tail", "waited")  # fmt: skip

    def __init__(self, job: ActiveJob, order: int, now: float) -> None:
        self.number, self.gpus = job.number, job.gpus
        self.queue = 0
        self.order = order
        self.running = False
        self.tail = False  # demoted at this event: behind the pending ones for one placement
        self.restart = 0.0  # executed time at its last promotion
        self.executed = 0.0  # since then, as of its last preemption
        self.since = 0.0  # while it runs: now − executed time since its last promotion
        self.waited = 0.0  # pending time since it last entered queue 0, up to its last start
        self.idle_since = now
        self.epoch = 0  # raised when what the heaps say of it stops being true

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.queue, 0 if self.running and not self.tail else 1, self.order)


_Due = list[tuple[float, int, str, int]]  # time or virtual start, number, job, epoch


class Released:
    """Queues by executed GPU time in whole seconds, FIFO or released Gittins index inside them."""

    def __init__(self, limits: tuple[float, ...], promote: float, place: Rule, index: ReleasedIndex | None) -> None:
        self.limits = limits  # of every queue but the last
        self.promote = promote
        self.place = place
        self.index = index
        self._jobs: dict[str, _Standing] = {}
        self._clocks: dict[tuple[int, int], _Due] = {}  # (queue, GPUs) → running jobs, longest executed first
        self._promotions: _Due = []
        self._overdue: list[tuple[int, str, int]] = []  # to be promoted at the next event, whenever it comes
        self._crossings: _Due = []  # when a running job's index becomes another one
        self._demoted: list[str] = []  # at the previous event, still running
        self._front, self._back, self._runs = 0, 0, 0  # first and last place among pending, last among running
        self._jump: float | None = None
        self._stale = False

    # --- order --------------------------------------------------------------------------------------------

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        standing = self._jobs.get(job.id)
        if standing is None:
            standing = self._jobs[job.id] = _Standing(job, self._append(), now)
        elif standing.running and job.state is State.WAITING:  # a fault took its GPUs: nobody planned that
            standing.order = self._append()
            self._pause(job, standing, now)
        queue, group, order = standing.place
        if self.index is None:
            return Rank(queue, then=group, tie=(order,))
        attained = standing.gpus * (job.executed_at(now) - standing.restart)
        return Rank(queue, then=-self.index(attained), tie=(job.job.submit_time, group, order))

    def _append(self) -> int:
        self._back += 1
        return self._back

    # --- events -------------------------------------------------------------------------------------------

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        news = view.news
        self._stale = now != self._jump and all(type(event) is ev.TimerDue for event in news)
        if self._stale:
            return ()
        for event in news:
            if isinstance(event, _ENDS):
                self._jobs.pop(event.job, None)
        moved = [job_id for job_id in self._demoted if job_id in self._jobs]
        self._demoted = self._demote(now)
        moved += self._demoted + self._promote(view, now)
        if self.index is not None:
            moved += self._recross(view, now)
        return [view.job(job_id) for job_id in dict.fromkeys(moved)]

    def _demote(self, now: float) -> list[str]:
        due: list[tuple[int, str]] = []
        for (queue, gpus), clock in self._clocks.items():
            needed = -(-self.limits[queue] // gpus)  # whole seconds of running
            while (head := self._head(queue, clock)) is not None and head + needed <= now:
                _, number, job_id, _ = heappop(clock)
                due.append((number, job_id))
        for _, job_id in sorted(due):
            standing = self._jobs[job_id]
            standing.queue += 1
            standing.order, standing.tail = self._append(), True
            self._time(job_id, standing)
        return [job_id for _, job_id in sorted(due)]

    def _promote(self, view: View, now: float) -> list[str]:
        due = self._overdue
        self._overdue = []
        while self._promotions and self._promotions[0][0] <= now:
            due.append(heappop(self._promotions)[1:])
        promoted = []
        for _, job_id, epoch in sorted(due):
            standing = self._jobs.get(job_id)
            if standing is not None and standing.epoch == epoch:
                standing.epoch += 1
                standing.queue, standing.order = 0, self._append()
                standing.restart += standing.executed
                standing.executed = standing.waited = 0.0
                promoted.append(job_id)
        return promoted

    def _recross(self, view: View, now: float) -> list[str]:
        crossed = []
        while self._crossings and self._crossings[0][0] <= now:
            _, _, job_id, epoch = heappop(self._crossings)
            standing = self._jobs.get(job_id)
            if standing is not None and standing.epoch == epoch:
                crossed.append(job_id)
                self._next_crossing(job_id, standing, now)
        return crossed

    # --- decisions ----------------------------------------------------------------------------------------

    def plan(self, view: View, now: float) -> Plan:
        if self._stale:
            idle: Plan = [waits_for_gpus(demand) for demand in view.waiting.buckets]
            return idle if self._jump is None or self._jump <= now else [*idle, WakeAt(self._jump)]
        plan = plan_by_rank(view, now, self.place, preempt=True)
        evicted = [action.job for action in plan if isinstance(action, Preempt)]
        entered = [action.job for action in plan if isinstance(action, Start)]
        self._reorder(evicted, entered)
        for job_id in evicted:
            self._pause(view.job(job_id), self._jobs[job_id], now)
        for job_id in entered:
            self._resume(job_id, self._jobs[job_id], now)
        self._jump = self._next_jump(now)
        if self._jump is not None:
            plan.append(WakeAt(self._jump))
        return plan

    def _reorder(self, evicted: list[str], entered: list[str]) -> None:
        """Pending jobs step behind running ones, both in the order in which they stood."""
        out = sorted((self._jobs[job_id] for job_id in evicted), key=lambda standing: standing.place)
        first = [standing for standing in out if not standing.tail]
        self._front -= len(first)
        gone = set(evicted)
        behind = [self._jobs[job_id] for job_id in (*entered, *self._demoted) if job_id not in gone]
        for standing in sorted(behind, key=lambda standing: standing.place):
            self._runs += 1
            standing.order, standing.tail = self._runs, False
        for place, standing in enumerate(first):
            standing.order = self._front + place
        for standing in out:
            standing.tail = False

    def _pause(self, job: ActiveJob, standing: _Standing, now: float) -> None:
        standing.running = False
        standing.epoch += 1
        standing.idle_since = now
        standing.executed = job.executed_at(now) - standing.restart
        if self.promote > 0 and standing.queue > 0 and standing.executed > 0:
            due = now + int(standing.executed * self.promote) - standing.waited
            entry = (standing.number, job.id, standing.epoch)
            if due <= now:
                self._overdue.append(entry)
            else:
                heappush(self._promotions, (due, *entry))

    def _resume(self, job_id: str, standing: _Standing, now: float) -> None:
        if standing.executed > 0:
            standing.waited += now - standing.idle_since
        standing.running = True
        standing.epoch += 1
        standing.since = now - standing.executed
        self._time(job_id, standing)
        if self.index is not None:
            self._next_crossing(job_id, standing, now)

    # --- timers -------------------------------------------------------------------------------------------

    def _time(self, job_id: str, standing: _Standing) -> None:
        if standing.queue < len(self.limits):
            clock = self._clocks.setdefault((standing.queue, standing.gpus), [])
            heappush(clock, (standing.since, standing.number, job_id, standing.epoch))

    def _head(self, queue: int, clock: _Due) -> float | None:
        """Virtual start of the job of this queue and size that has executed longest."""
        while clock:
            since, _, job_id, epoch = clock[0]
            standing = self._jobs.get(job_id)
            if standing is not None and standing.epoch == epoch and standing.queue == queue:
                return since
            heappop(clock)
        return None

    def _next_crossing(self, job_id: str, standing: _Standing, now: float) -> None:
        assert self.index is not None
        service = self.index.next_change(standing.gpus * (now - standing.since))
        if service is not None:
            due = standing.since - (-service // standing.gpus)
            heappush(self._crossings, (due, standing.number, job_id, standing.epoch))

    def _next_jump(self, now: float) -> float | None:
        jumps = []
        for (queue, gpus), clock in self._clocks.items():
            since = self._head(queue, clock)
            if since is not None:
                # (limit − executed) // GPUs can be 0: the original would stand still; ours looks a second later
                jumps.append(now + max(1.0, (self.limits[queue] - (now - since)) // gpus))
        while self._promotions:
            due, _, job_id, epoch = self._promotions[0]
            standing = self._jobs.get(job_id)
            if standing is not None and standing.epoch == epoch:
                jumps.append(due)
                break
            heappop(self._promotions)
        return min(jumps, default=None)
