"""AlloX (EuroSys'20), the baseline for average completion time: a minimum-cost matching of jobs to places in line.

A job that is k-th from the last on a GPU delays k completions, its own included, by its run time there:

    minimise  Σ over jobs of  k·(steps_m / T[m, j])   over matchings of jobs to (GPU of type j, k)

(the time a job has waited already is the same in every place and drops out). GPUs of one type are alike, so a place
is (type, k) with room for one job per free GPU (see `lines`). Running jobs are not moved, and only those first in
line start. Ties inside a place go to the job that waits longest. As in the released code only jobs of one GPU are
accepted, and pairs are not used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dally.core.errors import UserError
from dally.policies.gavel.allocation.grid import Floats, Grid, Ints, allocation, grid
from dally.policies.gavel.allocation.lines import shortest_lines
from dally.policies.gavel.allocation.problem import Allocation, Problem


def allox(
    problem: Problem,
    *,
    running: Mapping[str, int] | None = None,
    considered: float = 1.0,
    aware: bool = True,
) -> Allocation:
    """Jobs that hold a GPU keep it (`running`: the column of each); the next in line on every free GPU starts.

    `considered` is AlloX's α: the part of the waiting jobs, oldest first, that counts; at least one per free GPU.
    The objective is the sum of the matching's completion times from now, of the jobs that take part.
    """
    for job in problem.jobs:
        if job.gpus != 1:
            raise UserError(f"allocation: AlloX schedules jobs of one GPU, but job {job.id!r} asks for {job.gpus}")
    if not 0 <= considered <= 1:
        raise UserError(f"allocation: the part of the jobs that AlloX considers is in [0, 1], not {considered:g}")
    cells = grid(problem, aware)
    alone = np.zeros_like(cells.rate)
    free = cells.capacity.astype(np.int64)
    waiting: list[int] = []
    for place, name in enumerate(cells.ids):
        if name in (running or {}):
            column = (running or {})[name]
            alone[place, column] = 1.0
            free[cells.column_type[column]] -= 1
        else:
            waiting.append(place)
    jobs = cells.problem.jobs
    waiting.sort(key=lambda place: -jobs[cells.index[place]].elapsed)
    waiting = waiting[: max(int(considered * len(waiting)), int(free.sum()))]
    # A job that none of the free types suits waits without a place in line.
    rates = cells.by_type[:, free > 0]
    suited = [place for place in waiting if rates[place].any()]
    total = 0.0
    if suited:
        total = _start(cells, np.array(suited), free, alone)
    return allocation(cells, alone, np.zeros((len(cells.pairs), len(cells.column_type))), total)


def _start(cells: Grid, waiting: Ints, free: Ints, alone: Floats) -> float:
    """Put the first in line of every free GPU into `alone`; what the matching costs."""
    left = np.array([cells.problem.jobs[cells.index[place]].steps_left for place in waiting])
    rates = cells.by_type[waiting]
    with np.errstate(divide="ignore"):
        seconds = np.where(rates > 0, left[:, None] / rates, np.inf)
    kinds, turns, total = shortest_lines(seconds, free)
    for kind, count in enumerate(free.tolist()):
        # Lines fill from their ends: GPU g has as many jobs as there are turns with more than g.
        here = kinds == kind
        last = [np.flatnonzero(here & (turns == k)) for k in range(1, 1 + int(turns[here].max(initial=0)))]
        for gpu in range(count):
            line = [jobs[gpu] for jobs in last if len(jobs) > gpu]
            if line:
                job = waiting[line[-1]]
                columns = np.flatnonzero(cells.column_type == kind)
                alone[job, columns[np.argmax(cells.rate[job, columns])]] = 1.0
    return total
