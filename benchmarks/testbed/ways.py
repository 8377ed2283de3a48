"""The four ways to schedule the stream on the same Slurm: how a job is submitted in each, and what runs beside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dally.live.client import Client
from dally.live.places import read_address
from dally.live.testbed.bed import Bed
from testbed.stream import NODE_GPUS, StreamJob

HERE = Path(__file__).resolve().parent
RANK = HERE / "rank.py"
SCALE = 10  # a second here stands for ten: jobs of 10 to 160 s for 2 to 27 min, and times of policies are divided by it

# What every bed's slurm.conf says beside the bed's own: a declared time is a guess and kills nobody.
CONF = ("OverTimeLimit=UNLIMITED", "PriorityMaxAge=0-02:00:00", "PriorityWeightAge=100000")


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    title: str
    policy: str  # in the simulator, and of the service where there is one; {conf} is the bed's slurm.conf
    service: bool = False
    switches: int | None = None  # seconds that a job waits for one switch


WAYS = {
    way.name: way
    for way in (
        Way("slurm", "Slurm: backfill, topology/tree", "slurm[conf={conf}]"),
        Way("switches", f"Slurm with --switches=1@5:00 (here 0:{300 // SCALE})", "slurm[conf={conf}]",
            switches=300 // SCALE),
        Way("dally", "Dally on that Slurm", f"dally[lease={600 // SCALE}s]", service=True),
        Way("tiresias", "Tiresias on that Slurm", f"tiresias[thresholds={3250 / SCALE:g}/{7200 / SCALE:g}]",
            service=True),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run has: a bed, a folder, the starter's socket, and what was measured before."""

    bed: Bed
    folder: Path
    starter: Path
    cluster: Path  # calibrated cluster file
    catalog: Path

    def words(self, job: StreamJob) -> list[str]:
        return [sys.executable, "-I", "-S", str(RANK), "--model", job.model, "--steps", str(job.steps),
                "--log", str(self.log(job)), "--checkpoint", str(self.folder / "checkpoints" / job.name)]  # fmt: skip

    def log(self, job: StreamJob) -> Path:
        return self.folder / "jobs" / f"{job.name}.jsonl"


class Submits(Protocol):
    def submit(self, job: StreamJob) -> None: ...

    def close(self) -> Mapping[str, Any]:
        """Ends what ran beside; what it has to say of the run."""
        ...


class Sbatch:
    """Ways (a) and (b): a batch script with `srun`, as users of Slurm write it."""

    def __init__(self, way: Way, around: Surroundings) -> None:
        self.way, self.around = way, around
        (around.folder / "output").mkdir(exist_ok=True)

    def submit(self, job: StreamJob) -> None:
        words = ["sbatch", "--parsable", "-J", job.name, f"--time={job.minutes}", f"-N{job.nodes}",
                 f"--gres=gpu:{min(job.gpus, NODE_GPUS)}", f"--ntasks-per-node={min(job.gpus, NODE_GPUS)}",
                 "-o", str(self.around.folder / "output" / f"{job.name}.txt"), "--requeue",
                 f"--export=ALL,BENCHMARK_STARTER={self.around.starter}"]  # fmt: skip
        if self.way.switches is not None and job.nodes > 1:
            words.append(f"--switches=1@0:{self.way.switches:02}")
        self.around.bed.client(*words, str(HERE / "job.sh"), *self.around.words(job), patience=60.0)

    def close(self) -> Mapping[str, Any]:
        return {}


class Service:
    """Ways (c) and (d): `dally serve --engine slurm` on the bed, and jobs sent to it."""

    def __init__(self, way: Way, around: Surroundings) -> None:
        self.around, self.state = around, around.folder / "state"
        self.state.mkdir()
        config = around.folder / "dally.yaml"
        config.write_text(json.dumps({"engine": "slurm", "cluster": str(around.cluster), "policy": way.policy,
                                      "slurm": {"poll": "500ms"}, "rules": {"retries": 3}}))  # fmt: skip
        environment = {**os.environ, **around.bed.environment, "DALLY_CATALOG": str(around.catalog)}
        words = [sys.executable, "-m", "dally.cli.main", "serve", "--config", str(config), "--state", str(self.state)]
        log = (around.folder / "service.log").open("w")
        self._process = subprocess.Popen([*words, "--port", "0"], stdout=log, stderr=log, env=environment)
        end = time.monotonic() + 60
        while (url := read_address(self.state)) is None:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the service did not start: {(around.folder / 'service.log').read_text()[-500:]}")
            time.sleep(0.1)
        self.client = Client([url])

    def submit(self, job: StreamJob) -> None:
        spec = {"command": self.around.words(job), "name": job.name, "gpus": job.gpus, "processes": "gpu",
                "model": job.model, "duration": f"{job.minutes}m", "checkpoint": {"grace": "30s"},
                "environment": {"BENCHMARK_STARTER": str(self.around.starter)},
                "directory": str(self.around.folder)}  # fmt: skip
        self.client.post("jobs", body=spec, key=job.name)

    def close(self) -> Mapping[str, Any]:
        end, states = time.monotonic() + 20, dict[str, int]()
        while time.monotonic() < end:  # it hears of the last end a moment after the job has written it
            rows = self.client.get("jobs", limit=1000)["jobs"]
            states = dict(Counter(row["state"] for row in rows))
            if set(states) <= {"finished"}:
                break
            time.sleep(0.5)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return {"service": states}


def open_way(way: Way, around: Surroundings) -> Submits:
    return Service(way, around) if way.service else Sbatch(way, around)
