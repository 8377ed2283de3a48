"""The live world: the same seam as the simulated one, on a wall clock, over any engine.

Everything that is not the engine's own is here once: the inbox (submit, cancel, machines), timers and leases, starts
that wait until somebody has left their GPUs, starts of which nothing is heard, moves, exit codes, retries. What an
engine reports of an attempt that is over or was never asked for is passed on as it is; the scheduler finds it odd.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.agenda import Agenda
from dally.core.clock import Clock
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Decided, Rejected
from dally.core.placement import Placement
from dally.core.policy import Policy
from dally.core.states import State
from dally.core.topology import Topology, changed
from dally.live.engine import Began, Engine, NotBegun, Order, Program, Report, Stepped, Vanished

SAVED = 143  # a job that saved its checkpoint and left: 128 + SIGTERM


@dataclass(frozen=True, slots=True)
class LiveRules:
    retries: int = 0  # crashes, and starts that fail, that a job survives
    start_timeout: float = 60.0  # seconds after which a start of which nothing is heard has failed
    longest_wait: float = 3600.0  # seconds the engine may be left alone where nothing is due


class Attempt:
    """One attempt of a job, from the decision to start it to its end."""

    __slots__ = ("began", "begun_at", "job", "leaving", "moves_to", "number", "placement", "saved", "told")

    def __init__(self, job: str, number: int, placement: Placement) -> None:
        self.job, self.number, self.placement = job, number, placement
        self.told = False  # whether the engine was told; before that it waits for its GPUs
        self.began = False
        self.begun_at = 0.0
        self.leaving = False  # asked to leave
        self.moves_to: Attempt | None = None  # what follows when it has left
        self.saved = 0.0  # work its last checkpoint holds, as far as it said


class LiveWorld:
    """Implements `core.scheduler.World` over an engine."""

    def __init__(self, topology: Topology, engine: Engine, clock: Clock, rules: LiveRules | None = None) -> None:
        self.engine, self.clock, self.rules = engine, clock, rules or LiveRules()
        self.topology = topology
        self.programs: dict[str, Program] = {}
        self.jobs: Mapping[str, ActiveJob] | None = None  # of the scheduler this world serves; it counts failures
        self.closed = False  # True: nobody submits any more; the world ends when the jobs have
        self._inbox: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self._agenda = Agenda()
        self._attempts: dict[str, Attempt] = {}
        self._waiting_for_gpus: list[Attempt] = []
        self._numbers: dict[str, int] = {}  # attempts so far
        self._unended: set[str] = set()
        self._leases: dict[str, int] = {}  # which of a job's leases counts

    # --- inbox: from any thread --------------------------------------------------------------------------------

    def submit(self, job: Job, program: Program) -> None:
        """A job comes in. What the engine cannot do is refused at once, in a sentence."""
        if job.elastic:
            raise UserError(f"job {job.id!r}: this engine cannot change a job's number of GPUs while it runs")
        if not program.command:
            raise UserError(f"job {job.id!r} has no command")
        self.programs.setdefault(job.id, program)
        self._unended.add(job.id)
        self.report(ev.Arrived(job))

    def cancel(self, job_id: str) -> None:
        self.report(ev.Cancelled(job_id))

    def report(self, event: ev.Event) -> None:
        """Anything else that happens outside: machines down, up, new or gone."""
        self._inbox.put(event)
        self.engine.wake()

    def close(self) -> None:
        """Nobody submits any more."""
        self.closed = True
        self.engine.wake()

    def check(self, policy: Policy) -> None:
        """Whether the engine can do what this policy asks for; refused in a sentence."""
        if policy.shares and not self.engine.shares:
            raise UserError(f"policy {policy.name!r} puts several jobs on the same GPUs, which this engine cannot do; "
                            "choose one that gives whole GPUs")  # fmt: skip

    # --- what happens ------------------------------------------------------------------------------------------

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        """Sleep until something happens; everything that has happened by then is one instant."""
        events: list[ev.Event] = []
        patience = 0.0
        while not (self.closed and not self._unended and self._inbox.empty()):
            for report in self.engine.observe(patience):
                self._reported(report, events)
            now = self.clock.now()
            for _, _, _, happens, what, epoch in self._agenda.due(now):
                happens(now, what, epoch, events)
            while not self._inbox.empty():
                events += self._heard(now, self._inbox.get())
            self._give_gpus()
            if events:
                return now, sorted(events, key=_order)
            if self.closed and not self._attempts and not len(self._agenda) and self._inbox.empty():
                return None  # jobs wait and nothing can ever happen: not even a timer is set
            due = self._agenda.next_time()
            patience = self.rules.longest_wait if due is None else max(0.0, due - self.clock.now())
        return None

    def _heard(self, now: float, event: ev.Event) -> list[ev.Event]:
        """What outside reports have to do with attempts."""
        if isinstance(event, ev.Arrived):
            if event.job.submit_time > now:  # to begin later
                self._agenda.enter(event.job.submit_time, ev.Arrived, _arrive, event.job)
                return []
        elif isinstance(event, ev.Cancelled):
            self._unended.discard(event.job)
            self._put_out(event.job)
        elif isinstance(event, ev.MachinesChanged):
            self._lay_out(event)
        return [event]

    def _lay_out(self, event: ev.MachinesChanged) -> None:
        try:
            before, after = self.topology, changed(self.topology, event.added, event.removed)
        except UserError:
            return  # the scheduler finds it odd
        for attempt in (*self._attempts.values(), *self._waiting_for_gpus):
            pairs = ((after.machine_by_name.get(before.machine_names[m]), mask) for m, mask in attempt.placement.slices)
            attempt.placement = Placement.of((m, mask) for m, mask in pairs if m is not None)
        self.topology = after

    def _reported(self, report: Report, events: list[ev.Event]) -> None:
        attempt = self._attempts.get(report.job)
        if attempt is None or attempt.number != report.attempt:
            self._stranger(report, events)
        elif isinstance(report, Began):
            attempt.began, attempt.begun_at = True, self.clock.now()
            if not attempt.leaving:
                events.append(ev.Started(report.job))
        elif isinstance(report, Stepped):
            attempt.saved = attempt.saved if report.saved is None else report.saved
            speed = 1.0 if report.speed is None else report.speed
            events.append(ev.Measured(report.job, speed, report.step_time, report.exposed))
        elif isinstance(report, NotBegun):
            del self._attempts[report.job]
            self._failed(attempt, events, ev.StartFailed(report.job, report.cause), report.cause)
        elif isinstance(report, Vanished):
            del self._attempts[report.job]
            gone = ev.Interrupted(report.job, attempt.saved, report.cause)
            self._failed(attempt, events, gone, report.cause)
        else:
            del self._attempts[report.job]
            self._exited(attempt, report.code, events)

    def _stranger(self, report: Report, events: list[ev.Event]) -> None:
        """Of an attempt that is over, or that nobody asked for: the scheduler finds it odd; what runs is stopped."""
        if isinstance(report, (Began, Stepped)):
            self.engine.stop(report.job, report.attempt, 0.0)
            if report.job not in self._attempts:
                events.append(ev.Started(report.job))

    def _exited(self, attempt: Attempt, code: int, events: list[ev.Event]) -> None:
        job = attempt.job
        if job not in self._unended:
            return  # cancelled, or told to stop: nobody waits for it
        if code == 0:
            self._unended.discard(job)
            events.append(ev.Finished(job))
        elif not attempt.leaving:
            self._failed(attempt, events, ev.Interrupted(job, attempt.saved, f"exit code {code}; it is retried"),
                         f"exit code {code}")  # fmt: skip
        elif code != SAVED:
            how = "killed after its grace" if code == -9 else f"left with {code}"
            events.append(ev.Interrupted(job, attempt.saved, f"asked to leave, {how}: no checkpoint was saved"))
        elif attempt.moves_to is not None:
            self._waiting_for_gpus.append(attempt.moves_to)
        else:
            events.append(ev.Yielded(job))

    def _failed(self, attempt: Attempt, events: list[ev.Event], again: ev.StartFailed | ev.Interrupted,
                cause: str) -> None:  # fmt: skip
        """A crash or a start that failed: tried again as often as the rules allow."""
        assert self.jobs is not None, "a live world is shown the scheduler's jobs before it runs any"
        if self.jobs[attempt.job].failures >= self.rules.retries:
            self._unended.discard(attempt.job)
            events.append(ev.Failed(attempt.job, cause))
        else:
            events.append(again._replace(failure=True))

    # --- what is decided ---------------------------------------------------------------------------------------

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        for action in decided:
            if isinstance(action, pl.Preempt):
                self._ask_to_leave(action.job)
        for action in decided:
            if isinstance(action, pl.Start):
                self._waiting_for_gpus.append(self._attempt(now, action))
            elif isinstance(action, pl.Migrate):
                self._move(now, action)
            elif isinstance(action, pl.Extend):
                self._lease(now + action.lease, action.job)
            elif isinstance(action, pl.WakeAt):
                self._agenda.enter(action.time, ev.TimerDue, _ring)
            elif isinstance(action, pl.Stop):
                self._put_out(action.job)
            elif isinstance(action, Rejected):
                self._unended.discard(action.job)
        self._give_gpus()
        return ()

    def _attempt(self, now: float, action: pl.Start | pl.Migrate) -> Attempt:
        number = self._numbers[action.job] = self._numbers.get(action.job, 0) + 1
        attempt = Attempt(action.job, number, action.placement)
        self._lease(None if action.lease is None else now + action.lease, action.job)
        return attempt

    def _move(self, now: float, action: pl.Migrate) -> None:
        """A job moves by leaving with its checkpoint and starting again elsewhere."""
        there = self._attempt(now, action)
        here = self._attempts.get(action.job)
        if here is None:
            self._waiting_for_gpus.append(there)
            return
        there.saved = here.saved
        here.moves_to = there
        self._ask_to_leave(action.job)

    def _ask_to_leave(self, job_id: str) -> None:
        attempt = self._attempts.get(job_id)
        if attempt is not None:
            attempt.leaving = True
            self.engine.stop(job_id, attempt.number, self.programs[job_id].grace)

    def _put_out(self, job_id: str) -> None:
        """At once: nobody is interested in its checkpoint."""
        self._waiting_for_gpus = [attempt for attempt in self._waiting_for_gpus if attempt.job != job_id]
        attempt = self._attempts.get(job_id)
        if attempt is not None:
            attempt.leaving, attempt.moves_to = True, None
            self.engine.stop(job_id, attempt.number, 0.0)
        elif job_id in self.engine.running():
            self.engine.stop(job_id, self.engine.running()[job_id], 0.0)

    def _give_gpus(self) -> None:
        """Start those whose GPUs everybody else has left."""
        for attempt in list(self._waiting_for_gpus):
            if attempt.job in self._attempts or self._occupied(attempt.placement):
                continue
            self._waiting_for_gpus.remove(attempt)
            self._attempts[attempt.job] = attempt
            attempt.told = True
            names = tuple(self.topology.machine_names[machine] for machine, _ in attempt.placement.slices)
            self.engine.start(Order(attempt.job, attempt.number, attempt.placement, names, self.programs[attempt.job]))
            self._agenda.enter(self.clock.now() + self.rules.start_timeout, ev.StartFailed, self._not_heard_of, attempt)

    def _not_heard_of(self, now: float, attempt: Attempt, epoch: int, events: list[ev.Event]) -> None:
        if self._attempts.get(attempt.job) is attempt and not attempt.began:
            del self._attempts[attempt.job]
            self.engine.stop(attempt.job, attempt.number, 0.0)
            cause = f"nothing was heard of it for {self.rules.start_timeout:g} s"
            self._failed(attempt, events, ev.StartFailed(attempt.job, cause), cause)

    def _occupied(self, placement: Placement) -> bool:
        wanted = dict(placement.slices)
        return any(wanted.get(machine, 0) & mask
                   for attempt in self._attempts.values() for machine, mask in attempt.placement.slices)  # fmt: skip

    def _lease(self, end: float | None, job_id: str) -> None:
        """A new lease, or none, in the place of the one before."""
        epoch = self._leases[job_id] = self._leases.get(job_id, 0) + 1
        if end is not None:
            self._agenda.enter(end, ev.LeaseEnded, self._lease_ends, job_id, epoch)

    def _lease_ends(self, now: float, job_id: str, epoch: int, events: list[ev.Event]) -> None:
        if self._leases.get(job_id) == epoch and job_id in self._attempts:
            events.append(ev.LeaseEnded(job_id))

    # --- after a restart ---------------------------------------------------------------------------------------

    def reconcile(self, jobs: Iterable[ActiveJob], programs: dict[str, Program], timer: float | None) -> None:
        """Take up what a scheduler that came back believes, against what the engine really runs: attempts that go on,
        are gone, or run though nobody knows them. The differences are the first events."""
        running = dict(self.engine.running())
        self.programs.update(programs)
        if timer is not None:
            self._agenda.enter(timer, ev.TimerDue, _ring)
        for job in jobs:
            self._numbers[job.id] = max(job.attempts, running.get(job.id, 0))
            if job.state in (State.FINISHED, State.FAILED, State.CANCELLED, State.REJECTED):
                continue
            self._unended.add(job.id)
            number = running.pop(job.id, None)
            if job.placement is None and job.leaving is None:
                if number is not None:
                    self.engine.stop(job.id, number, 0.0)
            elif number is None:
                cause = "it was gone when the service came back"
                event: ev.Event = ev.StartFailed(job.id, cause) if job.state is State.STARTING else \
                    ev.Interrupted(job.id, 0.0, cause)  # fmt: skip
                self._inbox.put(event)
            else:
                self._take_up(job, number)
        for stranger, number in running.items():
            self.engine.stop(stranger, number, 0.0)

    def _take_up(self, job: ActiveJob, number: int) -> None:
        placement = job.placement if job.placement is not None else job.leaving
        assert placement is not None
        attempt = self._attempts[job.id] = Attempt(job.id, number, placement)
        attempt.told = attempt.began = True
        if job.state is State.STARTING:
            self._inbox.put(ev.Started(job.id))
        elif job.state is State.LOST:
            self._inbox.put(ev.ContactRestored(job.id))
        if job.leaving is not None:
            self._ask_to_leave(job.id)
        if job.lease_until is not None:
            self._lease(job.lease_until, job.id)


def _ring(now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
    if not any(isinstance(event, ev.TimerDue) for event in events):
        events.append(ev.TimerDue())


def _arrive(now: float, job: Job, epoch: int, events: list[ev.Event]) -> None:
    events.append(ev.Arrived(job))


def _order(event: ev.Event) -> int:
    return ev.ORDER[type(event)]
