"""Reads what `sacct -P` prints: fields between bars under a header line, in any order and selection."""

from __future__ import annotations

from collections.abc import Iterator

from dally.core.errors import UserError
from dally.traces.assembly import SHORT_ROW, Assembly
from dally.traces.readers.reader import Reader
from dally.traces.readers.slurm import Record, add_records, gpus_in
from dally.traces.source import Source
from dally.traces.times import elapsed, known, moment, number
from dally.traces.trace import Trace

_GPU_COLUMNS = ("alloctres", "reqtres", "allocgres", "reqgres")
_NEEDED = ("jobid", "submit", "start", "end", "state")
ARRAY = "an array of jobs that never started"


def _recognises(source: Source) -> bool:
    if source.is_folder or source.looks_like_json:
        return False
    header = source.header()
    return "jobid" in header and "state" in header and "|" in source.head_lines(1)[0]


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "sacct -P")
    columns = source.table().columns
    missing = [name for name in _NEEDED if name not in columns]
    if missing or not any(name in columns for name in _GPU_COLUMNS):
        lack = ", ".join([*missing, *([] if any(n in columns for n in _GPU_COLUMNS) else ["AllocTRES"])])
        raise UserError(
            f"{source.shown} is sacct output without {lack}; ask for it with"
            " sacct -P -o JobID,Submit,Start,End,State,AllocTRES,ReqTRES,TimelimitRaw,User,Account,NodeList"
        )
    add_records(assembly, _records(assembly, source))
    return assembly.finish(from_first=True, wall_clock=True)


def _records(assembly: Assembly, source: Source) -> Iterator[Record]:
    table = source.table()
    columns, steps = table.columns, 0
    width = 1 + max(columns[name] for name in _NEEDED)

    def field(fields: list[str], *names: str) -> str | None:
        at = table.column(*names)
        return known(fields[at]) if at is not None and at < len(fields) else None

    for line, fields in table.rows():
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
        submit, start, end = (moment(fields[columns[column]]) for column in ("submit", "start", "end"))
        if submit is not None:
            assembly.zoned = submit[1]
        minutes = number(field(fields, "timelimitraw"))
        priority = number(field(fields, "priority"))
        asked = {column: gpus_in(field(fields, column) or "") for column in _GPU_COLUMNS}
        nodes = number(field(fields, "nnodes", "allocnodes", "reqnodes")) or 1.0
        # ReqGRES repeats `--gres`, which is per node; the other columns are totals.
        counts = [asked[c][0] * (int(max(1.0, nodes)) if c == "reqgres" else 1) for c in _GPU_COLUMNS]
        yield Record(
            name, line, fields[columns["state"]].split(" ")[0].strip("+").upper(),
            submit and submit[0], start and start[0], end and end[0],
            elapsed(field(fields, "elapsedraw") or field(fields, "elapsed")),
            next((count for count in counts if count), None),
            gpu_type=asked["reqtres"][1] or asked["reqgres"][1],
            limit=minutes * 60 if minutes is not None else elapsed(field(fields, "timelimit")),
            nodes=field(fields, "nodelist"), user=field(fields, "user"),
            tenant=field(fields, "account", "partition"), priority=int(priority) if priority is not None else 0,
        )  # fmt: skip
    if steps:
        assembly.notes.append(f"{steps} job steps (such as 123.batch) belong to their jobs and were passed over")


READERS = (Reader("sacct", "sacct -P", _recognises, _read),)
