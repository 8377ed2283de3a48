"""From a trace to work: what the duration of a traced job means on the cluster it is simulated on."""

from __future__ import annotations

from dataclasses import dataclass

from dally.core.errors import UserError
from dally.core.free import FreeGpus
from dally.core.job import DurationMeans, Job
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.topology import Topology
from dally.network.model import NetworkModel, Step
from dally.policies.placing import place_consolidated as closest
from dally.policies.placing import pools_for
from dally.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Workload:
    """Work of every job in reference seconds: at speed 1 a second of running does one unit of it."""

    trace: Trace
    work: dict[str, float]
    reference: dict[str, float]  # step time at speed 1
    best_run_time: dict[str, float]  # seconds at the best placement this cluster could ever give the job


class BestPlacement:
    """The step a job takes at the best placement an empty cluster offers, over all GPU types it may use."""

    def __init__(self, topology: Topology, network: NetworkModel) -> None:
        self.network = network
        self._free = FreeGpus(topology)
        self._placements: dict[Demand, list[Placement]] = {}
        self._steps: dict[tuple[str | None, Demand], Step | None] = {}

    def step(self, job: Job) -> Step | None:
        """None where the cluster is too small for the job."""
        demand = Demand(job.gpus, job.gpu_type)
        key = (job.model, demand)
        if key not in self._steps:
            steps = [self.network.step_time(job, placement, 0.0) for placement in self._candidates(demand)]
            self._steps[key] = min(steps, key=lambda step: step.seconds, default=None)
        return self._steps[key]

    def _candidates(self, demand: Demand) -> list[Placement]:
        found = self._placements.get(demand)
        if found is None:
            found = []
            for pool in pools_for(self._free, demand):
                placement = closest(self._free, Demand(demand.gpus, pool.gpu_type))
                if placement is not None:
                    found.append(placement)
            self._placements[demand] = found
        return found


def prepare(trace: Trace, topology: Topology, network: NetworkModel) -> Workload:
    """Fix the work of every job before the simulation starts."""
    best = BestPlacement(topology, network)
    work: dict[str, float] = {}
    reference: dict[str, float] = {}
    best_run_time: dict[str, float] = {}
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        step = best.step(job)
        if step is None:
            continue  # the scheduler will turn it away and say why
        if truth.duration is None:
            raise UserError(f"trace {trace.name}, job {job.id}: it counts steps and gives no duration, "
                            "so it needs throughputs to be simulated")  # fmt: skip
        if truth.means is DurationMeans.ONE_GPU:
            # perfect scaling with no communication: the paper's ideal_jct, at speed 1 while computing alone
            work[job.id] = truth.duration / job.gpus
            reference[job.id] = step.compute
        else:
            work[job.id] = truth.duration
            reference[job.id] = step.seconds
        best_run_time[job.id] = work[job.id] * step.seconds / reference[job.id]
    return Workload(trace, work, reference, best_run_time)
