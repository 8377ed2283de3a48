"""How fast jobs are where, as the network model has it: what a profile of every model on every shape of placement, on
every GPU type and beside every other job would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dally.core.free import FreeGpus
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.plan import Demand, demand_of_job
from dally.core.sharing import Interference
from dally.core.topology import Topology
from dally.network.model import NetworkModel
from dally.policies.placing import place_spread
from dally.simulator.best import BestPlacement
from dally.simulator.tabled import Tabled


class Profiles:
    """Work as the job says; speeds as a profile of its model on every shape of placement would have them."""

    def __init__(self, network: NetworkModel, topology: Topology, interference: Interference | None = None) -> None:
        self._network = network
        self._rates = Rates({}, network, topology, interference)

    def work(self, job: Job) -> float | None:
        return job.work

    def speed(self, job: Job, placement: Placement) -> float | None:
        return None if job.reference is None else job.reference / self._network.step_time(job, placement, 0.0).seconds

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        return self._rates.throughput(job, gpu_type, consolidated)

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        return self._rates.together(job, other, gpu_type)


class Rates:
    """Work per second by GPU type, as a profile of every job type alone on each would give it."""

    def __init__(self, reference: Mapping[str, float], network: NetworkModel, topology: Topology,
                 interference: Interference | None = None) -> None:  # fmt: skip
        self._reference, self._network, self._topology = reference, network, topology
        self._interference = interference
        self._best = BestPlacement(topology, network)
        self._empty = FreeGpus(topology)
        # seconds; infinite where it cannot run
        self._steps: dict[tuple[str | None, int, str, bool, int | None, str | None], float] = {}

    def throughput(self, job: Job, gpu_type: str, consolidated: bool) -> float | None:
        reference = self._reference.get(job.id, job.reference)
        if reference is None:
            return None
        key = (job.model, job.gpus, gpu_type, consolidated, job.nodes, job.among)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._step(job, gpu_type, consolidated)
        return reference / step

    def _step(self, job: Job, gpu_type: str, consolidated: bool) -> float:
        if consolidated:
            best = self._best.step(replace(job, gpu_type=gpu_type))
            if best is None and isinstance(self._network, Tabled):  # too few GPUs here, but it was measured elsewhere
                return 1.0 / (self._network.table.rate(job.model, job.gpus, gpu_type) or 1e-300)
            return float("inf") if best is None else best.seconds
        spread = place_spread(self._empty, Demand(job.gpus, gpu_type, demand_of_job(job).where if job.nodes else None))
        return float("inf") if spread is None else self._network.step_time(job, spread, 0.0).seconds

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        """What a profile of the pair would say: 0 where their memory does not fit. Without a model of interference,
        from the table of throughputs where there is one and it has the pair."""
        if job.gpus != other.gpus:
            return None
        if self._interference is not None:
            return self._profiled(job, other, gpu_type, self._interference)
        if not isinstance(self._network, Tabled):
            return None
        pair = self._network.table.pair(job.model, other.model, job.gpus, gpu_type)
        mine = self._reference.get(job.id, job.reference)
        others = self._reference.get(other.id, other.reference)
        return None if pair is None or mine is None or others is None else (pair[0] * mine, pair[1] * others)

    def _profiled(self, job: Job, other: Job, kind: str, between: Interference) -> tuple[float, float] | None:
        mine, others = self.throughput(job, kind, True), self.throughput(other, kind, True)
        if mine is None or others is None:
            return None
        if between.fits((job, other), kind) is not None:
            return 0.0, 0.0
        slower = [max(1.0, between.slowdown(a, [b], kind)) for a, b in ((job, other), (other, job))]
        return mine / slower[0], others / slower[1]
