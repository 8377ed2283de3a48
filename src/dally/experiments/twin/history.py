"""A recorded past: which jobs ran when, from when on the record is whole, and whose figures count."""

from __future__ import annotations

import math
from dataclasses import replace

from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.records import dataclass
from dally.simulator.window import Window
from dally.traces.assembly import STILL_RUNNING
from dally.traces.trace import Trace

WARM_UP = COOL_DOWN = 0.10  # of the time of submissions: not measured
_STRAY = 0.002  # share of records that may have ended before the record really begins


@dataclass(frozen=True, slots=True)
class Recorded:
    """One job that ran; seconds from the trace's origin."""

    job: Job
    truth: Truth
    start: float
    end: float
    cut: bool = False  # it still ran when the record ended, so that nobody knows how long it took

    @property
    def again(self) -> bool:
        """It was put back into the queue and ran several times: the record's first start does not say how long it
        waited in all."""
        return bool(self.truth.failures)

    @property
    def wait(self) -> float:
        return max(0.0, self.start - self.job.submit_time)

    @property
    def jct(self) -> float:
        return self.end - self.job.submit_time


@dataclass(frozen=True, slots=True)
class History:
    """`begin`: from then on every job is in the record. A job that ended before is not, so that of earlier times only
    those are there that still ran: they are the warm start."""

    trace: Trace
    ran: dict[str, Recorded]
    begin: float
    until: float  # the last thing that is known
    window: Window  # jobs submitted in it are measured

    @property
    def warm(self) -> list[Recorded]:
        """Jobs that ran when the record began."""
        return [each for each in self.ran.values() if each.start < self.begin]

    @property
    def measured(self) -> list[Recorded]:
        """In order of submission."""
        whole = (each for each in self.ran.values() if not each.cut and not each.again)
        return [each for each in whole if self.window.holds(each.job.id, each.job.submit_time)]

    def resumed(self, begin: float, most: int) -> History:
        """The same, simulated from a later begin on. Jobs that had started by then run when they did, also those that
        had ended, up to so many: what users had used is known there."""
        before = sorted(each.start for each in self.ran.values() if each.start < begin)
        since = before[-most] if len(before) > most else self.begin
        gone = {name for name, each in self.ran.items() if each.start < since and each.end <= begin}
        left = [pair for pair in zip(self.trace.jobs, self.trace.truths, strict=True) if pair[0].id not in gone]
        trace = replace(self.trace, jobs=[job for job, _ in left], truths=[truth for _, truth in left])
        return replace(self, trace=trace, begin=begin,
                       ran={name: each for name, each in self.ran.items() if name not in gone})  # fmt: skip

    def replayed(self, until: float = math.inf) -> Trace:
        """The jobs as they are handed to a simulation. Who ran at the begin arrives when it really started: nothing
        else is there yet, so that it starts at once and is at work, with its limit running, when the record begins.
        Who waited at the begin arrives then. `until`: without jobs submitted later."""
        kept: list[tuple[Job, Truth]] = []
        for job, truth in zip(self.trace.jobs, self.trace.truths, strict=True):
            known = self.ran.get(job.id)
            arrives = job.submit_time
            if known is not None and known.start < self.begin:
                arrives = max(known.start, arrives)
            elif arrives < self.begin:
                arrives = self.begin
                if truth.cancel_at is not None and truth.cancel_at <= arrives:
                    continue
            if job.submit_time <= until:
                if arrives != job.submit_time:
                    began = known is not None and known.start < self.begin
                    job = replace(job, submit_time=arrives, after=None if began else job.after)
                    truth = replace(truth, submitted=None)
                kept.append((job, truth))
        kept.sort(key=lambda pair: pair[0].submit_time)
        return replace(self.trace, jobs=[job for job, _ in kept], truths=[truth for _, truth in kept])


def history_of(trace: Trace, window: tuple[float, float] = (WARM_UP, 1.0 - COOL_DOWN)) -> History:
    """The past that a trace records; `window`: shares of the time of submissions between which jobs are measured."""
    cut = {problem.job for problem in trace.problems if problem.reason == STILL_RUNNING}
    ran = {}
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        if truth.start is not None and truth.duration is not None and truth.cancel_at is None:
            ran[job.id] = Recorded(job, truth, truth.start, truth.start + truth.duration, job.id in cut)
    if not ran:
        raise UserError(f"{trace.name} does not say when its jobs started, so that there is nothing to hold a replay "
                        "against; `dally compare` replays traces without start times")  # fmt: skip
    ends = sorted(each.end for each in ran.values())
    first = min(each.job.submit_time for each in ran.values())
    begin = max(first, ends[int(len(ends) * _STRAY)]) if _has_past(ran, ends) else first
    last = max(each.job.submit_time for each in ran.values())
    span = max(last - begin, 0.0)
    measured = Window(begin + window[0] * span, begin + window[1] * span)
    made = History(trace, ran, begin, max(ends[-1], last), measured)
    if not made.measured:
        raise UserError(f"{trace.name}: no job that started and ended is left between warm-up and cool-down "
                        f"({len(ran):,} ran in all); a longer history is needed")  # fmt: skip
    return made


def _has_past(ran: dict[str, Recorded], ends: list[float]) -> bool:
    """Whether jobs ran before the record begins: those that had started when the first of them ended."""
    return sum(each.start < ends[int(len(ends) * _STRAY)] for each in ran.values()) > 1


def partition_of(job: Job) -> str:
    return job.partition or job.tenant or "–"
