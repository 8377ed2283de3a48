"""Finish-time fairness, Themis' objective with heterogeneity (section 4.2):

    minimise  max over m of  ρ_m = (t_m + left_m / thr(m, X)) / (t_iso_m + left_m / thr_iso_m)

t_m is the time since the job arrived; t_iso_m the time its finished steps would have taken alone on 1/M of the
cluster, and thr_iso_m its rate there (see `isolated`); the caller keeps t_iso_m as M changes, as the released code
does. For a given ρ a job needs r_m(ρ) = left_m / (ρ·iso_m − t_m), iso_m being the denominator above, so ρ is
feasible when "maximise τ with thr(m, X) ≥ τ·r_m(ρ)" reaches 1. Instead of halving an interval, each solution's
duals y give a bound, Σ y·r(ρ*) ≤ τ·Σ y·r(ρ), whose root is the next ρ, and its X gives an upper bound; both meet
within 1e-6 after a few warm solutions. If they should not, the interval between them is halved.
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Floats, Grid, allocation, grid, within_limits
from dally.policies.gavel.allocation.isolated import isolated_rate
from dally.policies.gavel.allocation.makespan import steps_left
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import levelled
from dally.policies.gavel.allocation.solver import Solver

ACCURACY = 1e-7  # relative, of ρ: ten times what is promised
CUTS = 12  # solutions by cuts alone; then the interval is halved as well
ROUNDS = 80


def finish_time_fairness(
    problem: Problem, *, aware: bool = True, solver: Solver | None = None, aggregate: bool = True
) -> Allocation:
    """The allocation with the smallest worst ρ, which is the objective."""
    cells = grid(problem, aware)
    columns = len(cells.column_type)
    if not len(cells.ids) or not steps_left(cells).any():
        return allocation(cells, np.zeros_like(cells.rate), np.zeros((len(cells.pairs), columns)), 0.0)
    solver = solver or Solver()
    elapsed, alone_at_best, own = _times(cells)
    low = _smallest(elapsed, alone_at_best, own)  # everybody at full speed
    rho = float(((elapsed + steps_left(cells) / isolated_rate(cells)) / own).max())  # everybody isolated: feasible
    rho = max(low, rho if solver.guess is None else min(rho, solver.guess))
    high = np.inf
    answer = np.zeros_like(cells.rate), np.zeros((len(cells.pairs), columns))
    for turn in range(ROUNDS):
        needed = np.where(alone_at_best > 0, alone_at_best / np.maximum(rho * own - elapsed, 1e-300), 0.0)
        found = solve(levelled(cells, needed), solver, aggregate)
        alone, together = within_limits(cells, found.alone, found.together)
        worst = fairness(cells, alone, together).max()
        if worst < high:
            high, answer = float(worst), (alone, together)
        cut = _root(found.duals, found.level * float(found.duals @ needed), elapsed, alone_at_best, own, low, high)
        low = max(low, cut)
        if high - low <= ACCURACY * high:
            break
        rho = cut if turn < CUTS else (low + high) / 2
    solver.guess = high
    return allocation(cells, *answer, high)


def fairness(cells: Grid, alone: Floats, together: Floats) -> Floats:
    """ρ of every job that can run; 0 for one without steps left."""
    elapsed, alone_at_best, own = _times(cells)
    part = cells.throughput(alone, together) / cells.best
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(alone_at_best > 0, (elapsed + alone_at_best / part) / own, 0.0))


def _times(cells: Grid) -> tuple[Floats, Floats, Floats]:
    """Seconds: since arrival, left at the fastest rate, and in all when isolated."""
    jobs, left = cells.problem.jobs, steps_left(cells)
    elapsed = cells.of_jobs([job.elapsed for job in jobs])
    own = cells.of_jobs([job.isolated_so_far for job in jobs]) + left / isolated_rate(cells)
    return elapsed, left / cells.best, np.where(own > 0, own, 1.0)


def _smallest(elapsed: Floats, alone_at_best: Floats, own: Floats) -> float:
    return float(np.where(alone_at_best > 0, (elapsed + alone_at_best) / own, 0.0).max())


def _root(
    duals: Floats, total: float, elapsed: Floats, alone_at_best: Floats, own: Floats, low: float, high: float
) -> float:
    """The smallest ρ in [low, high] with Σ dual·r(ρ) ≤ total; r falls with ρ."""
    used = (duals > 0) & (alone_at_best > 0)
    y, t, work, size = duals[used], elapsed[used], alone_at_best[used], own[used]

    def excess(rho: float) -> float:
        return float((y * work / np.maximum(rho * size - t, 1e-300)).sum()) - total

    if excess(low) <= 0:
        return low
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low
