"""A simulated world in which things take as long as they did in a live run, or, as far as is asked, no time at all."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.agenda import Agenda
from dally.core.journal import Decided
from dally.core.records import dataclass
from dally.live.lived import Attempt, Lived, due, whose

_TOGETHER = 1e-6  # seconds: what is nearer than that is one instant; sums of seconds are not exact


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What takes as long as it did. What does not takes no time."""

    starts: bool = False  # from the decision until a job is heard of
    leaving: bool = False  # from being told to leave until it has
    rings: bool = False  # timers and leases are as late as they were
    stops: bool = False  # nobody is asked while the service stops
    digits: bool = False  # times are the same to the last digit, and reports of one instant in the same order


class LivedWorld:
    """Implements `core.scheduler.World`. The n-th attempt of a job is as fast as its n-th was, and the job ends when it
    has done the work that it took. Attempts the live run did not make take what is usual there."""

    def __init__(self, lived: Lived, fidelity: Fidelity, take_over: Callable[[float, str], None]) -> None:
        """`take_over`: puts another policy in charge when that was done."""
        self._lived, self._fidelity, self._take_over = lived, fidelity, take_over
        self._outside = deque(lived.outside)
        self._expected = 0  # reports from outside that are on the agenda
        self._agenda = Agenda()
        self._numbers: dict[str, int] = {}
        self._epochs: dict[str, int] = {}  # raised when what is on the agenda about a job stops being true
        self._timed: dict[str, int] = {}  # how often the end of a job was worked out
        self._done: dict[str, float] = {}  # work of the attempt that runs
        self._need: dict[str, float] = {}  # work from its begin to the end of the job
        self._rest: dict[str, float] = {}  # work the job still needed when its last attempt was over
        self._owed: dict[str, float] = {}  # work that attempts here have added less than they did
        self._going: dict[str, tuple[float, float]] = {}  # since when, work per second
        for time, event in lived.odd if fidelity.digits else ():
            self._agenda.enter(time, type(event), self._odd, event)
        self._starts = lived.usual(lambda attempt: attempt.answered if attempt.refusal is None else None)
        self._leaving = lived.usual(lambda attempt: attempt.leaving)

    # --- what happens ------------------------------------------------------------------------------------------

    def asks(self, now: float) -> bool:
        """Whether the policy is asked, or the service was just stopping."""
        return not self._fidelity.stops or not any(
            first - _TOGETHER <= now <= last + _TOGETHER for first, last in self._lived.unasked)  # fmt: skip

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        while (first := self._next_time()) is not None and first <= self._lived.last + _TOGETHER:
            events: list[ev.Event] = []
            now = first
            for time, _, _, happens, what, epoch in self._agenda.due(first + _TOGETHER):
                now = max(now, time)
                happens(time, what, epoch, events)
            if events and self._fidelity.digits:
                return self._as_recorded(now, events)
            if events:
                return now, sorted(events, key=_order)
        return None

    def _next_time(self) -> float | None:
        """Of events; whoever takes over before them has done so."""
        while self._outside and not self._expected:  # what came in two instants does not come in one
            time, what = self._outside[0]
            first = self._agenda.next_time()
            if isinstance(what, str):
                if first is not None and first <= time + _TOGETHER:
                    break
                self._take_over(time, what)
            else:
                for event in what:
                    self._expected += 1
                    self._agenda.enter(time, type(event), self._reported, event)
            self._outside.popleft()
        return self._agenda.next_time()

    def _as_recorded(self, now: float, events: list[ev.Event]) -> tuple[float, list[ev.Event]]:
        """Sums of seconds are not exact, and a policy that compares them may decide by the last digit."""
        moments, order = self._lived.moments, self._lived.order
        after = bisect_left(moments, now)
        near = [moment for moment in moments[max(0, after - 1) : after + 1] if abs(moment - now) <= _TOGETHER]
        now = min(near, key=lambda moment: abs(moment - now), default=now)
        return now, sorted(events, key=lambda event: (_order(event), order.get((now, *whose(event)), 0)))

    def _reported(self, now: float, event: Any, epoch: int, events: list[ev.Event]) -> None:
        self._expected -= 1
        events.append(event)
        if isinstance(event, ev.Cancelled):
            self._stops(now, event.job, None)

    def _odd(self, now: float, event: Any, epoch: int, events: list[ev.Event]) -> None:
        """Changes nothing, but that the policy is asked."""
        events.append(event)

    def _of_job(self, now: float, event: Any, epoch: int, events: list[ev.Event]) -> None:
        """What was going to happen to a job does, if it is still the same attempt."""
        if self._epochs.get(event.job, 0) != epoch:
            return
        if isinstance(event, ev.Started):
            self._begun(now, event.job)
        elif isinstance(event, ev.Measured):
            self._goes(now, event.job, event.speed)
        elif not isinstance(event, ev.LeaseEnded):
            self._stops(now, event.job, event)
        events.append(event)

    def _finished(self, now: float, what: tuple[str, int], epoch: int, events: list[ev.Event]) -> None:
        job, times = what
        if self._epochs.get(job, 0) == epoch and self._timed.get(job) == times:
            self._stops(now, job, None)
            events.append(ev.Finished(job))

    def _rings(self, now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
        if not any(isinstance(event, ev.TimerDue) for event in events):
            events.append(ev.TimerDue())

    # --- what is decided ---------------------------------------------------------------------------------------

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        """All answers come in instants of their own, as from a live world."""
        for action in decided:
            if isinstance(action, pl.Preempt):
                self._leave(now, action.job)
        for action in decided:
            if isinstance(action, (pl.Start, pl.Migrate, pl.Resize)):
                self._start(now, action)
            elif isinstance(action, pl.Extend):
                self._lease(action.job, now + action.lease)
            elif isinstance(action, pl.WakeAt):
                late = self._late("", action.time)
                if late is not None:
                    self._agenda.enter(max(now, action.time + late), ev.TimerDue, self._rings)
        return ()

    def _start(self, now: float, action: pl.Places) -> None:
        job = action.job
        self._stops(now, job, None)
        self._numbers[job] = self._numbers.get(job, 0) + 1
        attempt = self._attempt(job)
        answer: ev.Event = ev.Started(job)
        wait = self._starts
        if attempt is not None and attempt.answered is not None:
            wait = attempt.answered
            answer = answer if attempt.refusal is None else attempt.refusal
        if not self._fidelity.starts:
            wait = 0.0
        self._enter(now + wait, answer)
        if action.lease is not None:
            self._lease(job, now + action.lease)

    def _leave(self, now: float, job: str) -> None:
        attempt = self._attempt(job)
        wait: float = self._leaving
        end: ev.Event = ev.Yielded(job)
        if attempt is not None and attempt.leaving is not None and attempt.end is not None:
            wait, end = attempt.leaving, attempt.end
        self._stops(now, job, end)
        self._enter(now + (wait if self._fidelity.leaving else 0.0), end)

    def _lease(self, job: str, end: float) -> None:
        late = self._late(job, end)
        if late is not None:
            self._enter(end + late, ev.LeaseEnded(job))

    def _late(self, job: str, time: float) -> float | None:
        """None: it was due and nobody heard it, since something else came first."""
        return self._lived.late.get(due(job, time), 0.0) if self._fidelity.rings else 0.0

    # --- an attempt --------------------------------------------------------------------------------------------

    def _attempt(self, job: str) -> Attempt | None:
        return self._lived.attempts.get((job, self._numbers.get(job, 0)))

    def _stops(self, now: float, job: str, end: ev.Event | None) -> None:
        """It does not go on: what was going to happen to it does not. A fault takes what it took."""
        self._epochs[job] = self._epochs.get(job, 0) + 1
        self._book(now, job)
        if job not in self._done:
            return
        attempt, kept = self._attempt(job), self._done.pop(job)
        if attempt is not None:
            kept = attempt.gain if isinstance(end, ev.Interrupted) else kept
            self._owed[job] = self._owed.get(job, 0.0) + attempt.gain - kept
        if job in self._need:
            self._rest[job] = max(0.0, self._need.pop(job) - kept)

    def _book(self, now: float, job: str) -> None:
        since, speed = self._going.pop(job, (now, 0.0))
        if job in self._done:
            self._done[job] += speed * (now - since)

    def _enter(self, time: float, event: Any) -> None:
        self._agenda.enter(time, type(event), self._of_job, event, self._epochs.get(event.job, 0))

    def _begun(self, now: float, job: str) -> None:
        """It runs as that attempt ran: at the speeds that were measured, until it broke or all its work is done."""
        attempt = self._attempt(job)
        self._done[job] = 0.0
        if attempt is None:
            need = self._rest.get(job)
        else:
            need = None if attempt.need is None else attempt.need + self._owed.get(job, 0.0)
        if need is not None:
            self._need[job] = need
        for after, measured in attempt.measured if attempt is not None else ():
            self._enter(now + after, measured)
        if attempt is not None and attempt.lasted is not None and isinstance(attempt.end, (ev.Failed, ev.Interrupted)):
            self._enter(now + attempt.lasted, attempt.end)
        self._goes(now, job, 1.0 if attempt is not None else self._usual_speed(job))

    def _usual_speed(self, job: str) -> float:
        """As last measured: nothing better is known of an attempt that was never made."""
        numbers = [number for name, number in self._lived.attempts if name == job]
        measured = [event.speed for number in numbers for _, event in self._lived.attempts[job, number].measured]
        return measured[-1] if measured and measured[-1] > 0 else 1.0

    def _goes(self, now: float, job: str, speed: float) -> None:
        """When it ends at this speed; what was thought before does not count any more."""
        self._book(now, job)
        self._going[job] = (now, speed)
        times = self._timed[job] = self._timed.get(job, 0) + 1
        if job in self._need and speed > 0:
            left = max(0.0, self._need[job] - self._done[job])
            self._agenda.enter(now + left / speed, ev.Finished, self._finished, (job, times), self._epochs.get(job, 0))


def _order(event: ev.Event) -> int:
    return ev.ORDER[type(event)]
