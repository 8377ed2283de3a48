"""A problem as arrays: who can run in which column and how fast, what an equal share yields, and who fits nowhere.

A job may use a column when it has a throughput there and its gang is no larger than the type's whole pool; a
fraction of time on a pool that can never hold the gang would be time lost. Jobs without any column are left out of
the arrays and named in the notes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass
from dally.policies.gavel.allocation.problem import Allocation, Fractions, Problem, Row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Grid:
    """M jobs that can run, C columns, K GPU types, P pairs."""

    problem: Problem
    index: Ints  # (M) where each job stands in problem.jobs
    ids: tuple[str, ...]
    gpus: Floats  # (M)
    rate: Floats  # (M, C) steps per second; 0 where it cannot run
    best: Floats  # (M) the fastest of these
    pairs: tuple[tuple[str, str], ...]
    members: Ints  # (P, 2) rows of this grid
    pair_rate: Floats  # (P, 2, C)
    capacity: Floats  # (K) GPUs
    column_type: Ints  # (C)
    notes: tuple[str, ...]
    gain: Floats  # (M, C) the rate as a part of the fastest
    pair_gain: Floats  # (P, 2, C)
    nothing: Floats  # (M, C) zeros
    pair_nothing: Floats  # (P, C)

    def of_jobs(self, values: Sequence[float]) -> Floats:
        """One number per job of the problem → one per job that can run."""
        return np.array(values, dtype=float)[self.index]

    @property
    def by_type(self) -> Floats:
        """(M, K) the fastest way to run on each type: consolidated, unless that is impossible."""
        rates = np.zeros((len(self.ids), len(self.capacity)))
        for column, kind in enumerate(self.column_type):
            np.maximum(rates[:, kind], self.rate[:, column], out=rates[:, kind])
        return rates

    @property
    def equal_share(self) -> Floats:
        """thr(m, X^eq): the rate when a job's time is split over the types as the GPUs are (section 4.1)."""
        total = self.capacity.sum()
        return np.asarray(self.by_type @ (self.capacity / total))

    def throughput(self, alone: Floats, together: Floats) -> Floats:
        """thr(m, X) = Σ over the rows with m and the columns of T·X."""
        rates = np.asarray((self.rate * alone).sum(axis=1))
        if len(self.members):
            gained = (self.pair_rate * together[:, None, :]).sum(axis=2)
            np.add.at(rates, self.members, gained)
        return rates


def grid(problem: Problem, aware: bool = True) -> Grid:
    """The arrays of a problem, or of its heterogeneity-agnostic version."""
    if not aware:
        problem = problem.agnostic()
    jobs, columns = problem.jobs, len(problem.types)
    kinds = np.array(problem.column_type, dtype=np.int64)
    pool = np.array(problem.workers, dtype=float)[kinds] if columns else np.zeros(0)
    gpus = np.array([job.gpus for job in jobs], dtype=float)
    rate = np.array([job.throughput for job in jobs], dtype=float).reshape(len(jobs), columns)
    rate = np.where(gpus[:, None] <= pool[None, :], rate, 0.0)
    runs = np.asarray(rate.any(axis=1))
    index = np.flatnonzero(runs)
    pairs = [pair for pair in problem.pairs if runs[pair.first] and runs[pair.second]]
    pair_rate, members = np.zeros((0, 2, columns)), np.zeros((0, 2), dtype=np.int64)
    if pairs:
        place = np.full(len(jobs), -1)
        place[index] = np.arange(len(index))
        pair_rate = np.array([(p.throughput_first, p.throughput_second) for p in pairs], dtype=float)
        members = np.array([(place[p.first], place[p.second]) for p in pairs], dtype=np.int64)
        # A pair shares a column only where both make progress and both may run alone.
        both = np.asarray((pair_rate > 0).all(axis=1) & (rate[index][members] > 0).all(axis=1))
        pair_rate = np.where(both[:, None, :], pair_rate, 0.0)
        keep = np.asarray(both.any(axis=1))
        pairs = [pair for pair, kept in zip(pairs, keep, strict=True) if kept]
        pair_rate, members = pair_rate[keep], members[keep]
    if len(index) < len(jobs):
        gpus, rate = gpus[index], rate[index]
    best = rate.max(axis=1, initial=0.0)
    return Grid(
        problem=problem,
        index=index,
        ids=tuple([job.id for job in jobs] if len(index) == len(jobs) else [jobs[i].id for i in index.tolist()]),
        gpus=gpus,
        rate=rate,
        best=best,
        pairs=tuple((jobs[p.first].id, jobs[p.second].id) for p in pairs),
        members=members,
        pair_rate=pair_rate,
        capacity=np.array(problem.workers, dtype=float) * problem.share,
        column_type=kinds,
        notes=() if len(index) == len(jobs) else tuple([_why_not(problem, int(i)) for i in np.flatnonzero(~runs)]),
        gain=rate / best[:, None],
        pair_gain=pair_rate / best[members][:, :, None] if pairs else pair_rate,
        nothing=np.zeros_like(rate),
        pair_nothing=np.zeros((len(pairs), columns)),
    )


def _why_not(problem: Problem, index: int) -> str:
    job = problem.jobs[index]
    if all(job.gpus > problem.workers[kind] for kind in problem.column_type):
        return f"job {job.id!r} asks for {job.gpus} GPUs and no type has that many"
    return f"job {job.id!r} makes no progress on any type that has room for its {job.gpus} GPUs"


def allocation(
    grid: Grid, alone: Floats, together: Floats, objective: float, notes: Sequence[str] = ()
) -> Allocation:
    """Rows of fractions by job and by pair. Jobs that fit nowhere keep a row of zeros."""
    idle: Fractions = (0.0,) * len(grid.column_type)
    fractions: dict[Row, Fractions] = {}
    if len(grid.ids) < len(grid.problem.jobs):
        fractions = {(job.id,): idle for job in grid.problem.jobs}
    fractions.update(zip([(name,) for name in grid.ids], map(tuple, alone.tolist()), strict=True))
    if grid.pairs:
        fractions.update(zip(grid.pairs, map(tuple, together.tolist()), strict=True))
    return Allocation(fractions, float(objective), grid.notes + tuple(notes))


def within_limits(grid: Grid, alone: Floats, together: Floats) -> tuple[Floats, Floats]:
    """The same without last-digit excesses: no job above all its time, no type above its GPUs."""
    alone = alone.clip(0.0, 1.0)
    spent = alone.sum(axis=1)
    if len(grid.members):
        together = together.clip(0.0, 1.0)
        np.add.at(spent, grid.members, together.sum(axis=1)[:, None])
    shrink = 1.0 / np.maximum(spent, 1.0)
    alone = alone * shrink[:, None]
    used = grid.gpus @ alone
    if len(grid.members):
        together = together * shrink[grid.members].min(axis=1, initial=1.0)[:, None]
        used = used + grid.gpus[grid.members[:, 0]] @ together
    by_type = np.bincount(grid.column_type, weights=used, minlength=len(grid.capacity))
    fit = np.where(by_type > grid.capacity, grid.capacity / np.maximum(by_type, 1e-300), 1.0)[grid.column_type]
    return alone * fit, together * fit


def effective_throughputs(problem: Problem, allocation: Allocation) -> dict[str, float]:
    """Steps per second of every job under an allocation, with the problem's true throughputs."""
    rates = {
        job.id: sum(rate * x for rate, x in zip(job.throughput, allocation.of(job.id), strict=True))
        for job in problem.jobs
    }
    for pair in problem.pairs:
        first, second = problem.jobs[pair.first].id, problem.jobs[pair.second].id
        shared = allocation.fractions.get((first, second))
        if shared is not None:
            rates[first] += sum(rate * x for rate, x in zip(pair.throughput_first, shared, strict=True))
            rates[second] += sum(rate * x for rate, x in zip(pair.throughput_second, shared, strict=True))
    return rates
