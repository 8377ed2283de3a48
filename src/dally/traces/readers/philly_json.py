"""Reads Philly JSON, Microsoft's published job log (ATC'19): one entry per job with every attempt at running it."""

from __future__ import annotations

from typing import Any

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending
from dally.traces.assembly import NO_END, NO_SUBMIT, REVERSED, Assembly, Row
from dally.traces.json_parts import TOP
from dally.traces.readers.attempts import failure_points
from dally.traces.readers.reader import Reader
from dally.traces.source import Source
from dally.traces.times import known, moment
from dally.traces.trace import Trace

_ENDINGS = {"Pass": Ending.COMPLETED, "Killed": Ending.CANCELLED, "Failed": Ending.FAILED}
NO_ATTEMPT = "no attempt recorded: GPUs and run time unknown"
ATTEMPT_LEFT_OUT = "an attempt without usable times left out of the run time"
NO_MACHINES = "no machines recorded: GPUs unknown"


def _recognises(source: Source) -> bool:
    if source.is_folder or not source.looks_like_json:
        return False
    begin = source.json_begin()
    return begin is not None and begin[0] == TOP and {"jobid", "attempts", "submitted_time"} <= set(begin[1] or ())


def _machines(attempt: Any) -> tuple[tuple[str, int], ...]:
    """(machine, GPUs) of one attempt; a machine listed twice counts once, with all its GPUs."""
    found: dict[str, int] = {}
    details = attempt.get("detail") if isinstance(attempt, dict) else None
    for detail in details if isinstance(details, list) else ():
        gpus = detail.get("gpus") if isinstance(detail, dict) else None
        if isinstance(gpus, list) and gpus:
            found[str(detail.get("ip"))] = found.get(str(detail.get("ip")), 0) + len(gpus)
    return tuple(found.items())


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "Philly JSON")
    entries = source.json_entries(TOP)
    if entries is None:
        raise UserError(f"{source.shown} is not Philly JSON: it is not a list of jobs")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            assembly.drop("entry that is not a job")
            continue
        name = known(entry.get("jobid")) or f"entry-{index}"
        row = _row(assembly, name, entry)
        if row is not None:
            assembly.rows.append(row)
    return assembly.finish(from_first=True, wall_clock=True)


def _row(assembly: Assembly, name: str, entry: dict[str, Any]) -> Row | None:
    attempts = entry.get("attempts")
    if not isinstance(attempts, list) or not attempts:
        assembly.drop(NO_ATTEMPT, None, name)
        return None
    submit = moment(entry.get("submitted_time"))
    if submit is None:
        assembly.drop(NO_SUBMIT, None, name)
        return None
    ran_on = next((machines for attempt in reversed(attempts) if (machines := _machines(attempt))), ())
    gpus = sum(count for _, count in ran_on)
    if gpus == 0:
        assembly.drop(NO_MACHINES, None, name)
        return None
    lengths: list[float] = []
    starts: list[float] = []
    reversed_times = 0
    for attempt in attempts:
        times = attempt if isinstance(attempt, dict) else {}
        start, end = moment(times.get("start_time")), moment(times.get("end_time"))
        if start is not None and end is not None and end[0] >= start[0]:
            lengths.append(end[0] - start[0])
            starts.append(start[0])
        elif start is not None and end is not None:
            reversed_times += 1
    if not lengths:
        assembly.drop(REVERSED if reversed_times else NO_END, None, name)
        return None
    if len(lengths) < len(attempts):
        assembly.repair(ATTEMPT_LEFT_OUT, None, name)
    assembly.zoned = submit[1]
    return Row(name, submit[0], gpus, sum(lengths), user=known(entry.get("user")), tenant=known(entry.get("vc")),
               ending=_ENDINGS.get(str(entry.get("status")), Ending.COMPLETED), failures=failure_points(lengths),
               ran_on=ran_on, means=DurationMeans.AS_PLACED, start=min(starts))  # fmt: skip


READERS = (Reader("philly-json", "Philly JSON", _recognises, _read),)
