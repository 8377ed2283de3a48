"""Typical GPUs of a tier: by them a job is told how fast it would run there."""

from __future__ import annotations

from dally.core.free import FreeGpus, lowest_gpus
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.policies.dally.tiers import Tiers
from dally.policies.placing import place_within


class Examples:
    """One placement per size of gang, GPU type and tier of an empty cluster, made when it is first asked for."""

    def __init__(self, topology: Topology, tiers: Tiers) -> None:
        self._tiers = tiers
        self._empty = FreeGpus(topology)
        self._made: dict[tuple[int, str, int], Placement | None] = {}

    def of(self, gpus: int, kind: str, tier: int) -> Placement | None:
        key = (gpus, kind, tier)
        if key not in self._made:
            self._made[key] = self._make(gpus, kind, tier)
        return self._made[key]

    def _make(self, gpus: int, kind: str, tier: int) -> Placement | None:
        """On the fewest machines; halved between two domains below where it would not need the tier."""
        empty, level = self._empty, self._tiers.own + tier
        if kind not in empty.pools:
            return None  # GPUs that the cluster does not have
        found = place_within(empty, empty.pools[kind], gpus, level, tight=False)
        if found is None or gpus == 1 or self._tiers.of(found) == tier:
            return found
        topology = empty.topology
        for domain in topology.domains[level]:
            halves: dict[int, int] = {}
            left = [gpus - gpus // 2, gpus // 2]
            below: list[int] = []
            for index in domain.machines:
                machine = topology.machines[index]
                part = topology.domain_of(index, level - 1).index
                if machine.gpu_type != kind or (part not in below and len(below) == 2):
                    continue
                if part not in below:
                    below.append(part)
                side = below.index(part)
                count = min(left[side], machine.gpus)
                if count:
                    halves[index] = lowest_gpus(machine.full_mask, count)
                    left[side] -= count
            if not any(left):
                return Placement.of(halves.items())
        return found
