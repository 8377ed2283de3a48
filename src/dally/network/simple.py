"""Two models that need no knowledge of the job: placement never matters, or each level has a price."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement, level_of
from dally.core.topology import Topology
from dally.network.model import Floor, Step, Uncontended
from dally.network.room import Census


class Ideal(Uncontended):
    """Placement never matters: every step takes one unit of time."""

    by_shape = True
    _step = Step(1.0, 1.0, 0.0, 1.0)

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        return self._step

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        return Floor(self._step.seconds)


class LevelPenalty(Uncontended):
    """A step is slower by a factor that depends only on the innermost level that holds the gang.

    Default: 1 inside a machine, 1.25 more for every level above; a figure to play with, not a measurement.
    """

    by_shape = True

    def __init__(self, topology: Topology, factors: Mapping[str, float] | None = None) -> None:
        self.topology = topology
        self._census = Census(topology)
        chosen = [1.25 ** max(0, i - topology.machine_level) for i in range(len(topology.levels))]
        for name, factor in (factors or {}).items():
            if factor < 1:
                raise UserError(f"network 'level-penalty': factor {name}={factor:g} is below 1")
            chosen[topology.level_index(name)] = factor
        if any(inner > outer for inner, outer in itertools.pairwise(chosen)):
            raise UserError("network 'level-penalty': an outer level may not be faster than an inner one")
        self._steps = [Step(factor, 1.0, factor - 1.0, factor) for factor in chosen]

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        return self._steps[level_of(placement, self.topology)]

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        """No outer level is faster than an inner one, so it is the innermost that has the GPUs."""
        for level, step in enumerate(self._steps):
            if any(self._census.largest(kind, level) >= gpus for kind in self._census.types(job.gpu_type)):
                return Floor(step.seconds)
        return Floor(float("inf"))
