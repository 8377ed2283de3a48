"""Attempts on a test bed's Slurm, for tests: an engine on it, orders by node, and what it reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.live.engine import Exited, NotBegun, Order, Program, Report, Standing, Vanished
from dally.live.slurm.client import Slurm
from dally.live.slurm.cluster import slurm_cluster
from dally.live.slurm.engine import SlurmEngine
from dally.live.slurm.watched import SlurmRules
from dally.live.testbed.bed import Bed

END = (Exited, NotBegun, Vanished)
QUICK = SlurmRules(poll=0.3, nodes_every=0.5, stubborn=2.0, settle=1.0)

# Says where it is; leaves with 143 when asked to. `argv`: file, seconds, exit code.
JOB = """
import os, signal, sys, time
def leave(*_):
    say("saved")
    sys.exit(143)
def say(what):
    words = [what, *(os.environ[name] for name in
             ("DALLY_JOB", "DALLY_ATTEMPT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES"))]
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(words) + "\\n").encode())
    os.close(file)
signal.signal(signal.SIGTERM, leave)
say("begin")
time.sleep(float(sys.argv[2]))
say("end")
sys.exit(int(sys.argv[3]))
"""


class Engines:
    """Engines on one bed and one state, and everything they have reported."""

    def __init__(self, bed: Bed, state: Path, rules: SlurmRules = QUICK) -> None:
        self.bed, self.state, self.rules = bed, state, rules
        self.slurm = Slurm(10.0, bed.environment)
        self.topology: Topology = slurm_cluster(self.slurm).topology
        self.diary = state.parent / f"{state.name}.diary"
        self.reports: list[Report] = []
        self.engine = self.new()

    def new(self) -> SlurmEngine:
        self.engine = SlurmEngine(self.state, self.topology, self.rules, Slurm(10.0, self.bed.environment))
        return self.engine

    def order(self, job: str, where: Sequence[tuple[int, int]], seconds: float = 0.0, code: int = 0, attempt: int = 1,
              command: Sequence[str] | None = None, **program: object) -> Order:  # fmt: skip
        """So many GPUs of the machines with these numbers."""
        placement = Placement.of((machine, (1 << count) - 1) for machine, count in where)
        names = tuple(self.topology.machine_names[machine] for machine, _ in placement.slices)
        words = command or (sys.executable, "-I", "-S", "-c", JOB, str(self.diary), str(seconds), str(code))
        return Order(job, attempt, placement, names, Program(tuple(words), directory="/", **program))  # type: ignore[arg-type]

    def until(self, met: Callable[[], object], patience: float = 60.0) -> None:
        end = time.monotonic() + patience
        while not met():
            assert time.monotonic() < end, f"it did not come about; reported: {self.reports[-12:]}"
            self.reports += self.engine.observe(0.2)

    def of(self, job: str, attempt: int = 1) -> list[Report]:
        return [report for report in self.reports if not isinstance(report, Standing)
                and (report.job, report.attempt) == (job, attempt)]  # fmt: skip

    def began(self, job: str, attempt: int = 1) -> bool:
        return any(type(report).__name__ == "Began" for report in self.of(job, attempt))

    def end(self, job: str, attempt: int = 1) -> Report:
        """How it ended; waits for that."""
        self.until(lambda: any(isinstance(report, END) for report in self.of(job, attempt)))
        return next(report for report in self.of(job, attempt) if isinstance(report, END))

    def stands(self, number: int) -> Standing | None:
        name = self.topology.machine_names[number]
        return next((report for report in reversed(self.reports)
                     if isinstance(report, Standing) and report.machine == name), None)  # fmt: skip

    def said(self, job: str) -> list[list[str]]:
        """The job's lines in the diary: what, job, attempt, rank, local rank, world, node, devices."""
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        return [words for line in lines if (words := line.split())[1] == job]

    def slurm_id(self, job: str, attempt: int = 1) -> int:
        for each in self.slurm.jobs():
            if f":{job}:{attempt}:" in each.comment:
                return each.id
        raise AssertionError(f"Slurm has no job for attempt {attempt} of {job}")
