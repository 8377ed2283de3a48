"""Reads the own format, CSV and Parquet, strictly."""

from __future__ import annotations

from dally.core.errors import UserError
from dally.traces.own import complain, parse_csv, parse_parquet, version_of
from dally.traces.readers.reader import Reader
from dally.traces.source import Source
from dally.traces.trace import Problem, Trace


def _recognises(source: Source) -> bool:
    return source.is_parquet or (not source.is_folder and version_of(source) is not None)


def parse(source: Source) -> tuple[Trace, list[Problem]]:
    """The trace and every problem in it."""
    return parse_parquet(source) if source.is_parquet else parse_csv(source)


def _read(source: Source) -> Trace:
    trace, problems = parse(source)
    complain(source, problems)
    if not trace.jobs:
        raise UserError(f"{source.shown} is a Dally trace without jobs")
    return trace


READERS = (Reader("dally", "Dally trace", _recognises, _read),)
