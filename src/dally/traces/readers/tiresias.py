"""Reads Tiresias CSV, the input of the released Tiresias simulator (NSDI'19), and of those that grew from it: Muri's
(SIGCOMM'22), which counts in milliseconds, and ElasticFlow's (ASPLOS'23), which has deadlines."""

from __future__ import annotations

from dally.traces.assembly import NO_DURATION, NO_SUBMIT, SHORT_ROW, Assembly, Row
from dally.traces.readers.reader import Reader, has_columns
from dally.traces.source import Source
from dally.traces.times import known, number
from dally.traces.trace import Trace

# Times of an iteration and of its parts, in milliseconds too: an iteration's times their number is the duration.
_MURI = {"iteration_time", "resource_time_0"}


def _recognises(source: Source) -> bool:
    return has_columns(source, "job_id", "num_gpu", "submit_time", "duration") and (
        has_columns(source, "iterations") or has_columns(source, "iteration") or has_columns(source, "model_name")
    )


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "Tiresias CSV")
    table = source.table()
    job_id, gpus, submit, duration = table.needed("job_id", "num_gpu", "submit_time", "duration")
    steps, model = table.column("iterations", "iteration"), table.column("model_name")
    deadline = table.column("ddl")
    unit = 1.0
    if set(table.columns) >= _MURI:
        unit = 1e-3
        assembly.notes.append("Muri's traces count in milliseconds")

    def value(fields: list[str], at: int | None) -> float | None:
        return number(fields[at]) if at is not None and at < len(fields) else None

    width = 1 + max(job_id, gpus, submit, duration)
    for line, fields in table.rows():
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        name = known(fields[job_id]) or f"line-{line}"
        asked = assembly.gpus(number(fields[gpus]), line, name)
        if asked is None:
            continue
        when, ran = number(fields[submit]), number(fields[duration])
        if when is None:
            assembly.drop(NO_SUBMIT, line, name)
        elif ran is None or ran < 0:
            assembly.drop(NO_DURATION, line, name)
        else:
            due = value(fields, deadline)
            assembly.rows.append(
                Row(name, when * unit, asked[0], ran * unit, line, gpu_fraction=asked[1], steps=value(fields, steps),
                    deadline=due * unit if due is not None and due > when else None,
                    model=known(fields[model]) if model is not None and model < len(fields) else None)
            )  # fmt: skip
    return assembly.finish(from_first=False)


READERS = (Reader("tiresias", "Tiresias CSV", _recognises, _read),)
