"""Faults: machines that go down and come back, jobs that crash, and how much work survives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import field

from dally.core.errors import UserError
from dally.core.records import dataclass

Outages = dict[int, list[tuple[float, float | None]]]  # per machine: (down, up), in order of time


@dataclass(slots=True)
class Faults:
    """By default nothing ever breaks. All randomness comes from the seed, per machine and per job, so that the
    faults of one do not depend on what happened to another."""

    machines: int = 0
    outages: Outages = field(default_factory=dict)  # from a file
    mtbf: float | None = None  # mean time between failures of one machine, seconds
    mttr: float = 4 * 3600.0  # mean time to repair
    job_mtbf: float | None = None  # mean running time between crashes of one job
    retries: int = 3  # crashes a job survives
    checkpoint_interval: float = 1800.0  # work since the last multiple of this is lost; 0: nothing is lost
    seed: int = 0
    _streams: dict[int, random.Random] = field(default_factory=dict)

    def first(self) -> Iterator[tuple[int, float]]:
        """The first failure of every machine that has one."""
        for machine in range(self.machines):
            down = self.next_failure(machine, 0.0)
            if down is not None:
                yield machine, down

    def next_failure(self, machine: int, now: float) -> float | None:
        if self.outages:
            return next((down for down, _ in self.outages.get(machine, ()) if down >= now), None)
        if self.mtbf is None:
            return None
        return now + self._stream(machine).expovariate(1.0 / self.mtbf)

    def repaired(self, machine: int, now: float) -> float | None:
        """When a machine that failed now is back; None: never."""
        if self.outages:
            return next(up for down, up in self.outages[machine] if down == now)
        return now + self._stream(machine).expovariate(1.0 / self.mttr)

    def crash_after(self, job_id: str, retries: int, now: float) -> float | None:
        """Running time until the job crashes by itself, drawn anew at every start."""
        if self.job_mtbf is None:
            return None
        return random.Random(f"{self.seed}/{job_id}/{retries}/{now!r}").expovariate(1.0 / self.job_mtbf)

    def _stream(self, machine: int) -> random.Random:
        stream = self._streams.get(machine)
        if stream is None:
            stream = self._streams[machine] = random.Random(f"{self.seed}/machine/{machine}")
        return stream


@dataclass(frozen=True, slots=True)
class StartRules:
    """How a cluster answers to starts: by default at once and always. Chances come from the seed, per job and try."""

    latency: float = 0.0  # mean seconds until a job that was told to start is heard of
    failures: float = 0.0  # share of starts that are refused
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.latency < float("inf"):
            raise UserError(f"a start takes some time, not {self.latency!r} s")
        if not 0 <= self.failures < 1:
            raise UserError(f"a share of starts that fail is at least 0 and below 1, not {self.failures!r}")

    @property
    def at_once(self) -> bool:
        return self.latency == 0.0 and self.failures == 0.0

    def answered_after(self, job_id: str, attempt: int) -> float:
        """Between half and one and a half times the mean; a refusal takes at least a second to be noticed, so that
        nobody tries for ever in one instant."""
        seconds = self.latency * (0.5 + random.Random(f"{self.seed}/latency/{job_id}/{attempt}").random())
        return max(1.0, seconds) if self.refused(job_id, attempt) else seconds

    def refused(self, job_id: str, attempt: int) -> bool:
        return random.Random(f"{self.seed}/start/{job_id}/{attempt}").random() < self.failures
