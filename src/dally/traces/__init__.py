"""Traces: readers for public and operators' own traces, synthesisers, and the own format."""

from dally.traces.load import formats, load_trace
from dally.traces.trace import Problem, Trace

__all__ = ["Problem", "Trace", "formats", "load_trace"]
