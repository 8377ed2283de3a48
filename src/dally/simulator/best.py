"""The shortest step a job can have on a cluster: the best placement that was found, and what no placement can beat.

The two are different things. The first is a placement that exists: the yardstick of what a traced duration means.
The second is proved by the network model (`fastest_step`) and is what a lower bound may stand on. Mostly they meet,
and then the best placement is known to be the best. docs/lower-bound.md says for which models and where they do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dally.core.free import FreeGpus
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.plan import Demand, Where
from dally.core.topology import Topology
from dally.network.every import every_shape
from dally.network.model import Floor, NetworkModel, Step
from dally.network.shape import Shapes
from dally.policies.placing import pools_for
from dally.policies.shaped import place_shaped
from dally.simulator.trying import candidates, neighbours

_MOST_SHAPES = 300  # to look at one by one, where search and proof do not meet
_MOST_STEPS = 100  # the same where they are too many, from the best one found to better ones near it
_MET = 1e-9  # relative distance below which they do


class Shortest(NamedTuple):
    """Of a job on a number of GPUs."""

    step: Step  # at the best placement found
    placement: Placement
    floor: float  # seconds; no placement has a shorter step

    @property
    def known(self) -> bool:
        """Whether the best placement is known to be the best."""
        return self.step.seconds <= self.floor * (1 + _MET)


class BestPlacement:
    """Remembers by model, GPUs and GPU type."""

    def __init__(self, topology: Topology, network: NetworkModel) -> None:
        self.topology, self.network = topology, network
        self._free = FreeGpus(topology)
        self._shapes = Shapes(topology)
        self._families: dict[Demand, list[Placement]] = {}
        self._every: dict[Demand, list[Placement] | None] = {}
        self._found: dict[tuple[str | None, int, Demand], Shortest | None] = {}

    def step(self, job: Job) -> Step | None:
        """At the best placement found; None where the cluster is too small for the job."""
        found = self.shortest(job)
        return None if found is None else found.step

    def shortest(self, job: Job, gpus: int | None = None) -> Shortest | None:
        """On as many GPUs as its gang has, or (an elastic job) on so many; None where the cluster has too few."""
        demand = Demand(job.gpus if gpus is None else gpus, job.gpu_type)
        if job.nodes is not None or job.among is not None:
            demand = demand._replace(where=Where(job.within, nodes=job.nodes, among=job.among))
        key = (job.model, job.gpus, demand)
        if key not in self._found:
            self._found[key] = self._search(job, demand) if demand.where is None else self._shaped(job, demand)
        return self._found[key]

    def _search(self, job: Job, demand: Demand) -> Shortest | None:
        family = self._family(demand)
        if not family:
            return None
        said = getattr(self.network, "fastest_step", lambda job, gpus: None)(job, demand.gpus)
        floor = said if said is not None else self._computing(job, family)
        found = self._best_of(job, family, Shortest(_NEVER, family[0], floor.seconds))
        if not found.known:
            found = self._best_of(job, floor.placements, found)
        if not found.known and getattr(self.network, "by_shape", False):
            every = self._each_shape(demand)
            if every is not None:
                found = self._best_of(job, every, found)
                found = found._replace(floor=found.step.seconds)  # all were looked at
            else:
                found = self._climbed(job, found)
        # Rounding may lift the floor over the step by a hair. More than that is a model that contradicts itself: it
        # stands as it was said, and the run that gets there raises the alarm.
        hair = found.step.seconds < found.floor <= found.step.seconds * (1 + _MET)
        return found._replace(floor=found.step.seconds) if hair else found

    def _shaped(self, job: Job, demand: Demand) -> Shortest | None:
        """For one that says on how many or on which machines it must be: of every level the first such machines. What
        no placement at all can beat, none of these can."""
        anywhere = self.shortest(replace(job, nodes=None, among=None), demand.gpus)
        levels = range(len(self.topology.levels))
        found = {placed: None for kind in self.topology.gpu_types if demand.gpu_type in (None, kind) for level in levels
                 if (placed := place_shaped(self._free, demand._replace(gpu_type=kind), tight=False, level=level))}
        if anywhere is None or not found:
            return None
        return self._best_of(job, found, Shortest(_NEVER, next(iter(found)), anywhere.floor))

    def _best_of(self, job: Job, placements: Iterable[Placement], found: Shortest) -> Shortest:
        for placement in placements:
            step = self.network.step_time(job, placement, 0.0)
            if step.seconds < found.step.seconds:
                found = found._replace(step=step, placement=placement)
        return found

    def _climbed(self, job: Job, found: Shortest) -> Shortest:
        """Placements near the best one found, as long as one is better; nothing is proved by this."""
        left = _MOST_STEPS
        seen = {self._shapes.of(found.placement)}
        better = True
        while better and left:
            better = False
            for placement in neighbours(self.topology, found.placement):
                shape = self._shapes.of(placement)
                if shape in seen:
                    continue
                seen.add(shape)
                left -= 1
                further = self._best_of(job, (placement,), found)
                if further is not found:
                    found, better = further, True
                    break
                if not left:
                    break
        return found

    def _computing(self, job: Job, family: list[Placement]) -> Floor:
        """For a model that does not say: computing alone, on the GPU type where that is shortest."""
        return Floor(min(self.network.step_time(job, placement, 0.0).compute for placement in family))

    def _family(self, demand: Demand) -> list[Placement]:
        found = self._families.get(demand)
        if found is None:
            unique = {placement: None for pool in pools_for(self._free, demand)
                      for placement in candidates(self._free, pool, demand.gpus)}  # fmt: skip
            found = self._families[demand] = list(unique)
        return found

    def _each_shape(self, demand: Demand) -> list[Placement] | None:
        """A placement of every shape; None where they are too many."""
        if demand not in self._every:
            found: list[Placement] | None = []
            for pool in pools_for(self._free, demand):
                shapes = every_shape(self._shapes, pool.gpu_type, demand.gpus, _MOST_SHAPES)
                found = None if shapes is None or found is None else [*found, *shapes.values()]
            self._every[demand] = found
        return self._every[demand]


_NEVER = Step(float("inf"), 0.0, 0.0, float("inf"))
