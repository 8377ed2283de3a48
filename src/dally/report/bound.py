"""The lower bound beside a run, one for all runs of a comparison.

A bound must allow for everything a schedule may do. What is allowed here is what any of the compared runs did: packing
as deep as the deepest pack, resizing if anybody was resized, every GPU type that one of them could use. So all
runs are measured against the same bound, and their multiples rank them as their times do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np

from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.report.columns import Floats, job_columns
from dally.simulator.bounds import lower_bounds
from dally.simulator.run import Run


@dataclass(frozen=True, slots=True)
class Bound:
    """What no schedule of the finished jobs on this cluster can beat; None where no job finished, or nobody asked."""

    avg_jct: float | None
    makespan: float | None
    packed: float = 1.0  # the most work a GPU is taken to do at a time; 1: nobody is packed
    resized: bool = False  # whether elastic jobs may be given other numbers of GPUs


NO_BOUND = Bound(None, None)


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
        first, *others = runs
        run_time: dict[str, float] | Mapping[str, float] = first.workload.least_run_time
        if any(run.workload.least_run_time != run_time for run in others):
            shortest: dict[str, float] = {}
            for run in runs:
                for job_id, seconds in run.workload.least_run_time.items():
                    shortest[job_id] = min(seconds, shortest.get(job_id, seconds))
            run_time = shortest
        elastic: dict[str, tuple[float, float]] = {}
        for run in runs:
            for job_id, (shortest_time, least) in run.workload.elastic.items():
                before = elastic.get(job_id, (shortest_time, least))
                elastic[job_id] = min(shortest_time, before[0]), min(least, before[1])
        tied = _tied(first)
        for run in others:
            theirs = _tied(run)
            tied = {job_id: kind for job_id, kind in tied.items() if theirs.get(job_id) == kind}
        resized = any(bool(job_columns(run.ledger).resizes.any()) for run in runs)
        return cls(max(run.packed_throughput for run in runs), resized, run_time, elastic, tied)


def _tied(run: Run) -> dict[str, str]:
    """Jobs that want one GPU type, and which."""
    return {job.id: job.gpu_type for job in run.workload.trace.jobs if job.gpu_type}


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
        return NO_BOUND
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
        _Asked(jobs.submit[done], np.array(gpus), np.array(run_time),
               tuple((name, topology.capacity(name)) for name in topology.gpu_types),
               [allowed.gpu_type.get(job_id) for job_id in ids] if allowed.gpu_type else None, rigid))  # fmt: skip
    # The makespan counts from the first submission of all, the bound from the first that finished.
    return Bound(avg_jct, makespan + head_start, allowed.packed, allowed.resized)


class _Asked:
    """The jobs of a bound, equal to those of another by their digest: a million of them need not be kept."""

    def __init__(self, release: Floats, gpus: Floats, run_time: Floats, capacity: tuple[tuple[str, int], ...],
                 pool: list[str | None] | None, rigid: bool) -> None:  # fmt: skip
        self.jobs: tuple[Any, ...] | None = release, gpus, run_time, dict(capacity), pool, rigid
        digest = sha256(f"{capacity}/{pool}/{rigid}".encode())
        for column in (release, gpus, run_time):
            digest.update(column.tobytes())
        self._digest = digest.digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._digest == other._digest


@lru_cache(maxsize=2)
def _bounds(asked: _Asked) -> tuple[float, float]:
    """Kept for the next run: policies under comparison usually finish the same jobs, and this takes seconds."""
    assert asked.jobs is not None
    release, gpus, run_time, capacity, pool, rigid = asked.jobs
    asked.jobs = None  # the digest is enough to know them again
    found = lower_bounds(release, gpus, run_time, capacity, pool, rigid=rigid)
    return found.avg_jct, found.makespan
