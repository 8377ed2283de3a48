"""The best placement an empty cluster offers a job: the yardstick of its duration and of the lower bound."""

from __future__ import annotations

from collections.abc import Iterator

from dally.core.free import FreeGpus, Pool, lowest_gpus
from dally.core.job import Job
from dally.core.placement import Placement, Slice
from dally.core.plan import Demand
from dally.core.topology import Machine, Topology
from dally.network.model import NetworkModel, Step
from dally.policies.placing import place_spread, place_within, pools_for


class BestPlacement:
    """The shortest step over a family of placements wide enough to hold the best one.

    The nearest GPUs are not always the fastest: a machine of PCIe cards may have a better network than bus, and
    3 + 3 GPUs may beat 4 + 2. So every level is tried, and every even split over some number of machines.
    """

    def __init__(self, topology: Topology, network: NetworkModel) -> None:
        self.topology, self.network = topology, network
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
            unique = {placement: None for pool in pools_for(self._free, demand)
                      for placement in candidates(self._free, pool, demand.gpus)}  # fmt: skip
            found = self._placements[demand] = list(unique)
        return found


def candidates(free: FreeGpus, pool: Pool, gpus: int) -> Iterator[Placement]:
    """Placements worth trying on an empty pool, the nearest first."""
    for level in range(len(free.topology.levels)):
        placement = place_within(free, pool, gpus, level, tight=False)
        if placement is not None:
            yield placement
    if gpus == 1:
        return
    spread = place_spread(free, Demand(gpus, pool.gpu_type))
    if spread is not None:
        yield spread
    machines = [m for m in free.topology.machines if m.gpu_type == pool.gpu_type]
    largest = max(machine.gpus for machine in machines)
    over = -(-gpus // largest)
    while over <= min(gpus, len(machines)):
        roomy = [machine for machine in machines if machine.gpus * over >= gpus]
        if len(roomy) >= over:
            yield from (_even(gpus, chosen) for chosen in _evenly_spread(roomy, over))
        over = over + 1 if over < 4 else over * 2


def _evenly_spread(machines: list[Machine], over: int) -> Iterator[list[Machine]]:
    """So many machines as they come, and as many of each of two or more racks, blocks, …, where that comes out even."""
    yield machines[:over]
    for outer in range(1, len(machines[0].domains)):
        inside: dict[int, list[Machine]] = {}
        for machine in machines:
            inside.setdefault(machine.domains[outer], []).append(machine)
        for parts in range(2, min(over, len(inside)) + 1):
            roomy = [members for members in inside.values() if len(members) * parts >= over]
            if over % parts == 0 and len(roomy) >= parts:
                yield [machine for members in roomy[:parts] for machine in members[: over // parts]]


def _even(gpus: int, machines: list[Machine]) -> Placement:
    """As even as can be over these machines, and over the islands inside each."""
    each, more = divmod(gpus, len(machines))
    slices: list[Slice] = []
    for index, machine in enumerate(machines):
        wanted = each + (1 if index < more else 0)
        slices.append((machine.index, _even_mask(machine.islands or (machine.full_mask,), wanted)))
    return Placement.of(slices)


def _even_mask(islands: tuple[int, ...], gpus: int) -> int:
    """GPUs of a machine, spread evenly over its islands."""
    chosen = [0] * len(islands)
    while gpus:
        for index, island in enumerate(islands):
            if gpus and chosen[index] < island.bit_count():
                chosen[index] += 1
                gpus -= 1
    return sum(lowest_gpus(island, count) for island, count in zip(islands, chosen, strict=True))
