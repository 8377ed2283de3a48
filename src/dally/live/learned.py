"""What a live cluster knows of jobs: what their owners declare, what a profile says, and what was measured here.

How fast a job is on other GPUs comes from steps that were timed on GPUs as far apart: its own, or those of the same
owner's jobs of the same model and size. Where nothing was timed, a model or profile that the job names says it; where
there is none, nobody knows, and every place counts as equal.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.registry import make_network
from dally.simulator.best import BestPlacement
from dally.simulator.profiles import Profiles

_RECENT = 0.2  # weight of the newest step time in the average


class Shape(NamedTuple):
    """How far apart GPUs are, as far as speed goes."""

    level: int
    machines: int
    gpu_type: str


class Learned:
    """Implements `core.estimates.Estimates` and `Learning`."""

    def __init__(self, topology: Topology) -> None:
        self.lay_out(topology)
        self._steps: dict[tuple[str, ...], dict[Shape, float]] = {}  # seconds, by job and by family of jobs

    def lay_out(self, topology: Topology) -> None:
        self._topology = topology
        network = make_network("analytic[contention=off]", topology)
        self._profiles = Profiles(network, topology)
        self._best = BestPlacement(topology, network)

    def reference(self, job: Job) -> float | None:
        """Seconds of a step on the best GPUs here, as the model it names has it."""
        if job.reference is not None or job.model is None:
            return job.reference
        try:
            best = self._best.step(job)
        except UserError:
            return None
        return None if best is None else best.seconds

    def work(self, job: Job) -> float | None:
        return job.declared_duration

    def speed(self, job: Job, placement: Placement) -> float | None:
        shape = self._shape(placement)
        for key in _keys(job):
            seen = self._steps.get(key)
            if seen is not None and shape in seen:
                reference = job.reference if job.reference is not None else min(seen.values())
                return reference / seen[shape]
        return None if job.model is None else self._profiles.speed(job, placement)

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        return None if job.model is None else self._profiles.throughput(job, gpu_type, consolidated)

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        return None

    # --- learning ---------------------------------------------------------------------------------------------

    def learn(self, job: Job, placement: Placement, step_time: float) -> None:
        shape = self._shape(placement)
        for key in _keys(job):
            seen = self._steps.setdefault(key, {})
            before = seen.get(shape)
            seen[shape] = step_time if before is None else (1.0 - _RECENT) * before + _RECENT * step_time

    def forget(self, job_id: str) -> None:
        self._steps.pop(("job", job_id), None)

    def learned(self) -> list[list[object]]:
        return [[list(key), [[*shape, seconds] for shape, seconds in seen.items()]]
                for key, seen in self._steps.items()]  # fmt: skip

    def recall(self, learned: list[list[object]]) -> None:
        self._steps = {}
        for key, seen in cast(list[list[Any]], learned):
            self._steps[tuple(key)] = {Shape(*shape): seconds for *shape, seconds in seen}

    def _shape(self, placement: Placement) -> Shape:
        kind = self._topology.machines[placement.slices[0][0]].gpu_type
        return Shape(placement.level(self._topology), len(placement.slices), kind)


def _keys(job: Job) -> list[tuple[str, ...]]:
    """The job itself, then the jobs it is like."""
    found: list[tuple[str, ...]] = [("job", job.id)]
    if job.model is not None:
        found.append(("family", job.user or "", job.model, str(job.gpus)))
    return found
