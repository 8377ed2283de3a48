"""Reads what `sacct -P` prints: fields in any order and selection, with any delimiter, with or without a header."""

from __future__ import annotations

from collections.abc import Iterator

from dally.core.errors import UserError
from dally.traces.assembly import SHORT_ROW, Assembly
from dally.traces.readers.reader import Reader
from dally.traces.readers.sacct_lines import Dialect, dialect_of, records_of
from dally.traces.readers.slurm import Record, add_records, gpus_in, gpus_of_command
from dally.traces.source import Source
from dally.traces.times import days_and_months, elapsed, known, moment, number, slashed
from dally.traces.trace import Trace

_GPU_COLUMNS = ("alloctres", "reqtres", "allocgres", "reqgres")
_TELLS_GPUS = (*_GPU_COLUMNS, "submitline")
_NEEDED = ("jobid", "submit", "start", "end", "state")
ARRAY = "an array of jobs that never started"


def _recognises(source: Source) -> bool:
    if source.is_folder or source.looks_like_json:
        return False
    return dialect_of(source) is not None


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "sacct -P")
    dialect = dialect_of(source)
    if dialect is None:
        raise UserError(f"{source.shown} is not what sacct -P prints: no line names JobID and State")
    columns = dialect.columns
    missing = [name for name in _NEEDED if name not in columns]
    if missing or not any(name in columns for name in _TELLS_GPUS):
        lack = ", ".join([*missing, *([] if any(n in columns for n in _TELLS_GPUS) else ["AllocTRES"])])
        raise UserError(
            f"{source.shown} is sacct output without {lack}; ask for it with"
            " sacct -P -o JobID,Submit,Start,End,State,AllocTRES,ReqTRES,TimelimitRaw,User,Account,NodeList,"
            "Partition,QOS,JobName,NNodes,Eligible,Constraints"
        )
    add_records(assembly, _records(assembly, source, dialect))
    return assembly.finish(from_first=True, wall_clock=True)


def _records(assembly: Assembly, source: Source, dialect: Dialect) -> Iterator[Record]:
    columns, steps = dialect.columns, 0
    width = 1 + max(columns[name] for name in _NEEDED)
    day_first = _day_first(assembly, source, dialect)

    def field(fields: list[str], *names: str) -> str | None:
        at = next((columns[name] for name in names if name in columns), None)
        return known(fields[at]) if at is not None and at < len(fields) else None

    def when(fields: list[str], column: str) -> tuple[float, bool] | None:
        text = field(fields, column) or ""
        return moment(text if day_first is None else slashed(text, day_first))

    for line, fields in records_of(source, dialect):
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        name = fields[columns["jobid"]].strip()
        if "." in name:
            steps += 1
            continue
        if "[" in name:
            assembly.drop(ARRAY, line, name)
            continue
        submit, eligible, start, end = (when(fields, name) for name in ("submit", "eligible", "start", "end"))
        if submit is not None:
            assembly.zoned = submit[1]
        minutes = number(field(fields, "timelimitraw"))
        priority = number(field(fields, "priority"))
        asked = {column: gpus_in(field(fields, column) or "") for column in _GPU_COLUMNS}
        nodes = number(field(fields, "nnodes", "allocnodes", "reqnodes")) or 1.0
        # ReqGRES repeats `--gres`, which is per node; the other columns are totals.
        counts = [asked[c][0] * (int(max(1.0, nodes)) if c == "reqgres" else 1) for c in _GPU_COLUMNS]
        told = next((count for count in counts if count), None) or gpus_of_command(field(fields, "submitline"), nodes)
        yield Record(
            name, line, fields[columns["state"]].split(" ")[0].strip("+").upper(),
            submit and submit[0], start and start[0], end and end[0],
            elapsed(field(fields, "elapsedraw") or field(fields, "elapsed")),
            told or None,
            gpu_type=asked["reqtres"][1] or asked["reqgres"][1] or asked["alloctres"][1] or asked["allocgres"][1],
            limit=minutes * 60 if minutes is not None else elapsed(field(fields, "timelimit")),
            nodes=field(fields, "nodelist"), user=field(fields, "user"),
            tenant=field(fields, "account", "partition"), priority=int(priority) if priority is not None else 0,
            eligible=eligible and eligible[0], suspended=elapsed(field(fields, "suspended")) or 0.0,
            name=field(fields, "jobname"), partition=field(fields, "partition"), qos=field(fields, "qos"),
            node_count=int(number(field(fields, "allocnodes", "nnodes", "reqnodes")) or 0) or None,
            constraint=field(fields, "constraints"),
        )  # fmt: skip
    if steps:
        assembly.notes.append(f"{steps} job steps (such as 123.batch) belong to their jobs and were passed over")


def _day_first(assembly: Assembly, source: Source, dialect: Dialect) -> bool | None:
    """Of dates such as 03/04/2026: whether the day comes first; None where no date is written like that. A month is at
    most 12: one date that tells it decides for the file."""
    at, found = dialect.columns["submit"], False
    for _, fields in records_of(source, dialect):
        pair = days_and_months(fields[at]) if at < len(fields) else None
        if pair is None:
            if not found:
                return None
            continue
        found = True
        if max(pair) > 12:
            return pair[0] > 12
    if found:
        assembly.notes.append("dates such as 03/04 are taken as month/day: no date in the file tells which it is")
    return False if found else None


READERS = (Reader("sacct", "sacct -P", _recognises, _read),)
