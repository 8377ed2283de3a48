"""Gangs on the fewest machines that could ever hold them."""

from __future__ import annotations

from collections.abc import Set

from dally.core.free import FreeGpus, Pool
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.topology import Topology
from dally.policies.placing import place_within, pools_for


def place_compact(free: FreeGpus, demand: Demand, least: Fewest) -> Placement | None:
    """On the fewest machines that could ever hold the gang, in the innermost domain that has them; else None."""
    for pool in pools_for(free, demand):
        fewest = least.machines(pool.gpu_type, demand.gpus)
        if fewest is not None and (found := _on_fewest(free, pool, demand.gpus, fewest)) is not None:
            return found
    return None


def _on_fewest(free: FreeGpus, pool: Pool, gpus: int, fewest: int) -> Placement | None:
    levels = len(free.topology.levels)
    last = free.topology.machine_level + 1 if fewest == 1 else levels
    for level in range(min(last, levels)):
        found = place_within(free, pool, gpus, level, tight=True)
        if found is not None and len(found.slices) <= fewest:
            return found
    return None


class Fewest:
    """How many machines a gang needs at least, of those that are up."""

    def __init__(self, topology: Topology, down: Set[int], layout: int) -> None:
        self.layout = layout  # for which this was counted
        sizes: dict[str, list[int]] = {}
        self._up: dict[str, int] = {}
        for machine in topology.machines:
            if machine.index not in down:
                sizes.setdefault(machine.gpu_type, []).append(machine.gpus)
                self._up[machine.gpu_type] = self._up.get(machine.gpu_type, 0) | 1 << machine.index
        self._sizes = {kind: sorted(found, reverse=True) for kind, found in sizes.items()}
        self.largest = max((found[0] for found in self._sizes.values()), default=1)

    def machines(self, gpu_type: str, gpus: int) -> int | None:
        """None where it does not fit at all."""
        left = gpus
        for count, size in enumerate(self._sizes.get(gpu_type, ()), 1):
            left -= size
            if left <= 0:
                return count
        return None

    def up(self, gpu_type: str) -> int:
        """The machines of a type that are up, as a bit set."""
        return self._up.get(gpu_type, 0)
