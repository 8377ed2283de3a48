"""The lines that sacct prints: fields between delimiters of the user's choice (`-P`), or in columns padded with blanks.

Sacct does not escape anything. A job name may hold a quotation mark, and a comment a line break: a line with too few
fields goes on in the next one. In padded columns a line of dashes says how wide each is, and what is longer is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.traces.readers.lifecycle import ALIVE, ENDINGS, WAITING
from dally.traces.source import Source

# The order in which Open XDMoD asks sacct for its fields, without a header.
_XDMOD = ("jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit",
          "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem", "reqtres",
          "alloctres", "timelimit", "nodelist", "jobname")  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_%]+")
_JOB = re.compile(r"^\d+(?:[_+.\[].*)?$")
_DASHES = re.compile(r"^-+(?: -+)+\s*$")
_TIME = re.compile(r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None)$")
_MOST_LINES = 200  # that one record is continued over


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one dump is written."""

    delimiter: str
    columns: dict[str, int]
    header: bool  # whether the first line names the columns
    spans: tuple[tuple[int, int], ...] = ()  # of padded columns: where each begins and ends


def dialect_of(source: Source) -> Dialect | None:
    """None for anything that is not what sacct prints."""
    lines = source.head_lines(2)
    if not lines:
        return None
    first = lines[0].lstrip("\ufeff")
    names = {match[0].lower() for match in _NAME.finditer(first)}
    if {"state"} <= names and names & {"jobid", "jobidraw"}:
        return _padded(first, lines[1]) if len(lines) > 1 and _DASHES.match(lines[1]) else _with_header(first)
    fields = first.split("|")
    if _without_header(fields):
        if len(fields) not in (len(_XDMOD), len(_XDMOD) + 1):
            raise UserError(f"{source.shown} is sacct output without its header line; leave out --noheader (-n), or"
                            " write the names of the columns above it, with | between them")  # fmt: skip
        return Dialect("|", {name: at for at, name in enumerate(_XDMOD)}, header=False)
    return None


def _with_header(first: str) -> Dialect | None:
    """The delimiter is what stands between the names."""
    between = [text for text in _NAME.split(first)[1:-1] if text]
    if not between:
        return None
    delimiter = max(set(between), key=between.count)
    if delimiter.isspace() and delimiter != "\t":
        return None  # padded columns without their line of dashes: nobody knows where they begin
    return _named([name.strip().strip('"').lower() for name in first.split(delimiter)], delimiter)


def _padded(first: str, dashes: str) -> Dialect | None:
    spans = tuple((run.start(), run.end()) for run in re.finditer("-+", dashes))
    return _named([first[begin:end].strip().lower() for begin, end in spans], "", spans)


def _named(names: list[str], delimiter: str, spans: tuple[tuple[int, int], ...] = ()) -> Dialect | None:
    columns = {name.partition("%")[0]: at for at, name in reversed(list(enumerate(names))) if name}
    if "jobid" not in columns and "jobidraw" in columns:
        columns["jobid"] = columns["jobidraw"]
    return Dialect(delimiter, columns, True, spans) if "jobid" in columns and "state" in columns else None


def _without_header(fields: list[str]) -> bool:
    states = ENDINGS.keys() | ALIVE | WAITING
    return (len(fields) > 5 and _JOB.match(fields[0]) is not None
            and sum(_TIME.match(field) is not None for field in fields) >= 3
            and (any(field.split(" ")[0].rstrip("+") in states for field in fields)
                 or len(fields) in (len(_XDMOD), len(_XDMOD) + 1)))  # fmt: skip


def _begins(fields: list[str], dialect: Dialect) -> bool:
    """Whether a line with too few fields is the begin of a record rather than the rest of one."""
    at = dialect.columns["jobid"]
    return len(fields) > at + 2 and _JOB.match(fields[at]) is not None


def records_of(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of every record; one that breaks off has too few fields."""
    if dialect.spans:
        yield from _cut(source, dialect.spans)
        return
    delimiter, width = dialect.delimiter, 1 + max(dialect.columns.values())
    skip = dialect.header
    held, begun = "", 0
    for number, line in enumerate(source.lines(), start=1):
        line = line.removesuffix("\r")
        if not held and (not line.strip() or line.startswith("#")):
            continue
        if skip:
            skip = False
            continue
        fields = line.split(delimiter)
        if held:
            # whole again, or another job's: what was held broke off
            if len(fields) >= width or number - begun > _MOST_LINES or _begins(fields, dialect):
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


def _cut(source: Source, spans: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, list[str]]]:
    """Padded columns. Sacct counts bytes: a name in other letters than ASCII moves what stands to its right."""
    head = 2  # names, dashes
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if head:
            head -= 1
            continue
        if line.isascii():
            yield number, [line[begin:end].strip() for begin, end in spans if begin < len(line)]
        else:
            raw = line.encode()
            yield number, [raw[begin:end].decode(errors="replace").strip() for begin, end in spans if begin < len(raw)]
