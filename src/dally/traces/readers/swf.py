"""Reads SWF 2.2, the Standard Workload Format of the Parallel Workloads Archive; its processors stand for GPUs."""

from __future__ import annotations

import re

from dally.core.job import Ending
from dally.traces.assembly import NO_DURATION, NO_START, NO_SUBMIT, SHORT_ROW, Assembly, Row
from dally.traces.readers.reader import Reader
from dally.traces.source import Source
from dally.traces.times import iso, number
from dally.traces.trace import Trace

_WIDTH = 18
_START = re.compile(r"^;\s*UnixStartTime\s*:\s*(\d+)", re.MULTILINE)
_ENDINGS = {0.0: Ending.FAILED, 5.0: Ending.CANCELLED}
PARTIAL = "part of a job that was swapped out: its summary line counts"


def _recognises(source: Source) -> bool:
    if source.is_folder or source.looks_like_json:
        return False
    lines = (line for line in source.head.splitlines() if line.strip() and not line.startswith(";"))
    fields = _fields(next(lines, ""))
    # users, groups, programs and queues are numbers in the archive's files, and names in those of some tools
    return len(fields) == _WIDTH and all(number(field) is not None for field in fields[:11])


def _fields(line: str) -> list[str]:
    """Between blanks, or between semicolons, as Slurm's simulator writes them."""
    if line.count(";") < _WIDTH - 1:
        return line.split()
    fields = [field.strip() for field in line.split(";")]
    return fields[:-1] if len(fields) == _WIDTH + 1 and not fields[-1] else fields


def _value(text: str) -> float | None:
    """A field; SWF writes −1 for "missing"."""
    value = number(text)
    return None if value is None or value < 0 else value


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "SWF")
    whole = source.text.replace("\r\n", "\n").replace("\r", "\n")  # lines may end as on any machine
    for line, text in enumerate(whole.split("\n"), start=1):
        if not text.strip() or text.lstrip().startswith(";"):
            continue
        fields = _fields(text)
        if len(fields) < _WIDTH:
            assembly.drop(SHORT_ROW, line)
            continue
        name, status = fields[0], number(fields[10])
        if status in (2.0, 3.0, 4.0):
            assembly.drop(PARTIAL, line, name)
            continue
        submit, wait, ran = _value(fields[1]), _value(fields[2]), _value(fields[3])
        asked = assembly.gpus(_value(fields[4]) or _value(fields[7]), line, name)
        if asked is None:
            continue
        if submit is None:
            assembly.drop(NO_SUBMIT, line, name)
            continue
        cancel_at = None
        if status == 5.0 and not ran:
            if wait is None:
                assembly.drop(NO_START, line, name)
                continue
            ran, cancel_at = None, submit + wait
        elif ran is None:
            assembly.drop(NO_DURATION, line, name)
            continue
        assembly.rows.append(
            Row(name, submit, asked[0], ran, line, declared_duration=_value(fields[8]), user=_label(fields[11]),
                name=_label(fields[13]), tenant=_label(fields[14]) or _label(fields[15]), cancel_at=cancel_at,
                ending=_ENDINGS.get(status if status is not None else 1.0, Ending.COMPLETED),
                start=submit + wait if wait is not None and ran is not None else None)
        )  # fmt: skip
    assembly.notes.append("SWF counts processors: each is taken as one GPU")
    started = _START.search(whole)
    return assembly.finish(from_first=False, origin=iso(float(started[1]), True) if started else None)


def _label(text: str) -> str | None:
    return None if not text or text.startswith("-") else text


READERS = (Reader("swf", "SWF", _recognises, _read),)
