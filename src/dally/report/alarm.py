"""What is said about the lower bound: what it allows for, and the alarm when a run is below it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dally.report.bound import Bound
from dally.report.columns import JobColumns, job_columns
from dally.report.metrics import Summary
from dally.report.wording import listed, time_text
from dally.simulator.run import Run

# A run that is below by less than this is not: sums are rounded, relative to the figure and to the clock.
_ROUNDING = 1e-9


def allowance_text(bound: Bound) -> str:
    """What the bound allows beyond whole GPUs for whole gangs; empty where that is nothing."""
    parts = []
    if bound.packed > 1:
        parts.append(f"packed jobs (a GPU doing the work of {bound.packed:.2f})")
    if bound.resized:
        parts.append("resized jobs")
    return f"It allows for {listed(parts)}, since somebody here did that." if parts else ""


def below_bound(run: Run, summary: Summary) -> str:
    """One sentence where a run did what is proved impossible: the model or the proof is wrong. Empty: all is well."""
    bound, said = summary.lower_bound, []
    clock = run.ledger.last_end or 0.0
    for what, value, least in (("average JCT", summary.avg_jct, bound.avg_jct),
                               ("makespan", summary.makespan, bound.makespan)):  # fmt: skip
        if value is not None and least is not None and _below(value, least, clock):
            said.append(f"its {what} of {time_text(value)} is below the lower bound of {time_text(least)}")
    jobs = job_columns(run.ledger)
    jct, done = jobs.jct, np.flatnonzero(jobs.finished)
    shortest = np.fromiter((_least(run, jobs, index) for index in done.tolist()), dtype=np.float64, count=len(done))
    early = np.flatnonzero(_below(jct[done], shortest, clock))
    if len(early):
        first = int(done[early[0]])
        said.append(f"{len(early):,} of its jobs ended sooner than any placement allows, the first is "
                    f"{jobs.job_id[first]}: {jct[first]:,.6g} s, at least {shortest[early[0]]:,.6g} s")  # fmt: skip
    if not said:
        return ""
    return f"{run.policy} did what is proved impossible, so its figures or the proof are wrong: {'; '.join(said)}"


def _below(value: Any, least: Any, clock: float) -> Any:
    """Of a figure, or of many."""
    return value < least * (1 - _ROUNDING) - _ROUNDING * max(1.0, clock)


def _least(run: Run, jobs: JobColumns, index: int) -> float:
    """The least seconds from a job's start to its end, resized or not as it was."""
    job_id = jobs.job_id[index]
    if jobs.resizes[index] and job_id in run.workload.elastic:
        return run.workload.elastic[job_id][0]
    return run.workload.least_run_time[job_id]
