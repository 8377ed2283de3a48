"""The live world: the same seam as the simulated one, on a wall clock, over any engine.

Everything that is not the engine's own is here once: the inbox (submit, cancel, requeue, machines), timers, starts of
which nothing is heard, exit codes, retries; what is decided is carried out in `attending`. What an engine reports of an
attempt that is over or was never asked for is passed on as it is; the scheduler finds it odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dally.core import events as ev
from dally.core.clock import Clock
from dally.core.errors import UserError
from dally.core.fleet import Fleet
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.policy import Policy
from dally.core.topology import Topology, changed
from dally.live.attempts import Attempt, Key, Leaving, Terms
from dally.live.attending import LiveRules, Requeued, ring
from dally.live.endings import Known, outcome
from dally.live.engine import (
    AttemptReport,
    Began,
    Engine,
    Exited,
    NotBegun,
    Program,
    Standing,
    Stepped,
    Vanished,
)  # fmt: skip
from dally.live.taking_up import TakingUp

_SHORT = 60.0  # seconds; who has had its GPUs for longer has not run in vain


class LiveWorld(TakingUp):
    """Implements `core.scheduler.World` over an engine."""

    def __init__(self, topology: Topology, engine: Engine, clock: Clock, rules: LiveRules | None = None) -> None:
        super().__init__(topology, engine, clock, rules)
        self.closed = False  # True: nobody submits any more; the world ends when the jobs have
        self.fleet: Fleet | None = None  # the scheduler's machines, where the engine says how they stand
        self.outside: Callable[[float], None] = lambda now: None  # called before the inbox is looked at
        self._look_again: float | None = None
        self._quits = False
        self._in_vain: dict[str, int] = {}  # attempts in a row that came to nothing and count against nothing

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

    def let_go(self, jobs: Iterable[str]) -> list[str]:
        """Forget jobs that have ended. Those of which the engine still runs something stay: they are given back."""
        busy = self.busy() | self._current.keys() | self._unended
        stay = []
        for job in jobs:
            if job in busy:
                stay.append(job)
                continue
            for each in (self.programs, self.terms, self.names, self.references, self._numbers, self._leases,
                         self._in_vain):  # fmt: skip
                each.pop(job, None)
        return stay

    def leave_all(self) -> None:
        """Everybody is asked to save and leave. From the thread that decides."""
        for job in list(self._current):
            self._call_back(job, Leaving.REQUEUED)  # the next service finds that it did not begin
            self._ask_to_leave(job, Leaving.REQUEUED)

    def wake_by(self, moment: float | None) -> None:
        """Look outside again at this time at the latest."""
        self._look_again = moment

    def nudge(self) -> None:
        """Ask the policy again though nothing has happened."""
        self._agenda.enter(self.clock.now(), ev.TimerDue, ring)
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
            called_back = self._call_back(event.job, Leaving.REQUEUED)
            self._ask_to_leave(event.job, Leaving.REQUEUED)
            return called_back
        if isinstance(event, ev.Arrived):
            if event.job.submit_time > now:  # to begin later
                self._agenda.enter(event.job.submit_time, ev.Arrived, _arrive, event.job)
                return []
        elif isinstance(event, ev.Cancelled):
            self._unended.discard(event.job)
            self._put_out(event.job)
        elif isinstance(event, ev.MachinesChanged):
            return [event, *self._lay_out(event)]
        return [event]

    def _lay_out(self, event: ev.MachinesChanged) -> list[ev.Event]:
        """Machines have other numbers; who was to start on one that is gone does not."""
        try:
            before, after = self.topology, changed(self.topology, event.added, event.removed)
        except UserError:
            return []  # the scheduler finds it odd
        to_come = [*self._queue, *(each.moves_to for each in self._told.values() if each.moves_to is not None)]
        broken: list[str] = []
        for attempt in (*self._told.values(), *to_come):
            pairs = [(after.machine_by_name.get(before.machine_names[m]), mask) for m, mask in attempt.placement.slices]
            attempt.placement = Placement.of((m, mask) for m, mask in pairs if m is not None)
            if any(attempt is each for each in to_come) and any(m is None for m, _ in pairs):
                broken.append(attempt.job)
        self.topology = after
        return [each for job in broken for each in self._call_back(job, Leaving.MACHINE_GONE)]

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
            if self._current.get(attempt.job) is attempt:
                del self._current[attempt.job]
            self._over.append(attempt.key)
            if report.job in self._unended and not self._follows_unseen(attempt, report):
                self._ended(attempt, report, events)

    def _follows_unseen(self, attempt: Attempt, report: NotBegun | Exited | Vanished) -> bool:
        """Whether nothing is left of an attempt that was leaving for another one when a service before this one died:
        then that one has begun, or never will, and is asked about in its turn."""
        there = attempt.moves_to
        if there is None or not attempt.adopted or isinstance(report, Exited):
            return False
        self._told[there.key] = there
        self.engine.adopt(*there.key)
        self._expect_to_hear_of(there)
        return True

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
            self._over.remove(attempt.key)  # nothing is written of it: it is kept until the one that follows begins
            attempt.moves_to.follows = attempt.key
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

    def _not_heard_of(self, now: float, attempt: Attempt, epoch: int, events: list[ev.Event]) -> None:
        """Given up; where it turns out to run after all it is a stranger. Its GPUs count as left."""
        if self._told.get(attempt.key) is attempt and not attempt.began:
            del self._told[attempt.key]
            self._current.pop(attempt.job, None)
            self.engine.stop(*attempt.key, 0.0)
            cause = f"nothing was heard of it for {self.rules.start_timeout or 0.0:g} s"
            if attempt.job in self._unended:
                self._ended(attempt, NotBegun(*attempt.key, cause), events)


def _arrive(now: float, job: Job, epoch: int, events: list[ev.Event]) -> None:
    events.append(ev.Arrived(job))


def _order(event: ev.Event) -> int:
    return ev.ORDER[type(event)]
