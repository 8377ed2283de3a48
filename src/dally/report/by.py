"""The figures of a run by user, tenant, partition, size of the gang, or hour of submission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from dally.core.job import Job
from dally.core.ledger import Row
from dally.core.records import dataclass
from dally.simulator.run import Run

KEYS = ("user", "tenant", "partition", "size", "hour")
_NOBODY = "–"  # whom jobs that name none are counted under
_SIZES = ((1, "1 GPU"), (2, "2"), (4, "3–4"), (8, "5–8"), (16, "9–16"), (32, "17–32"), (64, "33–64"))
_LARGER = "more than 64"


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the measured jobs; times in seconds, means over those that finished."""

    name: str
    jobs: int
    finished: int
    avg_jct: float | None
    avg_queueing: float | None
    gpu_hours: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parts_by(key: str, run: Run) -> list[Part]:
    """The measured jobs of a run in parts, in order of size and hour, and otherwise by the GPU time they took."""
    jobs = {job.id: job for job in run.workload.trace.jobs}
    rows = [row for row in run.ledger.rows if run.window is None or run.window.holds(row.job_id, row.submit)]
    name = _named(key, run)
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(name(jobs[row.job_id]), []).append(row)
    parts = [_part(each, members) for each, members in found.items()]
    if key == "size":
        order = [text for _, text in _SIZES] + [_LARGER]
        return sorted(parts, key=lambda part: order.index(part.name))
    if key == "hour":
        return sorted(parts, key=lambda part: part.name)
    return sorted(parts, key=lambda part: (-part.gpu_hours, part.name))


def _named(key: str, run: Run) -> Callable[[Job], str]:
    if key == "size":
        return lambda job: next((text for most, text in _SIZES if job.gpus <= most), _LARGER)
    if key == "hour":
        first = _first_hour(run.workload.trace.origin)
        return lambda job: f"{int(job.submit_time / 3600 + first) % 24:02}:00"
    return lambda job: str(getattr(job, key, None) or _NOBODY)


def _first_hour(origin: str | None) -> float:
    """Hours from midnight to second 0; 0 where the trace knows no clock."""
    try:
        begin = datetime.fromisoformat(origin or "")
    except ValueError:
        return 0.0
    return begin.hour + begin.minute / 60 + begin.second / 3600


def _part(name: str, rows: Sequence[Row]) -> Part:
    done = [row for row in rows if row.outcome == "finished"]
    return Part(name, len(rows), len(done), _mean(row.jct for row in done), _mean(row.queueing for row in done),
                sum(row.gpu_seconds for row in rows) / 3600)  # fmt: skip


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
