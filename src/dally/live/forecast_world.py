"""A world that goes on from a snapshot into one possible future: jobs end when a draw says so, and nothing breaks.

Jobs that are told to start run at once, at the speed that a profile knows for their GPUs; those that are preempted
leave at once and keep what they have done. Nobody submits anything, and machines stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.agenda import Agenda
from dally.core.books import Books
from dally.core.estimates import Estimates
from dally.core.journal import Decided
from dally.core.placement import Placement
from dally.core.sharing import Interference, NoInterference
from dally.core.states import State
from dally.live.durations import Durations
from dally.network.model import NetworkModel

_STUCK = 10_000  # timers in a row while nothing runs: nobody will ever start


class ForecastWorld:
    """Implements `core.scheduler.World`. `take_up` before the first event."""

    def __init__(self, durations: Durations, future: int = 0, estimates: Estimates | None = None,
                 network: NetworkModel | None = None, interference: Interference | None = None) -> None:  # fmt: skip
        """`network`: what steps and their communication are, where jobs have been profiled; else speeds alone are
        known, from `estimates`."""
        self._durations, self._future = durations, future
        self._estimates, self._network = estimates, network
        self._interference = interference or NoInterference()
        self.now = 0.0
        self.unknown: set[str] = set()  # jobs with GPUs of which nobody knows when they end: they never do
        self._work: dict[str, float | None] = {}  # in all, in this future
        self._epochs: dict[str, int] = {}  # raised when what is on the agenda about a job stops being true
        self._running = 0
        self._agenda = Agenda()
        self._where: dict[str, Placement] = {}  # of jobs that may share their GPUs
        self._touched: dict[Placement, None] = {}  # shared GPUs that somebody came to or left
        self._idle = 0

    # --- from the snapshot -------------------------------------------------------------------------------------

    def take_up(self, books: Books, now: float, *, ask: bool = False) -> None:
        """Go on from what the books say is true now. `ask`: whoever decides is asked at once."""
        self._books, self.now = books, now
        for job in books.holding.values():
            if books.residents.shares and job.placement is not None:
                self._where[job.id] = job.placement
            if job.placement is None:
                self._agenda.enter(now, ev.Yielded, self._yielded, job)
            elif job.state is State.STARTING:
                self._running += 1
                self._agenda.enter(now, ev.Started, self._begun, job)
            else:
                self._running += 1
                self._ends(now, job, job.since)
            if job.lease_until is not None:
                self._lease(now, job, job.step_time)
        if books.timer is not None or ask:
            due = now if books.timer is None or ask else max(now, books.timer)
            self._agenda.enter(due, ev.TimerDue, _ring)

    # --- what happens ------------------------------------------------------------------------------------------

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        if self._touched and (measured := self._shared_out(self.now)):
            return self.now, measured
        while (due := self._agenda.next_time()) is not None:
            self.now = due
            events: list[ev.Event] = []
            for _, _, _, happens, what, epoch in self._agenda.due(due):
                happens(due, what, epoch, events)
            if not events:
                continue
            self._idle = 0 if self._running or type(events[0]) is not ev.TimerDue else self._idle + 1
            return None if self._idle > _STUCK else (due, events)
        return None

    def _finished(self, now: float, job: ActiveJob, epoch: int, events: list[ev.Event]) -> None:
        if self._epochs.get(job.id, 0) == epoch:
            self._leave(job)
            events.append(ev.Finished(job.id))

    def _yielded(self, now: float, job: ActiveJob, epoch: int, events: list[ev.Event]) -> None:
        events.append(ev.Yielded(job.id))

    def _begun(self, now: float, job: ActiveJob, epoch: int, events: list[ev.Event]) -> None:
        if self._epochs.get(job.id, 0) == epoch:
            events.append(self._runs(now, job))

    def _lease_ends(self, now: float, job: ActiveJob, epoch: int, events: list[ev.Event]) -> None:
        if self._epochs.get(job.id, 0) == epoch and job.lease_until is not None and job.lease_until <= now:
            events.append(ev.LeaseEnded(job.id))

    # --- what is decided ---------------------------------------------------------------------------------------

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        """The books are at where these decisions leave them."""
        answers: list[ev.Event] = []
        entered: list[ActiveJob] = []
        jobs = self._books.jobs
        for action in decided:
            if isinstance(action, (pl.Preempt, pl.Migrate, pl.Resize)):
                self._leave(jobs[action.job])
                if isinstance(action, pl.Preempt):
                    answers.append(ev.Yielded(action.job))
        for action in decided:
            if isinstance(action, (pl.Start, pl.Migrate, pl.Resize)):
                self._running += 1
                entered.append(jobs[action.job])
                self._touch(jobs[action.job])
            elif isinstance(action, pl.Extend):
                self._lease(now, jobs[action.job], jobs[action.job].step_time)
            elif isinstance(action, pl.WakeAt):
                self._agenda.enter(max(now, action.time), ev.TimerDue, _ring)
            elif isinstance(action, pl.Reshare):
                self._touch(jobs[action.job])
        answers += [self._runs(now, job) for job in entered]
        return answers + self._shared_out(now, {job.id for job in entered}) if self._touched else answers

    def _leave(self, job: ActiveJob) -> None:
        left = self._where.pop(job.id, None)
        if left is not None:
            self._touched[left] = None
        self._running -= 1
        self._epochs[job.id] = self._epochs.get(job.id, 0) + 1
        self.unknown.discard(job.id)

    # --- speeds and ends ---------------------------------------------------------------------------------------

    def _runs(self, now: float, job: ActiveJob) -> ev.Event:
        """It is on its GPUs, and this is how fast it is there."""
        event = self._measured(job)
        speed, step = (1.0, 0.0) if isinstance(event, ev.Started) else (event.speed, event.step_time)
        self._epochs[job.id] = self._epochs.get(job.id, 0) + 1
        self._ends(now, job, now, speed)
        if job.lease_until is not None:
            self._lease(now, job, step)
        return event

    def _measured(self, job: ActiveJob) -> ev.Measured | ev.Started:
        assert job.placement is not None
        placement, reference = job.placement, job.job.reference
        size = placement.gpus / job.gpus  # as in the simulated world: half the GPUs do half the work in a step
        share = job.fraction / self._slowdown(job)
        if self._network is not None and reference is not None:
            step = self._network.step_time(job.job, placement, self.now)
            return ev.Measured(job.id, reference / step.seconds * size * share, step.seconds, step.exposed_share, 0.0,
                               step.neighbours)  # fmt: skip
        speed = None if self._estimates is None else self._estimates.speed(job.job, placement)
        if speed is None or not speed > 0:
            if size == share == 1.0:
                return ev.Started(job.id)
            return ev.Measured(job.id, size * share, job.step_time, job.exposed)
        # what distance costs is communication that nothing hides: all that is known where nobody measured it
        exposed = job.exposed if job.attempts > 1 else min(1.0, max(0.0, 1.0 - speed))
        return ev.Measured(job.id, speed * size * share, 0.0 if reference is None else reference / speed, exposed)

    def _slowdown(self, job: ActiveJob) -> float:
        if not self._books.residents.shares or job.placement is None:
            return 1.0
        others = [self._books.jobs[other].job for other in self._books.view.groups.of(job.id).others(job.id)]
        if not others:
            return 1.0
        kind = self._books.view.topology.machines[job.placement.slices[0][0]].gpu_type
        return max(1.0, self._interference.slowdown(job.job, others, kind))

    def _ends(self, now: float, job: ActiveJob, since: float, speed: float | None = None) -> None:
        """When a job that has GPUs ends at this speed, by default the one it had so far."""
        work = self._work.get(job.id)
        if job.id not in self._work:
            work = self._work[job.id] = self._durations.work(job, job.work_at(now), self._future)
        if work is None:
            self.unknown.add(job.id)
            return
        speed = job.speed if speed is None else speed
        left = max(0.0, work - job.work_done) / (speed if speed > 0 else 1.0)
        self._agenda.enter(max(now, max(since, job.progress_from) + left), ev.Finished, self._finished, job,
                           self._epochs.get(job.id, 0))  # fmt: skip

    def _lease(self, now: float, job: ActiveJob, step: float) -> None:
        """Ends at the first step boundary at or after its time, where steps are known; else when it ends."""
        assert job.lease_until is not None
        end = job.lease_until
        if step > 0:
            boundary = max(job.progress_from, end)
            end = max(end, job.progress_from - ((job.progress_from - boundary) // step) * step)
        self._agenda.enter(max(now, end), ev.LeaseEnded, self._lease_ends, job, self._epochs.get(job.id, 0))

    # --- shared GPUs -------------------------------------------------------------------------------------------

    def _touch(self, job: ActiveJob) -> None:
        if self._books.residents.shares and job.placement is not None:
            self._where[job.id] = job.placement
            self._touched[job.placement] = None

    def _shared_out(self, now: float, entered: frozenset[str] | set[str] = frozenset()) -> list[ev.Event]:
        """Who shares GPUs that somebody came to or left is faster or slower from now on."""
        found: list[ev.Event] = []
        touched, self._touched = self._touched, {}
        for placement in touched:
            group = self._books.view.groups.at(placement)
            for member in group.members if group is not None else ():
                job = self._books.jobs[member]
                if job.state is State.RUNNING and member not in entered:
                    found.append(self._runs(now, job))
        return found


def _ring(now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
    if not any(isinstance(event, ev.TimerDue) for event in events):
        events.append(ev.TimerDue())
