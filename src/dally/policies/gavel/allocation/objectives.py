"""The objectives by name, for options, partitioning and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dally.policies.gavel.allocation.cost import cost
from dally.policies.gavel.allocation.cost_slo import cost_slo
from dally.policies.gavel.allocation.fifo import fifo
from dally.policies.gavel.allocation.finish_time_fairness import finish_time_fairness
from dally.policies.gavel.allocation.hierarchical import hierarchical
from dally.policies.gavel.allocation.makespan import makespan
from dally.policies.gavel.allocation.max_min_fairness import max_min_fairness
from dally.policies.gavel.allocation.problem import Allocation
from dally.policies.gavel.allocation.sjf import sjf
from dally.policies.gavel.allocation.throughput import throughput

Objective = Callable[..., Allocation]  # (problem, *, aware, solver, aggregate)

OBJECTIVES: Mapping[str, Objective] = {
    "max-min-fairness": max_min_fairness,
    "fifo": fifo,
    "sjf": sjf,
    "makespan": makespan,
    "finish-time-fairness": finish_time_fairness,
    "cost": cost,
    "cost-slo": cost_slo,
    "throughput": throughput,
    "hierarchical": hierarchical,
}
