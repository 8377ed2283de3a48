"""The lower bound beside a run, one for all runs of a comparison.

A bound must allow for everything a schedule may do. What is allowed here is what any of the compared runs did: packing
as deep as the deepest pack, resizing if anybody was resized, every GPU type that one of them could use. So all
runs are measured against the same bound, and their multiples rank them as their times do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dally.core.topology import Topology
from dally.report.columns import job_columns
from dally.simulator.bounds import lower_bounds
from dally.simulator.run import Run


@dataclass(frozen=True, slots=True)
class Bound:
    """What no schedule of the finished jobs on this cluster can beat; None where no job finished."""

    avg_jct: float | None
    makespan: float | None
    packed: float = 1.0  # the most work a GPU is taken to do at a time; 1: nobody is packed
    resized: bool = False  # whether elastic jobs may be given other numbers of GPUs


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What a schedule may do, and the least each job then takes."""

    packed: float
    resized: bool
    run_time: Mapping[str, float]
    elastic: Mapping[str, tuple[float, float]]
    gpu_type: Mapping[str, str]  # jobs that could use one type only, in every run

    @classmethod
    def by(cls, runs: Sequence[Run]) -> _Allowed:
        run_time: dict[str, float] = {}
        elastic: dict[str, tuple[float, float]] = {}
        for run in runs:
            for job_id, seconds in run.workload.least_run_time.items():
                run_time[job_id] = min(seconds, run_time.get(job_id, seconds))
            for job_id, (shortest, least) in run.workload.elastic.items():
                before = elastic.get(job_id, (shortest, least))
                elastic[job_id] = min(shortest, before[0]), min(least, before[1])
        types: dict[str, set[str | None]] = {}
        for run in runs:
            for job in run.workload.trace.jobs:
                types.setdefault(job.id, set()).add(job.gpu_type)
        tied = {job_id: kind for job_id, kinds in types.items() if len(kinds) == 1 for kind in kinds if kind}
        resized = any(row.resizes for run in runs for row in run.ledger.rows)
        return cls(max(run.packed_throughput for run in runs), resized, run_time, elastic, tied)


def bounds_of(runs: Sequence[Run], topology: Topology) -> list[Bound]:
    """A bound per run: the same one where the same jobs finished."""
    if not runs:
        return []
    allowed = _Allowed.by(runs)
    return [_bound(run, topology, allowed) for run in runs]


def bound_of(run: Run, topology: Topology) -> Bound:
    """The bound of a run that is compared with no other."""
    return bounds_of([run], topology)[0]


def _bound(run: Run, topology: Topology, allowed: _Allowed) -> Bound:
    jobs = job_columns(run.ledger)
    done = np.flatnonzero(jobs.finished)
    if len(done) == 0:
        return Bound(None, None)
    ids = [jobs.job_id[index] for index in done]
    run_time = [allowed.run_time[job_id] for job_id in ids]
    gpus = jobs.gpus[done].astype(np.float64).tolist()
    rigid = allowed.packed == 1.0 and not allowed.resized
    if not rigid:
        for at, job_id in enumerate(ids):
            if allowed.resized:
                run_time[at], least = allowed.elastic.get(job_id, (run_time[at], run_time[at] * gpus[at]))
                if run_time[at] > 0:
                    gpus[at] = least / run_time[at]
            gpus[at] /= allowed.packed
    head_start = float(jobs.submit[done].min() - jobs.submit.min())
    avg_jct, makespan = _bounds(
        tuple(jobs.submit[done].tolist()),
        tuple(gpus),
        tuple(run_time),
        tuple((name, topology.capacity(name)) for name in topology.gpu_types),
        tuple(allowed.gpu_type.get(job_id) for job_id in ids),
        rigid,
    )
    # The makespan counts from the first submission of all, the bound from the first that finished.
    return Bound(avg_jct, makespan + head_start, allowed.packed, allowed.resized)


@lru_cache(maxsize=2)
def _bounds(
    release: tuple[float, ...],
    gpus: tuple[float, ...],
    run_time: tuple[float, ...],
    capacity: tuple[tuple[str, int], ...],
    pool: tuple[str | None, ...],
    rigid: bool,
) -> tuple[float, float]:
    """Kept for the next run: policies under comparison usually finish the same jobs, and this takes seconds."""
    found = lower_bounds(release, gpus, run_time, dict(capacity), pool, rigid=rigid)
    return found.avg_jct, found.makespan
