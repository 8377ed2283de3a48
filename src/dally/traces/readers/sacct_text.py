"""Reads what `sacct` prints: any columns in any order, with any delimiter or padded, with or without a header."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from dally.core.errors import UserError
from dally.traces.assembly import SHORT_ROW, Assembly
from dally.traces.readers.lifecycle import ALIVE, ENDINGS, WAITING
from dally.traces.readers.reader import Reader
from dally.traces.readers.sacct_lines import Dialect, dialect_of, records_of
from dally.traces.readers.slurm import Record, add_records, gpus_in, gpus_of_command, throttle_of, waits_for
from dally.traces.source import Source
from dally.traces.times import days_and_months, elapsed, known, moment, number, slashed
from dally.traces.trace import Trace

_GPU_COLUMNS = ("alloctres", "reqtres", "allocgres", "reqgres")
_TELLS_GPUS = (*_GPU_COLUMNS, "submitline")
_NEEDED = ("jobid", "submit", "start", "end", "state")
_STATES = ENDINGS.keys() | ALIVE | WAITING
ARRAY = "an array of jobs that never started"
CUT = "its GPUs are cut off at the end of a padded column: ask sacct for -P, or AllocTRES%200"


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
    columns, steps, others = dialect.columns, 0, 0
    width = 1 + max(columns[name] for name in _NEEDED)
    day_first = _day_first(assembly, source, dialect)
    fields: list[str] = []

    def at(*names: str) -> int:
        """Where the first of these columns is that the dump has; −1: it has none."""
        return next((columns[name] for name in names if name in columns), -1)

    def field(index: int) -> str | None:
        return known(fields[index]) if 0 <= index < len(fields) else None

    def label(index: int) -> str | None:
        """A name, in one copy: thousands of rows have the same."""
        text = field(index)
        return None if text is None else sys.intern(text)

    def when(index: int) -> tuple[float, bool] | None:
        text = field(index) or ""
        return moment(text if day_first is None else slashed(text, day_first))

    job_id, state, command = columns["jobid"], columns["state"], at("submitline")
    moments = at("submit"), at("eligible"), at("start"), at("end")
    tres = [(at(name), name == "reqgres") for name in _GPU_COLUMNS if name in columns]
    types = [at(name) for name in ("reqtres", "reqgres", "alloctres", "allocgres") if name in columns]
    count, shape = at("nnodes", "allocnodes", "reqnodes"), at("allocnodes", "nnodes", "reqnodes")
    minutes, limit, seconds, ran = at("timelimitraw"), at("timelimit"), at("elapsedraw"), at("elapsed")
    user, tenant, name, partition = at("user"), at("account", "partition"), at("jobname"), at("partition")
    nodes, features, reservation, qos = at("nodelist"), at("constraints"), at("reservation"), at("qos")
    after, suspended, priority = at("dependency", "dependencies"), at("suspended"), at("priority")
    for line, fields in records_of(source, dialect):
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        job = fields[job_id].strip()
        if "." in job:
            steps += 1
            continue
        others += 1
        if "[" in job:
            assembly.drop(ARRAY, line, job)
            continue
        submit, eligible, start, end = (when(index) for index in moments)
        if submit is not None:
            assembly.zoned = submit[1]
        asked, had = field(command), number(field(count)) or 1.0
        # ReqGRES repeats `--gres`, which is per node; the other columns are totals.
        told = next((gpus * (int(max(1.0, had)) if per_node else 1) for index, per_node in tres
                     if (gpus := gpus_in(field(index) or "")[0])), None) or gpus_of_command(asked, had)  # fmt: skip
        if not told and dialect.spans and any((field(index) or "").endswith("+") for index, _ in tres):
            assembly.drop(CUT, line, job)
            continue
        most, rank = number(field(minutes)), number(field(priority))
        yield Record(
            job, line, _state(fields[state]), submit and submit[0], start and start[0], end and end[0],
            elapsed(field(seconds) or field(ran)), told or None,
            gpu_type=next((kind for index in types if (kind := gpus_in(field(index) or "")[1])), None),
            limit=most * 60 if most is not None else elapsed(field(limit)),
            nodes=label(nodes), user=label(user), tenant=label(tenant), priority=int(rank) if rank is not None else 0,
            eligible=eligible and eligible[0], suspended=elapsed(field(suspended)) or 0.0,
            name=label(name), partition=label(partition), qos=label(qos),
            node_count=int(number(field(shape)) or 0) or None, constraint=label(features),
            after=_after(field(after), asked), throttle=throttle_of(asked), reservation=label(reservation),
        )  # fmt: skip
    if steps:
        if not others:
            raise UserError(f"{source.shown} has {steps} job steps (such as 123.batch) and not the jobs they belong to;"
                            " leave out --state (-s), or ask for jobs alone with --allocations (-X)")  # fmt: skip
        assembly.notes.append(f"{steps} job steps (such as 123.batch) belong to their jobs and were passed over")
    if dialect.spans:
        assembly.notes.append("its columns are padded with blanks, and longer names are cut: two may look like one")


def _state(text: str) -> str:
    """`CANCELLED by 1234` and `CANCELLED+` are CANCELLED; `OUT_OF_ME+`, cut by a padded column, is OUT_OF_MEMORY."""
    word = text.strip().split(" ")[0].upper()
    if not word.endswith("+"):
        return word
    word = word.rstrip("+")
    return word if word in _STATES else next((each for each in sorted(_STATES) if word and each.startswith(word)), word)


def _after(said: str | None, command: str | None) -> str | None:
    """`sacct` has no column for dependencies: some dumps have one of their own, others the command line."""
    return said or waits_for(command)


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
