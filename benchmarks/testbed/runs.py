"""One run: a bed, a starter, the stream submitted in time, and what the jobs themselves wrote down."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dally.catalog.clusters.hostlist import expand
from dally.live.testbed.bed import Bed, bring_up, take_down
from dally.live.testbed.clusters import read_bed_cluster
from testbed.host import Load, wait_until
from testbed.models import MODELS
from testbed.stream import StreamJob, stream
from testbed.ways import CONF, HERE, Surroundings, Way, open_way

CLUSTER = HERE / "cluster.yaml"
STANDSTILL = 300.0  # seconds without any job going on: the run is given up
Say = Callable[[str], None]


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value, indent=1))
    new.replace(path)


@contextlib.contextmanager
def bed_for(name: str, folder: Path) -> Iterator[Bed]:
    """A bed of the benchmark's cluster; one of that name that a killed run has left goes first."""
    take_down(name)
    topology, text, _ = read_bed_cluster(str(CLUSTER))
    bed = bring_up(name, topology, text, None, conf=CONF)
    shutil.copy(bed.folder / "slurm.conf", folder / "slurm.conf")
    try:
        yield bed
    finally:
        shutil.copytree(bed.folder / "log", folder / "log", dirs_exist_ok=True)
        bed.down()


@contextlib.contextmanager
def starter_in(folder: Path) -> Iterator[Path]:
    """The process that forks ranks; its socket."""
    path = folder / "starter"
    path.unlink(missing_ok=True)
    with (folder / "starter.log").open("w") as log:
        process = subprocess.Popen([sys.executable, str(HERE / "starter.py"), str(path)], stdout=subprocess.PIPE,
                                   stderr=log, text=True)  # fmt: skip
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the starter did not start: {(folder / 'starter.log').read_text()[-500:]}")
        yield path
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a job's log so far; the last may be half written."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def attempts(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    for event in events:
        if event["event"] == "begin":
            found.append([])
        if found:
            found[-1].append(event)
    return found


def finished_at(events: Sequence[dict[str, Any]]) -> float | None:
    return next((event["time"] for event in events if event["event"] == "end" and event.get("whole")), None)


def one_run(way: Way, seed: int, jobs: int, folder: Path, measured: Path, say: Say) -> dict[str, Any]:
    """Everything of the run in `folder`; its figures are returned. Raises if not all jobs finished."""
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "jobs").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    asked = stream(seed, jobs)
    with bed_for(f"b-{way.name}-{seed}", folder) as bed, starter_in(folder) as starter, Load() as load:
        around = Surroundings(bed, folder, starter, measured / "cluster.yaml", measured / "catalog")
        submits = open_way(way, around)
        try:
            begin, submitted = time.time() + 1.0, {}
            for job in asked:
                wait_until(begin + job.submit)
                submitted[job.name] = time.time()
                submits.submit(job)
                say(f"{len(submitted)} of {len(asked)} jobs are submitted")
            follow(asked, around, say)
        finally:
            more = submits.close()
    found = [outcome(job, submitted[job.name], begin, read_log(around.log(job))) for job in asked]
    return {"way": way.name, "seed": seed, "jobs": found, "host": load.figures(), **figures(found), **more}


def follow(asked: Sequence[StreamJob], around: Surroundings, say: Say) -> None:
    moved, before = time.monotonic(), -1
    while True:
        logs = {job.name: read_log(around.log(job)) for job in asked}
        ended = sum(finished_at(events) is not None for events in logs.values())
        lines = sum(map(len, logs.values()))
        say(f"{ended} of {len(asked)} jobs have finished")
        if ended == len(asked):
            return
        if lines != before:
            moved, before = time.monotonic(), lines
        if time.monotonic() - moved > STANDSTILL:
            missing = [name for name, events in logs.items() if finished_at(events) is None]
            raise RuntimeError(f"nothing happens any more; not finished: {', '.join(missing)}")
        time.sleep(1.0)


def outcome(job: StreamJob, submitted: float, begin: float, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One job, in seconds from the begin of the run."""
    tries = attempts(events)
    end = finished_at(events)
    assert end is not None
    steps, seconds = 0, 0.0
    for one in tries:
        last = next((event for event in reversed(one) if event.get("steps") is not None), None)
        if last is not None:
            steps, seconds = steps + last["steps"], seconds + last["seconds"]
    nodes = [expand(one[0]["nodes"]) if one[0].get("nodes") else [] for one in tries]
    readies = [event["time"] - one[0]["time"] for one in tries for event in one if event["event"] == "ready"]
    return {
        "name": job.name, "gpus": job.gpus, "model": job.model, "steps": job.steps, "minutes": job.minutes,
        "submit": submitted - begin, "start": tries[0][0]["time"] - begin, "end": end - begin,
        "jct": end - submitted, "attempts": len(tries), "steps_done": steps, "step_seconds": seconds,
        "compute": steps * MODELS[job.model].compute, "nodes": nodes, "ready": readies,
    }  # fmt: skip


def figures(jobs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of one run, real or simulated."""
    jcts = sorted(job["jct"] for job in jobs)
    held = sum(job["gpus"] * job["step_seconds"] for job in jobs)
    computed = sum(job["gpus"] * job["compute"] for job in jobs)
    return {
        "average_jct": sum(jcts) / len(jcts),
        "p95_jct": jcts[min(len(jcts) - 1, int(0.95 * len(jcts)))],
        "makespan": max(job["end"] for job in jobs) - min(job["submit"] for job in jobs),
        "communication": max(0.0, 1 - computed / held) if held else 0.0,
    }
