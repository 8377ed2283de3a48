"""What is said about the lower bound: what it allows for, and the alarm when a run is below it."""

from __future__ import annotations

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
    early = [index for index in np.flatnonzero(jobs.finished) if _early(run, jobs, int(index), clock)]
    if early:
        first = early[0]
        least = _least(run, jobs, int(first))
        said.append(f"{len(early):,} of its jobs ended sooner than any placement allows, the first is "
                    f"{jobs.job_id[first]}: {jobs.jct[first]:,.6g} s, at least {least:,.6g} s")  # fmt: skip
    if not said:
        return ""
    return f"{run.policy} did what is proved impossible, so its figures or the proof are wrong: {'; '.join(said)}"


def _below(value: float, least: float, clock: float) -> bool:
    return value < least * (1 - _ROUNDING) - _ROUNDING * max(1.0, clock)


def _least(run: Run, jobs: JobColumns, index: int) -> float:
    """The least seconds from a job's start to its end, resized or not as it was."""
    job_id = jobs.job_id[index]
    if jobs.resizes[index] and job_id in run.workload.elastic:
        return run.workload.elastic[job_id][0]
    return run.workload.least_run_time[job_id]


def _early(run: Run, jobs: JobColumns, index: int, clock: float) -> bool:
    return _below(float(jobs.jct[index]), _least(run, jobs, index), clock)
