"""What the end of an attempt means: is the job done, does it wait again, has it failed? Decided here and nowhere else.

Exit code 143 of a job that was asked to leave says that it saved a checkpoint; death by a signal never does. A crash
counts against the job's retries. What is not the job's doing does not: an attempt that never began because the service
died, one that was asked to leave, an exit code with which the job asks to be run again. An attempt that vanished (its
machine went down, somebody killed what watched over it) may happen a few times even to a job without retries.
"""

from __future__ import annotations

from typing import NamedTuple

from dally.core import events as ev
from dally.live.attempts import SAVED, Attempt, Leaving, Terms
from dally.live.engine import Exited, NotBegun, Vanished

VANISHES = 3  # times an attempt may vanish, whatever the job's retries


class Known(NamedTuple):
    """What has to be known of a job besides the report."""

    terms: Terms
    retries: int  # as the rules have it, where the terms do not say
    failures: int  # so far
    work: float  # it has done by now, saved or not

    @property
    def allowed(self) -> int:
        return self.retries if self.terms.retries is None else self.terms.retries


class Outcome(NamedTuple):
    """The event; whether the job is over; whether the attempt that was to follow does."""

    event: ev.Event | None
    over: bool = False
    follows: bool = False


def outcome(attempt: Attempt, report: NotBegun | Exited | Vanished, known: Known) -> Outcome:
    job = attempt.job
    if isinstance(report, NotBegun) and attempt.began:
        report = Vanished(*attempt.key, "nothing is left of it where it ran")
    if isinstance(report, NotBegun):
        again = ev.StartFailed(job, report.cause)
        blameless = report.void or attempt.adopted or attempt.leaving is not Leaving.NOT
        return Outcome(again) if blameless else _failed(again, report.cause, known, known.allowed)
    if isinstance(report, Vanished):
        gone = ev.Interrupted(job, attempt.saved, report.cause)
        return _failed(gone, report.cause, known, max(known.allowed, VANISHES))
    code, leaving = report.code, attempt.leaving
    if report.asked and leaving is Leaving.NOT:  # by a service that is no more
        leaving = Leaving.REQUEUED
    if code == 0:
        return Outcome(ev.Finished(job), over=True)
    if leaving is Leaving.NOT:
        return _unasked(attempt, report, known)
    if code != SAVED:
        how = "killed after its grace" if code == -9 else f"left with {code}"
        return Outcome(ev.Interrupted(job, attempt.saved, f"asked to leave, {how}: no checkpoint was saved"))
    if leaving is Leaving.MOVES and attempt.moves_to is not None:
        return Outcome(None, follows=True)
    if leaving is Leaving.PREEMPTED:
        return Outcome(ev.Yielded(job))
    return Outcome(ev.Interrupted(job, known.work, leaving.value))


def _unasked(attempt: Attempt, report: Exited, known: Known) -> Outcome:
    """It left of its own accord, or the engine put it out and says why."""
    job, code = attempt.job, report.code
    if report.cause:
        return Outcome(ev.Failed(job, report.cause), over=True)
    if code in known.terms.requeue_on:
        kept = known.work if code == SAVED else attempt.saved
        return Outcome(ev.Interrupted(job, kept, f"exit code {code}: it asks to run again"))
    again = ev.Interrupted(job, attempt.saved, f"exit code {code}; it is retried")
    return _failed(again, f"exit code {code}", known, known.allowed)


def _failed(again: ev.StartFailed | ev.Interrupted, cause: str, known: Known, allowed: int) -> Outcome:
    if known.failures >= allowed:
        return Outcome(ev.Failed(again.job, cause), over=True)
    return Outcome(again._replace(failure=True))
