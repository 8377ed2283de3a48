"""What a live run really took, read off its journal: starts, speeds, checkpoints, ends, and what came from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from statistics import median
from typing import NamedTuple

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.estimates import Estimates
from dally.core.journal import InCharge, Instant, Journal, Odd
from dally.core.records import dataclass
from dally.core.scheduler import Scheduler
from dally.core.topology import Topology
from dally.policies.options import make_policy
from dally.simulator.replay import Nowhere

_MORE = 1e-3  # work that was left at the least when an attempt ended and its job did not
_SAME = 6  # digits after the point in which times are the same

# What people and machines do: it may be odd (a job released that nobody holds), and comes again all the same.
_FROM_OUTSIDE = (ev.Arrived, ev.Cancelled, ev.Held, ev.Released, ev.MachineDown, ev.MachineDrained, ev.MachineUp,
                 ev.MachinesChanged, ev.QueuesSet)  # fmt: skip
_ENDS = (ev.Finished, ev.Failed, ev.Interrupted, ev.Yielded)


class Record(NamedTuple):
    """A live run: the cluster and policy it began with, what policies were told, and what happened."""

    topology: Topology
    policy: str
    instants: tuple[Instant, ...]
    estimates: Callable[[Topology], Estimates]

    def scheduler(self) -> Scheduler:
        """One that has seen nothing yet and knows what the one that wrote the record knew."""
        return Scheduler(self.topology, make_policy(self.policy), Nowhere(), Journal(), self.estimates(self.topology),
                         strict=False)  # fmt: skip


@dataclass(slots=True)
class Attempt:
    """One attempt of a job, in seconds from one step of its life to the next."""

    decided: float
    answered: float | None = None  # from the decision until it was heard of
    refusal: ev.Event | None = None  # what was heard, if not that it runs
    began: float = 0.0
    measured: list[tuple[float, ev.Measured]] = field(default_factory=list)  # after it began
    asked: float | None = None  # when it was told to leave
    leaving: float | None = None  # from then until it had left
    end: ev.Event | None = None  # how it ended, on being told or by itself
    lasted: float | None = None  # from when it began until it ended by itself
    before: float = 0.0  # work done when it was decided
    gain: float = 0.0  # work it added to that and that was not lost
    need: float | None = None  # work from its begin to the end of the job, at the least; None: the job did not finish

    def progress(self, seconds: float) -> float:
        """Work in so many seconds from its begin: a second's in a second until something was measured."""
        done, since, speed = 0.0, 0.0, 1.0
        for after, measured in self.measured:
            if after >= seconds:
                break
            done, since, speed = done + speed * (after - since), after, measured.speed
        return done + speed * (seconds - since)


@dataclass(slots=True)
class Lived:
    """All that a world needs to do the same again."""

    # what came from outside, instant by instant, or which policy took over
    outside: list[tuple[float, list[ev.Event] | str]] = field(default_factory=list)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    # (job or "", when a lease or timer was due) → seconds it was late; None: it never rang
    late: dict[tuple[str, float], float | None] = field(default_factory=dict)
    moments: list[float] = field(default_factory=list)  # when anything happened
    odd: list[tuple[float, ev.Event]] = field(default_factory=list)  # reports of attempts that did not fit
    unasked: list[tuple[float, float]] = field(default_factory=list)  # from … to: the service stopped, and asked nobody
    order: dict[tuple[float, str, str], int] = field(default_factory=dict)  # (moment, kind, job) → which report it was

    @property
    def last(self) -> float:
        return self.moments[-1] if self.moments else 0.0

    def usual(self, what: Callable[[Attempt], float | None]) -> float:
        """For attempts that the live run did not make."""
        found = [value for attempt in self.attempts.values() if (value := what(attempt)) is not None]
        return median(found) if found else 0.0


def due(job: str, time: float) -> tuple[str, float]:
    """A timer ("") or a job's lease, by when it was to ring."""
    return job, round(time, _SAME)


def whose(event: ev.Event) -> tuple[str, str]:
    """What kind of report, about which job or machine."""
    about = getattr(event, "job", None) or getattr(event, "machine", "")
    return type(event).__name__, str(getattr(about, "id", about))


def read(record: Record) -> Lived:
    """Follow the record from its beginning to its end."""
    return _Reader(record.scheduler()).read(record.instants)


class _Reader:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.lived = scheduler, Lived()
        self.numbers: dict[str, int] = {}
        self.timers: list[float] = []  # asked for, and not rung yet

    def read(self, instants: Iterable[Instant]) -> Lived:
        for instant in instants:
            leases = {job.id: job.lease_until for job in self.scheduler.books.holding.values()}
            self.scheduler.follow(instant)
            self.from_outside: list[ev.Event] = []
            for entry in instant.happened:
                event = entry.event if isinstance(entry, Odd) else entry
                self.lived.order[instant.time, *whose(event)] = len(self.lived.order)
                if not isinstance(entry, Odd):
                    self._happened(instant.time, event, leases)
                elif isinstance(event, _FROM_OUTSIDE):
                    self.from_outside.append(event)
                else:
                    self.lived.odd.append((instant.time, event))
            if self.from_outside:
                self.lived.outside.append((instant.time, self.from_outside))
            for action in instant.decided or ():
                if isinstance(action, InCharge):
                    self.lived.outside.append((instant.time, action.policy))
                    self.scheduler.put_in_charge(make_policy(action.policy), instant.time, written=False)
                elif isinstance(action, (pl.Start, pl.Migrate, pl.Resize)):
                    self._decided(instant.time, action)
                elif isinstance(action, pl.Extend):
                    self.lived.late.setdefault(due(action.job, instant.time + action.lease), None)
                elif isinstance(action, pl.Preempt):
                    self._attempt(action.job).asked = instant.time
                elif isinstance(action, pl.WakeAt):
                    self.timers.append(action.time)
                    self.lived.late.setdefault(due("", action.time), None)
            if instant.decided is None:
                going_on = bool(self.lived.unasked) and self.lived.unasked[-1][1] == self.lived.last
                first = self.lived.unasked.pop()[0] if going_on else instant.time
                self.lived.unasked.append((first, instant.time))
            self.lived.moments.append(instant.time)
        return self.lived

    def _decided(self, now: float, action: pl.Places) -> None:
        job = action.job
        done = self.scheduler.jobs[job].work_done
        if action.lease is not None:
            self.lived.late.setdefault(due(job, now + action.lease), None)
        if job in self.numbers and self._attempt(job).end is None:  # it moves
            self._attempt(job).gain = max(0.0, done - self._attempt(job).before)
        number = self.numbers[job] = self.numbers.get(job, 0) + 1
        self.lived.attempts[job, number] = Attempt(now, before=done)

    def _attempt(self, job: str) -> Attempt:
        """The one that counts. There is none where a report was odd, and those are left out."""
        return self.lived.attempts[job, self.numbers[job]]

    def _happened(self, now: float, event: ev.Event, leases: dict[str, float | None]) -> None:
        if isinstance(event, ev.TimerDue):
            self._rang(now)
        elif isinstance(event, ev.LeaseEnded):
            end = leases.get(event.job)
            if end is not None:
                self.lived.late[due(event.job, end)] = now - end
        elif isinstance(event, (ev.Started, ev.Measured)):
            self._runs(now, event)
        elif isinstance(event, ev.StartFailed):
            attempt = self._attempt(event.job)
            attempt.answered, attempt.refusal, attempt.end = now - attempt.decided, event, event
        elif isinstance(event, _ENDS) and event.job in self.numbers:
            self._ended(now, event)
        else:  # arrivals, machines, queues, what owners do with their jobs
            self.from_outside.append(event)

    def _rang(self, now: float) -> None:
        """One ring is for all timers that are due; one that nobody set comes from outside."""
        rung = [time for time in self.timers if time <= now]
        if not rung:
            self.from_outside.append(ev.TimerDue())
        for time in rung:
            self.timers.remove(time)
            self.lived.late[due("", time)] = now - time

    def _runs(self, now: float, event: ev.Started | ev.Measured) -> None:
        attempt = self._attempt(event.job)
        if attempt.answered is None:
            attempt.answered, attempt.began = now - attempt.decided, now
        if isinstance(event, ev.Measured):
            attempt.measured.append((now - attempt.began, event))

    def _ended(self, now: float, event: ev.Finished | ev.Failed | ev.Interrupted | ev.Yielded) -> None:
        attempt = self._attempt(event.job)
        attempt.end = event
        if attempt.asked is not None:
            attempt.leaving = now - attempt.asked
        elif attempt.answered is not None:
            attempt.lasted = now - attempt.began
        else:  # it was told to leave before it was heard of
            attempt.answered, attempt.refusal = now - attempt.decided, event
        attempt.gain = max(0.0, self.scheduler.jobs[event.job].work_done - attempt.before)
        if isinstance(event, ev.Finished):
            if attempt.leaving is not None:  # it was told to leave, and had less to do than it took to leave
                attempt.gain += attempt.leaving * (attempt.measured[-1][1].speed if attempt.measured else 1.0)
            self._needed(event.job)

    def _needed(self, job: str) -> None:
        """What the job still needed when each of its attempts began. An attempt that did not finish it did less than
        that, though it may have lost what it did."""
        after = 0.0
        for number in range(self.numbers[job], 0, -1):
            attempt = self.lived.attempts[job, number]
            after += attempt.gain
            ran = attempt.lasted
            if attempt.asked is not None and attempt.leaving is not None:
                ran = attempt.asked + attempt.leaving - attempt.began
            if number < self.numbers[job] and ran is not None and attempt.refusal is None:
                after = max(after, attempt.progress(ran) + _MORE)
            attempt.need = after
