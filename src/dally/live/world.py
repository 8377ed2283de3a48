"""The live world: the same seam as the simulated one, on a wall clock, over any engine.

Everything that is not the engine's own is here once: the inbox (submit, cancel, requeue, machines), timers and leases,
starts that wait until somebody has left their GPUs, starts of which nothing is heard, moves, exit codes,
retries. What an engine reports of an attempt that is over or was never asked for is passed on as it is; the scheduler
finds it odd. An engine may forget the end of an attempt once it is written: it is told so one instant later.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.agenda import Agenda
from dally.core.clock import Clock
from dally.core.errors import UserError
from dally.core.fleet import Fleet
from dally.core.job import Job
from dally.core.journal import Decided, Rejected
from dally.core.placement import Placement
from dally.core.policy import Policy
from dally.core.sharing import Groups
from dally.core.states import ENDED, State
from dally.core.topology import Topology, changed
from dally.live.attempts import Attempt, Key, Leaving, Terms
from dally.live.endings import Known, outcome
from dally.live.engine import (
    AttemptReport,
    Began,
    Engine,
    Exited,
    NotBegun,
    Order,
    Program,
    Report,
    Standing,
    Stepped,
    Vanished,
)  # fmt: skip
from dally.live.turns import Turns

_STRANGERS = 60.0  # seconds that somebody whom nobody knows has to leave
_SHORT = 60.0  # seconds; who has had its GPUs for longer has not run in vain


@dataclass(frozen=True, slots=True)
class LiveRules:
    retries: int = 0  # crashes, and starts that fail, that a job survives
    start_timeout: float | None = 60.0  # seconds after which a start of which nothing is heard has failed; None: never
    longest_wait: float = 3600.0  # seconds the engine may be left alone where nothing is due


class LiveWorld:
    """Implements `core.scheduler.World` over an engine."""

    def __init__(self, topology: Topology, engine: Engine, clock: Clock, rules: LiveRules | None = None) -> None:
        self.engine, self.clock, self.rules = engine, clock, rules or LiveRules()
        self.topology = topology
        self.programs: dict[str, Program] = {}
        self.terms: dict[str, Terms] = {}
        self.names: dict[str, str] = {}  # what people call their jobs
        self.references: dict[str, float] = {}  # seconds of a step at full speed, where that is known
        self.closed = False  # True: nobody submits any more; the world ends when the jobs have
        self.jobs: Mapping[str, ActiveJob] = {}  # of the scheduler this world serves; it counts failures and work
        self.fleet: Fleet | None = None  # … and its machines, where the engine says how they stand
        self.outside: Callable[[float], None] = lambda now: None  # called before the inbox is looked at
        self._look_again: float | None = None
        self._turn_ends: float | None = None
        self._quits = False
        self._inbox: queue.SimpleQueue[ev.Event | Requeued] = queue.SimpleQueue()
        self._heard: deque[Report] = deque()  # reports that wait for the next instant
        self._agenda = Agenda()
        self._current: dict[str, Attempt] = {}  # the one that counts, be it waiting for its GPUs
        self._told: dict[Key, Attempt] = {}  # all the engine was told of and that are not over
        self._queue: list[Attempt] = []  # decided, and waiting for somebody to leave their GPUs
        self._over: list[Key] = []  # ended; once that is written the engine may forget them
        self._numbers: dict[str, int] = {}  # attempts so far
        self._unended: set[str] = set()
        self._in_vain: dict[str, int] = {}  # attempts in a row that came to nothing and count against nothing
        self._leases: dict[str, int] = {}  # which of a job's leases counts
        self._turns: Turns | None = None

    def take_turns(self, groups: Callable[[], Groups]) -> None:
        """Jobs may share GPUs, as these groups say."""
        self._turns = Turns(self.engine, groups)

    # --- inbox: from any thread --------------------------------------------------------------------------------

    def submit(self, job: Job, program: Program, terms: Terms | None = None) -> None:
        """A job comes in. What the engine cannot do is refused at once, in a sentence."""
        self.expect(job, program, terms)
        self._unended.add(job.id)
        self.report(ev.Arrived(job))

    def expect(self, job: Job, program: Program, terms: Terms | None = None) -> None:
        """What a job runs, should it be decided to start it."""
        if job.elastic:
            raise UserError(f"job {job.id!r}: this engine cannot change a job's number of GPUs while it runs")
        if not program.command:
            raise UserError(f"job {job.id!r} has no command")
        self.programs.setdefault(job.id, program)
        if job.reference is not None:
            self.references[job.id] = job.reference
        if terms is not None:
            self.terms.setdefault(job.id, terms)

    def cancel(self, job_id: str) -> None:
        self.report(ev.Cancelled(job_id))

    def requeue(self, job_id: str) -> None:
        """It leaves its GPUs, with a checkpoint if it can, and waits again."""
        self._inbox.put(Requeued(job_id))
        self.engine.wake()

    def report(self, event: ev.Event) -> None:
        """Anything else that happens outside: machines down, up, new or gone."""
        self._inbox.put(event)
        self.engine.wake()

    def close(self) -> None:
        """Nobody submits any more."""
        self.closed = True
        self.engine.wake()

    def quit(self) -> None:
        """Nothing more is reported, though jobs go on."""
        self._quits = True
        self.engine.wake()

    def busy(self) -> set[str]:
        """Jobs that the engine was told to run and of which it has not said that they are over."""
        return {key.job for key in self._told}

    def leave_all(self) -> None:
        """Everybody is asked to save and leave. From the thread that decides."""
        for attempt in list(self._queue):
            self._without(attempt)
        for job in list(self._current):
            self._ask_to_leave(job, Leaving.REQUEUED)

    def wake_by(self, moment: float | None) -> None:
        """Look outside again at this time at the latest."""
        self._look_again = moment

    def nudge(self) -> None:
        """Ask the policy again though nothing has happened."""
        self._agenda.enter(self.clock.now(), ev.TimerDue, _ring)
        self.engine.wake()

    def go_on(self) -> None:
        """After `quit`: report again."""
        self._quits = False

    def check(self, policy: Policy) -> None:
        """Whether the engine can do what this policy asks for; refused in a sentence."""
        if policy.shares and self._turns is None:
            raise UserError(f"policy {policy.name!r} puts several jobs on the same GPUs, which this engine cannot do; "
                            "choose one that gives whole GPUs")  # fmt: skip

    # --- what happens ------------------------------------------------------------------------------------------

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        """Sleep until something happens; everything that has happened by then is one instant."""
        while self._over:  # whatever was reported before this call is written by now
            self.engine.forget(*self._over.pop())
        events: list[ev.Event] = []
        patience = 0.0
        while not self._quits and not (self.closed and not self._unended and self._inbox.empty()):
            self._heard.extend(self.engine.observe(0.0 if self._heard else patience))
            now = self.clock.now()
            self._digest(events)
            for _, _, _, happens, what, epoch in self._agenda.due(now):
                happens(now, what, epoch, events)
            self._give_turns(now)
            self.outside(now)
            while not self._inbox.empty():
                events += self._taken_in(now, self._inbox.get())
            self._give_gpus()
            if events:
                return now, sorted(events, key=_order)
            if self.closed and not self._current and not len(self._agenda) and self._inbox.empty():
                return None  # jobs wait and nothing can ever happen: not even a timer is set
            dues = [due for due in (self._agenda.next_time(), self._look_again, self._turn_ends) if due is not None]
            longest = self.rules.longest_wait
            patience = min(longest, max(0.0, min(dues) - self.clock.now())) if dues else longest
        return None

    def _digest(self, events: list[ev.Event]) -> None:
        """One report of a job an instant: that it began and that it ended are not the same moment."""
        seen: set[str] = set()
        for _ in range(len(self._heard)):
            report = self._heard.popleft()
            if isinstance(report, Standing):
                self._stands(report, events)
                continue
            if report.job in seen:
                self._heard.append(report)
                continue
            count = len(events)
            self._reported(report, events)
            if len(events) > count:
                seen.add(report.job)

    def _stands(self, report: Standing, events: list[ev.Event]) -> None:
        """What is new about a machine. Of one that is down nothing is said until it is up again."""
        machine = self.topology.machine_by_name.get(report.machine)
        if machine is None or self.fleet is None:
            return
        name, fleet = report.machine, self.fleet
        before = "up" if machine not in fleet.down else "drained" if name in fleet.drained else "down"
        events[:] = [event for event in events if getattr(event, "machine", None) != name]  # the last word counts
        if report.state == "up" and before != "up":
            events.append(ev.MachineUp(name))
        elif report.state == "down" and before != "down" and not self._has_attempts(machine):
            events.append(ev.MachineDown(name))
        elif report.state != "up" and before == "up":  # of those there the engine tells one by one what became of them
            events.append(ev.MachineDrained(name))
        if report.withheld != fleet.withheld.get(name, 0):
            events.append(ev.GpusWithheld(name, report.withheld))

    def _has_attempts(self, machine: int) -> bool:
        attempts = (*self._told.values(), *self._queue)
        return any(number == machine for attempt in attempts for number, _ in attempt.placement.slices)

    def _taken_in(self, now: float, event: ev.Event | Requeued) -> list[ev.Event]:
        """What outside reports have to do with attempts."""
        if isinstance(event, Requeued):
            self._ask_to_leave(event.job, Leaving.REQUEUED)
            return []
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
        for attempt in {id(each): each for each in (*self._told.values(), *self._queue)}.values():
            pairs = ((after.machine_by_name.get(before.machine_names[m]), mask) for m, mask in attempt.placement.slices)
            attempt.placement = Placement.of((m, mask) for m, mask in pairs if m is not None)
        self.topology = after

    def _reported(self, report: AttemptReport, events: list[ev.Event]) -> None:
        attempt = self._told.get(Key(report.job, report.attempt))
        if attempt is None:
            self._stranger(report, events)
        elif isinstance(report, Began):
            self._begun(attempt, events)
        elif isinstance(report, Stepped):
            attempt.saved = attempt.saved if report.saved is None else report.saved
            if attempt.began and attempt.leaving is Leaving.NOT:
                events.append(ev.Measured(report.job, self._speed(report), report.step_time, report.exposed))
        else:
            del self._told[attempt.key]
            self._over.append(attempt.key)
            if self._current.get(attempt.job) is attempt:
                del self._current[attempt.job]
            if report.job in self._unended:
                self._ended(attempt, report, events)

    def _speed(self, report: Stepped) -> float:
        """Work per second: as the job says, as its profile says, or else a second of running is a second of work."""
        if report.speed is not None:
            return report.speed
        reference = self.references.get(report.job)
        return 1.0 if reference is None or report.step_time <= 0 else reference / report.step_time

    def _begun(self, attempt: Attempt, events: list[ev.Event]) -> None:
        if attempt.began:
            return
        attempt.began = True
        if attempt.leaving is Leaving.NOT:
            events.append(ev.Started(attempt.job))

    def _stranger(self, report: AttemptReport, events: list[ev.Event]) -> None:
        """Of an attempt that is over, or that nobody asked for: the scheduler finds it odd; what runs is stopped."""
        if isinstance(report, (Began, Stepped)):
            self.engine.stop(report.job, report.attempt, 0.0)
            if report.job not in self._current:
                events.append(ev.Started(report.job))
        else:
            self._over.append(Key(report.job, report.attempt))

    def _ended(self, attempt: Attempt, report: NotBegun | Exited | Vanished, events: list[ev.Event]) -> None:
        """The end of an attempt whose job somebody waits for."""
        job = self.jobs[attempt.job]
        known = Known(self.terms.get(job.id, Terms()), self.rules.retries, job.failures, job.work_at(self.clock.now()))
        found = outcome(attempt, report, known)
        if found.follows and attempt.moves_to is not None:
            self._queue.append(attempt.moves_to)
        else:
            self._without(attempt.moves_to)
        if found.over:
            self._unended.discard(job.id)
        if found.event is None:
            return
        short = self.clock.now() - job.last_change < _SHORT
        again = isinstance(found.event, (ev.StartFailed, ev.Interrupted)) and not found.event.failure
        if again and short and attempt.leaving is Leaving.NOT:
            self._try_later(attempt.key, found.event, events)
        else:
            self._in_vain.pop(job.id, None)
            events.append(found.event)

    def _try_later(self, key: Key, event: ev.Event, events: list[ev.Event]) -> None:
        """What comes to nothing and counts against nothing is tried again, and the more seldom the more often it
        happens: a disk is full for a while, a job that asks to run again may ask at once. Until then it keeps its
        GPUs, and the engine remembers how the attempt ended."""
        count = self._in_vain[key.job] = self._in_vain.get(key.job, 0) + 1
        if count <= 3:
            events.append(event)
            return
        if key in self._over:
            self._over.remove(key)
        later = self.clock.now() + min(60.0, 2.0 ** (count - 3))
        self._agenda.enter(later, type(event), self._now_tried, (key, event))

    def _now_tried(self, now: float, what: tuple[Key, ev.Event], epoch: int, events: list[ev.Event]) -> None:
        key, event = what
        self._over.append(key)
        if key.job in self._unended and key.job not in self._current:
            events.append(event)

    def _without(self, attempt: Attempt | None) -> None:
        """An attempt that was to follow does not."""
        if attempt is not None:
            self._queue = [each for each in self._queue if each is not attempt]
            if self._current.get(attempt.job) is attempt:
                del self._current[attempt.job]

    # --- what is decided ---------------------------------------------------------------------------------------

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        for action in decided:
            if isinstance(action, pl.Preempt):
                self._ask_to_leave(action.job, Leaving.PREEMPTED)
        for action in decided:
            if isinstance(action, pl.Start):
                self._queue.append(self._attempt(now, action))
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
        self._give_turns(now)
        return ()

    def _attempt(self, now: float, action: pl.Start | pl.Migrate) -> Attempt:
        number = self._numbers[action.job] = self._numbers.get(action.job, 0) + 1
        attempt = self._current[action.job] = Attempt(Key(action.job, number), action.placement)
        attempt.saved = self.jobs[action.job].work_done if action.job in self.jobs else 0.0
        self._lease(None if action.lease is None else now + action.lease, action.job)
        return attempt

    def _move(self, now: float, action: pl.Migrate) -> None:
        """A job moves by leaving with its checkpoint and starting again elsewhere."""
        here = self._current.get(action.job)
        there = self._attempt(now, action)
        if here is None or here.key not in self._told:
            self._queue.append(there)
            return
        there.saved = here.saved
        here.moves_to, here.leaving = there, Leaving.MOVES
        self.engine.stop(*here.key, self.programs[action.job].grace)

    def _ask_to_leave(self, job_id: str, why: Leaving) -> None:
        attempt = self._current.get(job_id)
        if attempt is not None and attempt.key in self._told and attempt.leaving is Leaving.NOT:
            attempt.leaving = why
            self.engine.stop(*attempt.key, self.programs[job_id].grace)

    def _put_out(self, job_id: str) -> None:
        """At once: nobody is interested in its checkpoint."""
        self._queue = [attempt for attempt in self._queue if attempt.job != job_id]
        self._current.pop(job_id, None)
        for key, attempt in self._told.items():
            if key.job == job_id:
                attempt.leaving, attempt.moves_to = Leaving.UNWANTED, None
                self.engine.stop(*key, 0.0)
        running = self.engine.running().get(job_id)
        if running is not None and Key(job_id, running) not in self._told:
            self.engine.stop(job_id, running, 0.0)

    def _give_gpus(self) -> None:
        """Start those whose GPUs everybody else has left."""
        for attempt in list(self._queue):
            if self._occupied(attempt):
                continue
            self._queue.remove(attempt)
            self._told[attempt.key] = attempt
            names = tuple(self.topology.machine_names[machine] for machine, _ in attempt.placement.slices)
            self.engine.start(Order(*attempt.key, attempt.placement, names, self.programs[attempt.job],
                                    restarts=attempt.key.number - 1, name=self.names.get(attempt.job, "")))  # fmt: skip
            self._expect_to_hear_of(attempt)

    def _give_turns(self, now: float) -> None:
        if self._turns is not None:
            begun = {job: attempt.key for job, attempt in self._current.items()
                     if attempt.began and attempt.leaving is Leaving.NOT}  # fmt: skip
            self._turn_ends = self._turns.look(now, begun)

    def _expect_to_hear_of(self, attempt: Attempt) -> None:
        if self.rules.start_timeout is not None:
            self._agenda.enter(self.clock.now() + self.rules.start_timeout, ev.StartFailed, self._not_heard_of, attempt)

    def _not_heard_of(self, now: float, attempt: Attempt, epoch: int, events: list[ev.Event]) -> None:
        """Given up; where it turns out to run after all it is a stranger. Its GPUs count as left."""
        if self._told.get(attempt.key) is attempt and not attempt.began:
            del self._told[attempt.key]
            self._current.pop(attempt.job, None)
            self.engine.stop(*attempt.key, 0.0)
            cause = f"nothing was heard of it for {self.rules.start_timeout or 0.0:g} s"
            if attempt.job in self._unended:
                self._ended(attempt, NotBegun(*attempt.key, cause), events)

    def _occupied(self, wants: Attempt) -> bool:
        """By somebody who has to leave first: not by those it shares its GPUs with."""
        wanted = dict(wants.placement.slices)
        for key, other in self._told.items():
            if key.job == wants.job:
                return True
            shares = self._turns is not None and other.leaving is Leaving.NOT and other.placement == wants.placement
            if not shares and any(wanted.get(machine, 0) & mask for machine, mask in other.placement.slices):
                return True
        return False

    def _lease(self, end: float | None, job_id: str) -> None:
        """A new lease, or none, in the place of the one before."""
        epoch = self._leases[job_id] = self._leases.get(job_id, 0) + 1
        if end is not None:
            self._agenda.enter(end, ev.LeaseEnded, self._lease_ends, job_id, epoch)

    def _lease_ends(self, now: float, job_id: str, epoch: int, events: list[ev.Event]) -> None:
        if self._leases.get(job_id) == epoch and job_id in self._current:
            events.append(ev.LeaseEnded(job_id))

    # --- after a restart ---------------------------------------------------------------------------------------

    def reconcile(self, jobs: Iterable[ActiveJob], timer: float | None) -> None:
        """Take up what a scheduler that came back believes, against what the engine really runs: attempts that go on,
        have ended, are gone, never began, or run though nobody knows them. The differences are the first events."""
        running = dict(self.engine.running())
        if timer is not None:
            self._agenda.enter(timer, ev.TimerDue, _ring)
        for job in jobs:
            self._numbers[job.id] = job.attempts
            if job.job.reference is not None:
                self.references[job.id] = job.job.reference
            number = running.pop(job.id, None)
            if job.state in ENDED:
                known = False
            else:
                self._unended.add(job.id)
                known = self._take_up(job)
            if number is not None and not (known and number == job.attempts):
                self._put_out_stranger(Key(job.id, number))
        for stranger, number in running.items():
            self._put_out_stranger(Key(stranger, number))

    def _take_up(self, job: ActiveJob) -> bool:
        """An attempt that should be running, or leaving: the engine is asked what became of it."""
        placement = job.placement if job.placement is not None else job.leaving
        if placement is None:
            return False
        attempt = self._current[job.id] = Attempt(Key(job.id, job.attempts), placement)
        attempt.adopted = True
        self._told[attempt.key] = attempt
        attempt.began = job.state in (State.RUNNING, State.YIELDING)
        self.engine.adopt(*attempt.key)
        if job.state is State.STARTING:
            self._expect_to_hear_of(attempt)
        elif job.state is State.LOST:
            attempt.began = True
            self._inbox.put(ev.ContactRestored(job.id))
        if job.placement is None:
            self._ask_to_leave(job.id, Leaving.PREEMPTED)
        if job.lease_until is not None:
            self._lease(job.lease_until, job.id)
        return True

    def _put_out_stranger(self, key: Key) -> None:
        """What runs though nobody decided it: its GPUs are not given to anybody before it is gone."""
        self.engine.stop(*key, 0.0)
        deadline = self.clock.now() + (self.rules.start_timeout or _STRANGERS)
        while self.engine.running().get(key.job) == key.number and self.clock.now() < deadline:
            self._heard.extend(self.engine.observe(0.05))


class Requeued:
    """Somebody wants a job to leave its GPUs and wait again."""

    __slots__ = ("job",)

    def __init__(self, job: str) -> None:
        self.job = job


def _ring(now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
    if not any(isinstance(event, ev.TimerDue) for event in events):
        events.append(ev.TimerDue())


def _arrive(now: float, job: Job, epoch: int, events: list[ev.Event]) -> None:
    events.append(ev.Arrived(job))


def _order(event: ev.Event) -> int:
    return ev.ORDER[type(event)]
