"""The lines of `sacct -P`: fields between delimiters of the user's choice, never quoted, with line breaks inside.

Sacct does not escape anything. A job name may hold a quotation mark, and a comment a line break: a line with too few
fields goes on in the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dally.core.errors import UserError
from dally.traces.readers.lifecycle import ALIVE, ENDINGS, WAITING
from dally.traces.source import Source

# The order in which Open XDMoD asks sacct for its fields, without a header.
_XDMOD = ("jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit",
          "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem", "reqtres",
          "alloctres", "timelimit", "nodelist", "jobname")  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_%]+")
_JOB = re.compile(r"^\d+(?:[_+.\[].*)?$")
_TIME = re.compile(r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None)$")
_MOST_LINES = 200  # that one record is continued over


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one dump is written."""

    delimiter: str
    columns: dict[str, int]
    header: bool  # whether the first line names the columns


def dialect_of(source: Source) -> Dialect | None:
    """None for anything that is not what sacct prints."""
    lines = source.head_lines(1)
    if not lines:
        return None
    first = lines[0].lstrip("\ufeff")
    names = {match[0].lower() for match in _NAME.finditer(first)}
    if {"state"} <= names and names & {"jobid", "jobidraw"}:
        return _with_header(first)
    fields = first.split("|")
    if _without_header(fields):
        if len(fields) not in (len(_XDMOD), len(_XDMOD) + 1):
            raise UserError(f"{source.shown} is sacct output without its header line; leave out --noheader (-n)")
        return Dialect("|", {name: at for at, name in enumerate(_XDMOD)}, header=False)
    return None


def _with_header(first: str) -> Dialect | None:
    """The delimiter is what stands between the names."""
    between = [text for text in _NAME.split(first)[1:-1] if text]
    if not between:
        return None
    delimiter = max(set(between), key=between.count)
    if delimiter.isspace() and delimiter != "\t":
        return None  # columns padded with blanks: not made to be read by programs
    names = [name.strip().strip('"').lower() for name in first.split(delimiter)]
    columns = {name.partition("%")[0]: at for at, name in reversed(list(enumerate(names))) if name}
    if "jobid" not in columns and "jobidraw" in columns:
        columns["jobid"] = columns["jobidraw"]
    return Dialect(delimiter, columns, header=True) if "jobid" in columns and "state" in columns else None


def _without_header(fields: list[str]) -> bool:
    states = ENDINGS.keys() | ALIVE | WAITING
    return (len(fields) > 5 and _JOB.match(fields[0]) is not None
            and sum(_TIME.match(field) is not None for field in fields) >= 3
            and (any(field.split(" ")[0].rstrip("+") in states for field in fields)
                 or len(fields) in (len(_XDMOD), len(_XDMOD) + 1)))  # fmt: skip


def records_of(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of every record; one that breaks off has too few fields."""
    delimiter, width = dialect.delimiter, 1 + max(dialect.columns.values())
    skip = dialect.header
    held, begun = "", 0
    for number, line in enumerate(source.text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not held and (not line.strip() or line.startswith("#")):
            continue
        if skip:
            skip = False
            continue
        fields = line.split(delimiter)
        if held:
            if len(fields) >= width or number - begun > _MOST_LINES:  # whole again: what was held broke off
                yield begun, held.split(delimiter)
                held = ""
            else:
                held += "\n" + line
                fields = held.split(delimiter)
                if len(fields) >= width:
                    yield begun, fields
                    held = ""
                continue
        if len(fields) >= width:
            yield number, fields
        else:
            held, begun = line, number
    if held:
        yield begun, held.split(delimiter)
