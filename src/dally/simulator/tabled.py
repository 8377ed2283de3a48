"""Step times from a table of measured throughputs, on top of a network model.

The table says how fast a job type is on each GPU type at its best placement there. What distance and neighbours
cost comes from the network model under it: a placement on which the model's step is 1.3 times its best one on that
GPU type takes 1.3 times the table's step. Under `ideal` placement never matters and the table alone speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dally.catalog.throughputs import Throughputs, gpu_name
from dally.core.errors import PlanError, UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.model import Floor, NetworkModel, Step
from dally.simulator.best import BestPlacement

_NEVER = Step(float("inf"), float("inf"), 0.0, float("inf"))


class Tabled:
    """Implements the seam of `network.model`."""

    def __init__(self, inner: NetworkModel, table: Throughputs, topology: Topology) -> None:
        self.by_shape = inner.by_shape
        self.inner, self.table, self.topology = inner, table, topology
        self._best = BestPlacement(topology, inner)
        self._factors: dict[tuple[str | None, int, str], float | None] = {}
        self._running: dict[str, float] = {}

    @property
    def notes(self) -> Sequence[str]:
        return (*self.inner.notes, f"speeds per GPU type are those of {self.table.source}")

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        factor = self._factor(job, placement)
        return _NEVER if factor is None else _times(self.inner.step_time(job, placement, now), factor)

    def moved(self, left: Sequence[str], entered: Sequence[tuple[Job, Placement]], now: float) -> Mapping[str, Step]:
        for job_id in left:
            self._running.pop(job_id, None)
        for job, placement in entered:
            factor = self._factor(job, placement)
            if factor is None:
                kind = self.topology.machines[placement.slices[0][0]].gpu_type
                raise PlanError("any", job.id, f"was given {kind} GPUs, on which {self.table.source} says that "
                                f"{job.model!r} on {job.gpus} GPUs does not run")  # fmt: skip
            self._running[job.id] = factor
        return {job_id: _times(step, self._running[job_id])
                for job_id, step in self.inner.moved(left, entered, now).items()}  # fmt: skip

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        """The network model's, at the table's speeds: a factor per GPU type, whatever the placement there."""
        best = Floor(float("inf"))
        for kind in self.topology.gpu_types:
            factor = self._factor_on(job, kind) if job.gpu_type in (None, kind) else None
            if factor is None or self.topology.capacity(kind) < gpus:
                continue
            inner = self._best.shortest(replace(job, gpu_type=kind), gpus)
            if inner is not None:
                found = Floor(inner.floor * factor, (inner.placement,))
                best = min(best, found, key=lambda floor: floor.seconds)
        return best

    def runs_on(self, job: Job) -> tuple[str, ...]:
        """GPU types of the cluster on which the job makes progress, the fastest first."""
        rates = {kind: self.table.rate(job.model, job.gpus, kind) or 0.0 for kind in self.topology.gpu_types
                 if job.gpu_type in (None, kind)}  # fmt: skip
        return tuple(sorted((kind for kind in rates if rates[kind] > 0), key=lambda kind: -rates[kind]))

    def check(self, jobs: Sequence[Job], trace: str) -> None:
        """Every job runs somewhere, or one sentence says which one does not."""
        for job in jobs:
            if not self.runs_on(job):
                asked = f" of type {job.gpu_type}" if job.gpu_type else ""
                raise UserError(f"trace {trace}, job {job.id}: {self.table.source} has no speed for job type "
                                f"{job.model!r} on {job.gpus} GPUs{asked} of this cluster")  # fmt: skip

    def pinned(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs that do not run on every GPU type, tied to their fastest: for policies that do not look at speeds."""
        made = []
        for job in jobs:
            kinds = [kind for kind in self.runs_on(job) if self.topology.capacity(kind) >= job.gpus]
            if job.gpu_type is None and 0 < len(kinds) < len(self.topology.gpu_types):
                roomy = [kind for kind in self.topology.gpu_types if self.topology.capacity(kind) >= job.gpus]
                if len(kinds) < len(roomy):
                    job = replace(job, gpu_type=kinds[0])
            made.append(job)
        return made

    def _factor(self, job: Job, placement: Placement) -> float | None:
        """Seconds of the table's step per second of the network model's best; None where the job does not run."""
        return self._factor_on(job, self.topology.machines[placement.slices[0][0]].gpu_type)

    def _factor_on(self, job: Job, kind: str) -> float | None:
        key = (job.model, job.gpus, kind)
        if key not in self._factors:
            rate = self.table.rate(*key)
            best = self._best.step(replace(job, gpu_type=kind))
            self._factors[key] = 1.0 / (rate * best.seconds) if rate and best is not None else None
        return self._factors[key]


def _times(step: Step, factor: float) -> Step:
    return Step(step.seconds * factor, step.compute * factor, step.exposed * factor, step.alone * factor)


def from_catalog(jobs: Sequence[Job], topology: Topology) -> Throughputs:
    """A table for these jobs from the catalog: the analytic step at the best placement on each GPU type."""
    from dally.network.analytic import Analytic

    best = BestPlacement(topology, Analytic(topology, contention=False))
    alone: dict[str, dict[tuple[str, int], float]] = {gpu_name(kind): {} for kind in topology.gpu_types}
    for job in {(job.model, job.gpus): job for job in jobs if job.model is not None}.values():
        for kind in topology.gpu_types:
            step = best.step(replace(job, gpu_type=kind))
            if step is not None:
                alone[gpu_name(kind)][job.model or "", job.gpus] = 1.0 / step.seconds
    return Throughputs("the catalog", alone, {}, {})
