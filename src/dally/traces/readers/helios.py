"""Reads Helios CSV (SenseTime, SC'21) and Acme CSV (Shanghai AI Lab, NSDI'24): Slurm's columns by other names."""

from __future__ import annotations

from dally.traces.assembly import SHORT_ROW, Assembly, Row
from dally.traces.readers.lifecycle import life_of
from dally.traces.readers.reader import Reader, has_columns
from dally.traces.source import Source
from dally.traces.times import known, moment, number
from dally.traces.trace import Trace

_COLUMNS = ("job_id", "gpu_num", "state", "submit_time", "start_time", "end_time")


def _is_acme(source: Source) -> bool:
    return has_columns(source, *_COLUMNS) and has_columns(source, "gpu_time")


def _is_helios(source: Source) -> bool:
    return has_columns(source, *_COLUMNS) and not has_columns(source, "gpu_time")


def _read_helios(source: Source) -> Trace:
    return _read(source, "Helios CSV")


def _read_acme(source: Source) -> Trace:
    return _read(source, "Acme CSV")


def _read(source: Source, title: str) -> Trace:
    assembly = Assembly(source, title)
    table = source.table()
    ident, gpus, state, submit, start, end = table.needed(*_COLUMNS)
    optional = {name: table.column(name) for name in ("user", "vc", "model", "duration")}
    width = 1 + max(ident, gpus, state, submit, start, end)
    for line, fields in table.rows():
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        name = known(fields[ident]) or f"line-{line}"
        asked = assembly.gpus(number(fields[gpus]), line, name)
        if asked is None:
            continue
        extra = {key: fields[at] for key, at in optional.items() if at is not None and at < len(fields)}
        came, began, ended = moment(fields[submit]), moment(fields[start]), moment(fields[end])
        if came is not None:
            assembly.zoned = came[1]
        # Kalos' `duration` counts from the submission: the times come first, the column only fills gaps.
        life = life_of(assembly, line, name, fields[state].strip().upper(), came and came[0],
                       began and began[0], ended and ended[0], number(extra.get("duration")))  # fmt: skip
        if life is not None:
            assembly.rows.append(
                Row(name, life.submit, asked[0], life.duration, line, gpu_fraction=asked[1],
                    model=known(extra.get("model")), user=known(extra.get("user")), tenant=known(extra.get("vc")),
                    ending=life.ending, cancel_at=life.cancel_at,
                    start=began[0] if began is not None and life.duration is not None else None)
            )  # fmt: skip
    return assembly.finish(from_first=True, wall_clock=True)


READERS = (
    Reader("helios", "Helios CSV", _is_helios, _read_helios),
    Reader("acme", "Acme CSV", _is_acme, _read_acme),
)
