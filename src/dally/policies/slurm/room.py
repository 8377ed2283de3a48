"""GPUs that are free now, or will be: what nodes are chosen from."""

from __future__ import annotations

from typing import Protocol

from dally.core.free import FreeGpus
from dally.core.placement import gpus_in

Chosen = tuple[tuple[int, int], ...]  # (machine, GPUs)


class Room(Protocol):
    """GPUs that are free now, or will be at some time."""

    def at_least(self, gpus: int) -> int:
        """Bit set of the machines with so many free."""
        ...

    def free_on(self, machine: int) -> int: ...


class RoomNow:
    """What is free now, straight from the index."""

    def __init__(self, free: FreeGpus) -> None:
        self.free = free

    def at_least(self, gpus: int) -> int:
        level, found = self.free.topology.machine_level, 0
        if level == len(self.free.topology.levels) - 1:  # one machine, whose count is the total
            return int(self.free.total >= gpus)
        for pool in self.free.pools.values():
            found |= pool.domains_with(level, gpus)
        return found

    def free_on(self, machine: int) -> int:
        return gpus_in(self.free.masks[machine])


class RoomLater:
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
