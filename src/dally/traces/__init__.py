"""Traces: readers for public and operators' own traces, synthesisers, and the own format."""

from dally.traces.describe import Section, describe_trace
from dally.traces.load import formats, load_trace
from dally.traces.own import write_trace
from dally.traces.synth import offered_load, synthesise, workloads
from dally.traces.trace import Problem, Trace
from dally.traces.validate import Validation, validate_trace

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
