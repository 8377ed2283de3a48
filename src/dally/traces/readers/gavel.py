"""Reads Gavel `.trace` (OSDI'20): ten tab-separated columns, or the seven of its older traces; work in steps, times
from an origin of its own."""

from __future__ import annotations

from dally.traces.assembly import NO_SUBMIT, SHORT_ROW, Assembly, Row
from dally.traces.readers.reader import Reader
from dally.traces.source import Source
from dally.traces.times import known, number
from dally.traces.trace import Trace

_WIDTH = 10
_OLD_WIDTH = 7  # job type, command, its argument for steps, whether it needs data, steps, arrival, GPUs
# The released scheduler reads the SLO column as a multiple of the run time (it draws 1.2, 2 and 10); a value that
# large can only be seconds.
_LARGEST_MULTIPLE = 100.0
SLO_MULTIPLE = "SLO is a multiple of the run time: the deadline is set when throughputs say how long that is"
PRIORITY_ROUNDED = "priority weight is not a whole number: rounded"
NO_STEPS = "number of steps missing or not above 0"


def _recognises(source: Source) -> bool:
    if source.is_folder or source.looks_like_json:
        return False
    lines = source.head_lines(1)
    fields = lines[0].split("\t") if lines else []
    return (len(fields) == _WIDTH and all(number(field) is not None for field in fields[4:])) or (
        len(fields) == _OLD_WIDTH and all(number(field) is not None for field in fields[3:])
    )


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "Gavel trace")
    index = -1
    for line, text in enumerate(source.lines(), start=1):
        if not text.strip() or text.startswith("#"):
            continue
        index += 1
        name, fields = str(index), text.rstrip("\r").split("\t")
        if len(fields) == _OLD_WIDTH:
            (steps, arrival, scale), weight, slo = map(number, fields[4:]), None, None
        elif len(fields) < _WIDTH:
            assembly.drop(SHORT_ROW, line, name)
            continue
        else:
            steps, scale, weight, slo, arrival = map(number, fields[5:10])
        asked = assembly.gpus(scale, line, name)
        if asked is None:
            continue
        if arrival is None:
            assembly.drop(NO_SUBMIT, line, name)
            continue
        if steps is None or steps <= 0:
            assembly.drop(NO_STEPS, line, name)
            continue
        deadline, multiple = None, None
        if slo is not None and slo > _LARGEST_MULTIPLE:
            deadline = arrival + slo
        elif slo is not None and slo > 0:
            multiple = slo
            assembly.repair(SLO_MULTIPLE, line, name)
        priority = round(weight) if weight is not None else 0
        if weight is not None and priority != weight:
            assembly.repair(PRIORITY_ROUNDED, line, name)
        assembly.rows.append(
            Row(name, arrival, asked[0], None, line, steps=steps, gpu_fraction=asked[1], model=known(fields[0]),
                priority=priority, declared_steps=steps, deadline=deadline, slo=multiple)
        )  # fmt: skip
    assembly.notes.append("work is given in steps: a run time needs the throughput of each job type")
    return assembly.finish(from_first=False)


READERS = (Reader("gavel", "Gavel trace", _recognises, _read),)
