"""GPUs that are free now, or will be: what nodes are chosen from."""

from __future__ import annotations

from dally.core.free import FreeGpus
from dally.core.placement import gpus_in

Chosen = tuple[tuple[int, int], ...]  # (machine, GPUs)


class Room:
    """GPUs that are free now, or will be at some time."""

    def at_least(self, gpus: int) -> int:
        """Bit set of the machines with so many free."""
        raise NotImplementedError

    def free_on(self, machine: int) -> int:
        raise NotImplementedError


class RoomNow(Room):
    """What is free now, straight from the index."""

    def __init__(self, free: FreeGpus) -> None:
        self.free = free
        self._pools = list(free.pools.values())
        self._level: int = free.topology.machine_level

    def at_least(self, gpus: int) -> int:
        if len(self._pools) == 1:
            return self._pools[0].domains_with(self._level, gpus)
        found = 0
        for pool in self._pools:
            found |= pool.domains_with(self._level, gpus)
        return found

    def free_on(self, machine: int) -> int:
        return gpus_in(self.free.masks[machine])


class RoomLater(Room):
    """What will be free once some jobs have ended."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts
        self._sets: dict[int, int] = {}

    def at_least(self, gpus: int) -> int:
        found = self._sets.get(gpus)
        if found is None:
            found = 0
            for machine, count in enumerate(self.counts):
                if count >= gpus:
                    found |= 1 << machine
            self._sets[gpus] = found
        return found

    def free_on(self, machine: int) -> int:
        return self.counts[machine]

    def give(self, gpus: Chosen) -> None:
        counts, sets = self.counts, self._sets
        for machine, more in gpus:
            before = counts[machine]
            after = counts[machine] = before + more
            for size, members in sets.items():
                if before < size <= after:
                    sets[size] = members | 1 << machine
