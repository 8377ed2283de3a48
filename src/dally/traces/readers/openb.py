"""Reads the pod list of Alibaba's 2023 trace (openb): GPU shares in thousandths and wishes for GPU types."""

from __future__ import annotations

from dally.core.job import Ending
from dally.traces.assembly import NO_START, NO_SUBMIT, SHORT_ROW, STILL_RUNNING, Assembly, Row
from dally.traces.readers.reader import Reader, has_columns
from dally.traces.source import Source
from dally.traces.times import known, number
from dally.traces.trace import Trace

_COLUMNS = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
SEVERAL_TYPES = "several GPU types would do: any is given"


def _recognises(source: Source) -> bool:
    return has_columns(source, *_COLUMNS)


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "Alibaba openb 2023")
    table = source.table()
    ident, count, milli, created, deleted, scheduled = table.needed(*_COLUMNS)
    spec, phase, qos = table.column("gpu_spec"), table.column("pod_phase"), table.column("qos")
    width = 1 + max(column for column in (*table.columns.values(), 0))
    rows = list(table.rows())
    last = max((number(fields[deleted]) or 0.0 for _, fields in rows if len(fields) > deleted), default=0.0)
    for line, fields in rows:
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        name = known(fields[ident]) or f"line-{line}"
        whole, share = number(fields[count]), number(fields[milli])
        # `gpu_milli` is the share of each GPU, meant for pods of one GPU; whole GPUs say 1000.
        if whole == 1 and share is not None and 0 < share < 1000:
            whole = share / 1000
        asked = assembly.gpus(whole, line, name)
        if asked is None:
            continue
        came, began, gone = number(fields[created]), number(fields[scheduled]), number(fields[deleted])
        if came is None:
            assembly.drop(NO_SUBMIT, line, name)
            continue
        state = fields[phase] if phase is not None else ""
        ending, duration, cancel_at = Ending.COMPLETED, None, None
        if began is None:
            if gone is None:
                assembly.drop(NO_START, line, name)
                continue
            ending, cancel_at = Ending.CANCELLED, max(came, gone)
        else:
            duration = assembly.ran_for(began, gone, None, line, name)
            if duration is None:
                continue
            if state == "Failed":
                ending = Ending.FAILED
            elif state == "Running" and gone == last:
                assembly.repair(STILL_RUNNING, line, name)
        wanted = known(fields[spec]) if spec is not None else None
        if wanted is not None and "|" in wanted:
            assembly.repair(SEVERAL_TYPES, line, name)
            wanted = None
        assembly.rows.append(
            Row(name, came, asked[0], duration, line, gpu_fraction=asked[1], gpu_type=wanted,
                tenant=known(fields[qos]) if qos is not None else None, ending=ending, cancel_at=cancel_at,
                start=began if duration is not None else None)
        )  # fmt: skip
    return assembly.finish(from_first=True)


READERS = (Reader("openb", "Alibaba openb 2023", _recognises, _read),)
