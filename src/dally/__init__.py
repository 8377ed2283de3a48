"""Dally: which job runs next, on which GPUs, given that distance costs time.

`import dally; run = dally.simulate("srtf", trace="jobs.csv", cluster="4x8x8")` (docs/api.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dally.compiled import take_compiled
from dally.version import __version__

take_compiled()  # before anything else is imported

if TYPE_CHECKING:
    from dally.core.errors import PlanError, RunError, UserError
    from dally.experiments.api import compare, rerun, simulate, sweep
    from dally.experiments.results import Comparison, Result
    from dally.experiments.sweeps.results import SweepResult
    from dally.simulator.scenario import Scenario
    from dally.traces.load import load_trace

# Fetched when first asked for: `dally --help` needs none of it.
_HOMES = {
    "Comparison": "experiments.results",
    "PlanError": "core.errors",
    "Result": "experiments.results",
    "RunError": "core.errors",
    "Scenario": "simulator.scenario",
    "SweepResult": "experiments.sweeps.results",
    "UserError": "core.errors",
    "compare": "experiments.api",
    "load_trace": "traces.load",
    "rerun": "experiments.api",
    "simulate": "experiments.api",
    "sweep": "experiments.api",
}

__all__ = [
    "Comparison",
    "PlanError",
    "Result",
    "RunError",
    "Scenario",
    "SweepResult",
    "UserError",
    "__version__",
    "compare",
    "load_trace",
    "rerun",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dally' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"dally.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
