"""Placements: which GPUs of which machines a gang holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dally.core.topology import Topology

Slice = tuple[int, int]  # machine index, mask of its GPUs

_COUNTS: Final = bytes(mask.bit_count() for mask in range(256))


def gpus_in(mask: int) -> int:
    """GPUs of one machine's mask. Most machines have eight or fewer, and `int.bit_count` is a call by name."""
    return _COUNTS[mask] if 0 <= mask < 256 else mask.bit_count()


class Placement(NamedTuple):
    """The GPUs of a gang as (machine, mask) pairs in machine order."""

    slices: tuple[Slice, ...]
    gpus: int

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> Placement:
        ordered = tuple(sorted(slices))
        gpus = 0
        for _, mask in ordered:
            gpus += gpus_in(mask)
        return cls(ordered, gpus)

    def text(self) -> str:
        """Compact and exact: `3:ff,4:0f` is eight GPUs of machine 3 and four of machine 4."""
        return ",".join(f"{machine}:{mask:x}" for machine, mask in self.slices)

    @classmethod
    def parse(cls, text: str) -> Placement:
        pairs = (part.split(":") for part in text.split(",") if part)
        return cls.of((int(machine), int(mask, 16)) for machine, mask in pairs)

    def level(self, topology: Topology) -> int:
        """The innermost level with a domain that holds all of it."""
        return level_of(self, topology)

    def gpu_numbers(self, topology: Topology) -> list[int]:
        """Cluster-wide GPU numbers, ascending."""
        numbers = []
        for machine, mask in self.slices:
            first = topology.machines[machine].first_gpu
            numbers += [first + bit for bit in range(mask.bit_length()) if mask >> bit & 1]
        return numbers


def level_of(placement: Placement, topology: Topology) -> int:
    """`Placement.level`, for who asks often: a method of a named tuple is a call by name."""
    slices, own = placement.slices, topology.machine_level
    first, mask = slices[0]
    if len(slices) == 1:
        if own:
            for island in topology.machines[first].islands:
                if mask & island == mask:
                    return 0
        return own
    last = slices[-1][0]
    a, b = topology.machines[first].domains, topology.machines[last].domains
    for offset in range(1, len(a)):
        if a[offset] == b[offset]:
            return own + offset
    return len(topology.levels) - 1
