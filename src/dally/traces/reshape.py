"""Reshaping a trace before it is replayed: another load, another draw of its jobs, a past that is still running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Job, Truth, altered
from dally.traces.trace import Trace

Capacity = Callable[[str | None], int]  # GPUs there are for a job that wants this type
BEFORE = "~before"  # in the ids of jobs that were there when the trace begins


def ideal_run_time(job: Job, truth: Truth) -> float | None:
    """Seconds the job runs if it is started at once and nothing slows it; None where the trace counts steps."""
    if truth.duration is None:
        return None
    return truth.duration / job.gpus if truth.means is DurationMeans.ONE_GPU else truth.duration


def arrivals(trace: Trace) -> tuple[float, float]:
    """First and last submission."""
    if not trace.jobs:
        raise UserError(f"{trace.name} has no jobs")
    return trace.jobs[0].submit_time, trace.jobs[-1].submit_time


def offered(trace: Trace, gpus: int, capacity: Capacity) -> float:
    """GPU-seconds asked for by jobs the cluster can hold, over those it has between first and last submission."""
    first, last = arrivals(trace)
    if last <= first:
        raise UserError(f"{trace.name} submits all its jobs at once: it offers no load over time")
    asked = 0.0
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        run_time = ideal_run_time(job, truth)
        if run_time is None:
            raise UserError(f"job {job.id!r} of {trace.name} counts steps, not seconds: its load is not known")
        if job.gpus <= capacity(job.gpu_type):
            asked += run_time * job.gpus
    return asked / (gpus * (last - first))


def at_load(trace: Trace, load: float, gpus: int, capacity: Capacity) -> Trace:
    """The same jobs in the same order, all gaps between submissions scaled alike until they offer this load.

    What a user does relative to his submission (giving up, a deadline) keeps its distance from it.
    """
    now = offered(trace, gpus, capacity)
    if now <= 0:
        raise UserError(f"no job of {trace.name} fits this cluster: no load can be offered to it")
    first, _ = arrivals(trace)
    factor = now / load
    jobs, truths = [], []
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        at = first + (job.submit_time - first) * factor
        jobs.append(_submitted(job, at))
        truths.append(_moved(truth, at - job.submit_time))
    note = f"gaps between submissions scaled by {factor:.4g}: offered load {load:g} on {gpus} GPUs instead of {now:.3g}"
    return replace(trace, jobs=jobs, truths=truths, notes=[*trace.notes, note])


def resampled(trace: Trace, count: int, seed: int) -> Trace:
    """A draw of `count` jobs with replacement, in blocks of neighbours that keep their order and gaps.

    A moving-block bootstrap: blocks of √n jobs keep bursts and series of the same user together, which a draw of
    single jobs would tear apart. Another seed is another plausible trace of the same cluster.
    """
    total = len(trace)
    if total < 2:
        raise UserError(f"{trace.name} has {total} job: there is nothing to draw from")
    block = max(1, round(total**0.5))
    gaps = [0.0, *(b.submit_time - a.submit_time for a, b in pairwise(trace.jobs))]
    mean_gap = sum(gaps) / (total - 1)
    chance = Random(f"{seed}/resample/{trace.name}")
    jobs: list[Job] = []
    truths: list[Truth] = []
    times_drawn: dict[str, int] = {}
    now = 0.0
    while len(jobs) < count:
        start = chance.randrange(total)
        for at in range(start, min(start + block, total, start + count - len(jobs))):
            if jobs:
                now += gaps[at] if at > start else mean_gap
            job, truth = trace.jobs[at], trace.truths[at]
            drawn = times_drawn[job.id] = times_drawn.get(job.id, 0) + 1
            named = job if drawn == 1 else altered(job, id=f"{job.id}~{drawn}")
            shift = now - job.submit_time
            jobs.append(_submitted(named, now))
            truths.append(_moved(truth, shift))
    note = f"{count:,} jobs drawn with replacement from {total:,} in blocks of {block}, seed {seed}"
    return replace(trace, jobs=jobs, truths=truths, notes=[*trace.notes, note])


_MOST_BEFORE = 100_000  # jobs there at the begin: more than any load that was meant leaves


def with_past(trace: Trace) -> Trace:
    """The trace on a cluster that was at work before it: jobs whose run would reach into it are there at its begin.

    The past is the trace itself, over and over: a job submitted at s and running for d that came one, two, … periods
    earlier too would still be running for d − (period − s), … seconds if it was started at once. So what jobs do after
    the last submission is made up for by what others did before the first, and the GPU-seconds asked for between first
    and last submission are those of the whole trace. To a policy these jobs look newly submitted.
    """
    first, last = arrivals(trace)
    if last <= first:
        raise UserError(f"{trace.name} submits all its jobs at once: there is no stream to have begun before")
    period = (last - first) * len(trace) / (len(trace) - 1)
    found: list[tuple[Job, Truth]] = []
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        run_time = ideal_run_time(job, truth)
        if run_time is None or truth.duration is None:
            raise UserError(f"job {job.id!r} of {trace.name} counts steps, not seconds: nobody knows if it would "
                            "still be running")  # fmt: skip
        periods = 1
        while (left := run_time - (periods * period - (job.submit_time - first))) > 1.0:
            share = left / run_time
            before = _submitted(altered(job, id=f"{job.id}{BEFORE}{periods}",
                                        declared_duration=_part(job.declared_duration, share),
                                        limit=_part(job.limit, share),
                                        declared_steps=_part(job.declared_steps, share)), first)  # fmt: skip
            found.append((before, replace(truth, duration=truth.duration * share, steps=_part(truth.steps, share),
                                          cancel_at=None, failures=(), start=None, submitted=None)))  # fmt: skip
            periods += 1
            if len(found) > max(_MOST_BEFORE, 20 * len(trace)):
                raise UserError(f"{trace.name} at this load: more than {len(found) - 1:,} jobs of its past would "
                                "still be running at its begin; lower --load, or take --cold-start")
    note = (f"{len(found):,} jobs that earlier submissions of the same stream would have left running are there at the "
            "begin and are not measured")  # fmt: skip
    return replace(trace, jobs=[*(job for job, _ in found), *trace.jobs],
                   truths=[*(truth for _, truth in found), *trace.truths], notes=[*trace.notes, note])  # fmt: skip


def _moved(truth: Truth, shift: float) -> Truth:
    """Of a job submitted so much later: when it really started says nothing any more."""
    if truth.cancel_at is None and truth.start is None:
        return truth
    gives_up = None if truth.cancel_at is None else truth.cancel_at + shift
    return replace(truth, cancel_at=gives_up, start=None, submitted=None)


def _part(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _submitted(job: Job, at: float) -> Job:
    """The job, submitted at another time; its deadline stays as far away as it was."""
    if job.submit_time == at:
        return job
    return altered(job, submit_time=at, deadline=None if job.deadline is None else job.deadline + at - job.submit_time)
