"""The most steps for the money (section 4.2), without deadlines: see `cost_slo` for the problem's two forms."""

from __future__ import annotations

from dataclasses import replace

from dally.policies.gavel.allocation.cost_slo import Form, cost_slo
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.solver import Solver


def cost(
    problem: Problem,
    *,
    aware: bool = True,
    form: Form = "ratio",
    solver: Solver | None = None,
    aggregate: bool = True,
) -> Allocation:
    """The cheapest steps. The objective is Σ thr / Σ cost, or Σ thr / price."""
    jobs = tuple(job if job.slo is None else replace(job, slo=None) for job in problem.jobs)
    return cost_slo(replace(problem, jobs=jobs), aware=aware, form=form, solver=solver, aggregate=aggregate)
