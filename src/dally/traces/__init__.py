"""Traces: readers for public and operators' own traces, synthesisers, and the own format."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dally.traces.describe import Section, describe_trace
    from dally.traces.load import formats, load_trace
    from dally.traces.own import write_trace
    from dally.traces.synth import offered_load, synthesise, workloads
    from dally.traces.trace import Problem, Trace
    from dally.traces.validate import Validation, validate_trace

# Fetched when first asked for: describing and synthesising need numpy, and many callers only want a type.
_HOMES = {
    "Problem": "trace",
    "Section": "describe",
    "Trace": "trace",
    "Validation": "validate",
    "describe_trace": "describe",
    "formats": "load",
    "load_trace": "load",
    "offered_load": "synth",
    "synthesise": "synth",
    "validate_trace": "validate",
    "workloads": "synth",
    "write_trace": "own",
}

__all__ = [
    "Problem",
    "Section",
    "Trace",
    "Validation",
    "describe_trace",
    "formats",
    "load_trace",
    "offered_load",
    "synthesise",
    "validate_trace",
    "workloads",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
