"""Reads the flat Philly CSV: one row per job with its submission, run time, GPUs and virtual cluster."""

from __future__ import annotations

from dally.traces.assembly import NO_DURATION, NO_SUBMIT, SHORT_ROW, Assembly, Row
from dally.traces.readers.reader import Reader, has_columns
from dally.traces.source import Source
from dally.traces.times import known, moment, number
from dally.traces.trace import Trace


def _recognises(source: Source) -> bool:
    return has_columns(source, "timestamp", "duration", "num_gpus")


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "flat Philly CSV")
    table = source.table()
    submit, duration, gpus = table.needed("timestamp", "duration", "num_gpus")
    cluster, user, ident = table.column("cluster", "vc"), table.column("user"), table.column("job_id", "jobid")
    width = 1 + max(column for column in (submit, duration, gpus, cluster, user, ident) if column is not None)
    for index, (line, fields) in enumerate(table.rows()):
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        name = (known(fields[ident]) if ident is not None else None) or str(index)
        asked = assembly.gpus(number(fields[gpus]), line, name)
        if asked is None:
            continue
        when, ran = moment(fields[submit]), number(fields[duration])
        if when is None:
            assembly.drop(NO_SUBMIT, line, name)
        elif ran is None or ran < 0:
            assembly.drop(NO_DURATION, line, name)
        else:
            assembly.zoned = when[1]
            assembly.rows.append(
                Row(name, when[0], asked[0], ran, line, gpu_fraction=asked[1],
                    tenant=known(fields[cluster]) if cluster is not None else None,
                    user=known(fields[user]) if user is not None else None)
            )  # fmt: skip
    if ident is None:
        assembly.notes.append("the file has no job ids: jobs are numbered by row, from 0")
    return assembly.finish(from_first=True, wall_clock=True)


READERS = (Reader("philly-csv", "flat Philly CSV", _recognises, _read),)
