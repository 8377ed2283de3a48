"""What a start and an end cost on a host that carries all ways at once: read off a rehearsal, a stream of its own.

Launching sixteen ranks takes seconds, longer beside three other beds than alone, and all who wait behind a job wait for
what it holds GPUs beyond its steps. So the rehearsal runs as the runs do, side by side, with a seed none of them has.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed.runs import attempts, read_log
from testbed.ways import WAYS

SEED, JOBS = 0, 30
Held = tuple[float, float]  # from when to when GPUs were a job's: wall clock, or the service's


def rehearsed(folder: Path) -> dict[str, dict[str, float]]:
    """Of every way: `start`, seconds from being given GPUs to the first step, and `release`, from the last step to the
    GPUs being free for others; means over GPUs, since a larger gang takes longer and what is lost is GPU time."""
    found = {}
    for way in WAYS.values():
        seen = list(_seen(folder / way.name, way.service))
        gpus = sum(count for count, _, _ in seen)
        found[way.name] = {"start": sum(count * start for count, start, _ in seen) / gpus,
                           "release": sum(count * release for count, _, release in seen) / gpus}  # fmt: skip
    return found


def _seen(folder: Path, service: bool) -> Iterator[tuple[int, float, float]]:
    """GPUs, start and release of every job that ran in one go."""
    held = dict(_by_service(folder) if service else _by_slurm(folder))
    for path in sorted((folder / "jobs").glob("*.jsonl")):
        tries = attempts(read_log(path))
        events = {event["event"]: event for event in tries[-1]}
        if len(tries) == 1 and path.stem in held:
            begin, end = held[path.stem]
            yield events["begin"]["world"], events["ready"]["time"] - begin, end - events["end"]["time"]


def _by_slurm(folder: Path) -> Iterator[tuple[str, Held]]:
    """By Slurm's own record, which cuts off half a second on average."""
    for line in (folder / "log" / "completed.log").read_text().splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        times = (datetime.fromisoformat(fields[name]).timestamp() + 0.5 for name in ("StartTime", "EndTime"))
        yield fields["Name"], (next(times), next(times))


def _by_service(folder: Path) -> Iterator[tuple[str, Held]]:
    """By the service's rows: from the decision to when the end was known."""
    with sqlite3.connect(folder / "state" / "dally.db") as store:
        origin = json.loads(next(store.execute("select value from about where name = 'header'"))[0])["made"]
        names = {str(job): json.loads(spec)["name"] for job, spec in store.execute("select id, spec from submissions")}
        for job, body in store.execute("select id, body from rows"):
            history: list[dict[str, Any]] = json.loads(body)["history"]
            if len(history) == 1 and history[0]["ended"] is not None:
                yield names[job], (origin + history[0]["decided"], origin + history[0]["ended"])
