"""The most steps for the money, with deadlines (section 4.2):

    maximise    Σ over m of thr(m, X)  /  Σ over m, j of price_j·s_m·X[m, j]
    subject to  thr(m, X) ≥ steps_m / SLO_m

A linear-fractional program, solved by Dinkelbach's method: with q the best ratio so far, maximise Σ thr − q·Σ cost,
until nothing is gained. Without deadlines the optimum of a ratio of sums is its best single term: only the jobs
that tie for the best steps per unit of money run, and the paper's formula asks for no more. The released code
maximises Σ thr / price instead, which fills the cluster; that is `form="sum"` (its price is not multiplied by the
gang).

Deadlines that cannot be met are dropped and named in the notes. First those that no single column is fast enough
for; then, while all together are out of reach, the one that costs most: the largest share of the dual of "maximise
τ with thr(m, X) ≥ τ·steps_m / SLO_m". (The released code drops all of them at once.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from dally.core.errors import UserError
from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Floats, Grid, allocation, grid, within_limits
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import Program, Solution, levelled, summed, weighted
from dally.policies.gavel.allocation.solver import Solver
from dally.policies.gavel.allocation.water_filling import most

Form = Literal["ratio", "sum"]
NEAR = 1e-7  # relative: terms this close to the best ratio are used too, so that the answer is not to do nothing
EXACT = 1e-12
ROUNDS = 50


def cost_slo(
    problem: Problem,
    *,
    aware: bool = True,
    form: Form = "ratio",
    solver: Solver | None = None,
    aggregate: bool = True,
) -> Allocation:
    """The cheapest steps within the deadlines. The objective is the ratio, or the sum."""
    if form not in ("ratio", "sum"):
        raise UserError(f"allocation: the cost objective is 'ratio' or 'sum', not {form!r}")
    cells = grid(problem, aware)
    if not cells.ids:
        return allocation(cells, cells.rate, np.zeros((len(cells.pairs), len(cells.column_type))), 0.0)
    solver = solver or Solver()
    floor, notes = _reachable(cells, solver.beside, aggregate)
    if form == "sum":
        found = solve(_with_floor(_per_price(cells), floor), solver, aggregate)
    else:
        found = _dinkelbach(cells, floor, solver, aggregate)
    alone, together = within_limits(cells, found.alone, found.together)
    return allocation(cells, alone, together, value(cells, alone, together, form), notes)


def value(cells: Grid, alone: Floats, together: Floats, form: Form = "ratio") -> float:
    """What an allocation is worth under the objective; 0 for an idle cluster."""
    if form == "sum":
        program = _per_price(cells)
        return float((program.value * alone).sum() + (program.pair_value * together).sum())
    cost, pair_cost = _cost(cells)
    spent = float((cost * alone).sum() + (pair_cost * together).sum())
    return float(cells.throughput(alone, together).sum()) / spent if spent > 0 else 0.0


def _cost(cells: Grid) -> tuple[Floats, Floats]:
    """Money per unit of time of each row and column: a pair pays for its GPUs once."""
    price = np.array(cells.problem.prices, dtype=float)[cells.column_type]
    return cells.gpus[:, None] * price, cells.gpus[cells.members[:, 0]][:, None] * price


def _per_price(cells: Grid) -> Program:
    price = np.array(cells.problem.prices, dtype=float)[cells.column_type]
    program = weighted(cells, np.ones(len(cells.ids)))
    return replace(program, value=program.value / price, pair_value=program.pair_value / price)


def _with_floor(program: Program, floor: Floats | None) -> Program:
    if floor is None:
        return program
    return replace(program, push=np.zeros(len(floor)), floor=np.array(floor), level_limit=0.0)


def _dinkelbach(cells: Grid, floor: Floats | None, solver: Solver, aggregate: bool) -> Solution:
    cost, pair_cost = _cost(cells)
    gain = weighted(cells, np.ones(len(cells.ids)))
    terms = np.concatenate([(gain.value / cost).ravel(), (gain.pair_value / pair_cost).ravel()])
    ratio = float(terms.max())  # the optimum without deadlines, an upper bound with them
    unit = float(np.max(gain.value))

    def at(price: float) -> Program:
        worth = (gain.value - price * cost) / unit, (gain.pair_value - price * pair_cost) / unit
        return _with_floor(summed(cells, *worth), floor)

    if floor is not None:
        ratio = ratio if solver.guess is None else min(ratio, solver.guess)
        for _ in range(ROUNDS):
            found = solve(at(ratio), solver, aggregate)
            better = value(cells, *within_limits(cells, found.alone, found.together))
            if abs(better - ratio) <= EXACT * ratio:
                break
            ratio = better
        solver.guess = ratio
    return solve(at(ratio * (1 - NEAR)), solver, aggregate)


def _reachable(cells: Grid, solver: Solver, aggregate: bool) -> tuple[Floats | None, list[str]]:
    """The floors of the deadlines that can be kept together, and a sentence for each that cannot."""
    jobs = [cells.problem.jobs[i] for i in cells.index]
    need = np.zeros(len(jobs))
    notes: list[str] = []
    cap = most(cells)
    for place, job in enumerate(jobs):
        if job.slo is None:
            continue
        need[place] = job.steps_left / job.slo / cells.best[place] if job.slo > 0 else np.inf
        if need[place] > cap[place] * (1 + EXACT) and job.steps_left > 0:
            notes.append(f"the SLO of job {job.id!r} is out of reach on any GPU type and was dropped")
            need[place] = 0.0
        elif job.steps_left == 0:
            need[place] = 0.0
    while need.any():
        found = solve(levelled(cells, need), solver, aggregate)
        if found.level >= 1 - 1e-9:
            return need * min(1.0, found.level), notes
        worst = int(np.argmax(found.duals * need))
        notes.append(f"the SLO of job {jobs[worst].id!r} cannot be met together with the others and was dropped")
        need[worst] = 0.0
    return None, notes
