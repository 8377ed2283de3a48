"""Placements from counts: a gang over so many machines of so many racks, as evenly as can be."""

from __future__ import annotations

from dally.core.free import lowest_gpus
from dally.core.placement import Placement, Slice
from dally.core.topology import Machine, Topology


def spread_over(topology: Topology, gpu_type: str, gpus: int, spread: tuple[int, ...]) -> Placement | None:
    """A gang that touches so many domains of each level, from the innermost to the one that holds it, as evenly as can
    be; None where the roomiest domains have no room for that."""
    own = topology.machine_level
    machines = [machine for machine in topology.machines if machine.gpu_type == gpu_type]
    counts = (*spread, *(1,) * (len(topology.levels) - len(spread)))[own:]  # machines, racks, …, the cluster
    chosen = _chosen(machines, counts, len(counts) - 1)
    shares = None if chosen is None else _shares(gpus, [machine.gpus for machine in chosen])
    if chosen is None or shares is None:
        return None
    each = -(-spread[0] // len(chosen)) if own else 1
    slices: list[Slice] = []
    for machine, wanted in zip(chosen, shares, strict=True):
        islands = machine.islands or (machine.full_mask,)
        sizes = sorted((island.bit_count() for island in islands), reverse=True)
        over = next((k for k in range(max(1, each), len(islands) + 1) if sum(sizes[:k]) >= wanted), None)
        slices.append((machine.index, even_mask(islands, wanted, over)))
    return Placement.of(slices)


def _chosen(machines: list[Machine], counts: tuple[int, ...], outer: int) -> list[Machine] | None:
    """Machines in so many domains of each level, as many in each as can be, the roomiest first."""
    if outer == 0:
        roomiest = sorted(machines, key=lambda machine: -machine.gpus)[: counts[0]]
        return roomiest if len(roomiest) == counts[0] else None
    inside: dict[int, list[Machine]] = {}
    for machine in machines:
        inside.setdefault(machine.domains[outer], []).append(machine)
    parts = counts[outer]
    roomy = sorted(inside.values(), key=lambda members: (-len(members), -sum(m.gpus for m in members)))[:parts]
    if len(roomy) < parts:
        return None
    found: list[Machine] = []
    # what the levels further in have of each count, divided among the domains of this one
    divided = [_shares(count, [len(members) if level == 0 else _domains(members, level) for members in roomy])
               for level, count in enumerate(counts[:outer])]  # fmt: skip
    for index, members in enumerate(roomy):
        own = []
        for share in divided:
            if share is None:
                return None
            own.append(share[index])
        part = _chosen(members, tuple(own), outer - 1)
        if part is None:
            return None
        found += part
    return found


def _domains(machines: list[Machine], level: int) -> int:
    return len({machine.domains[level] for machine in machines})


def _shares(total: int, rooms: list[int]) -> list[int] | None:
    """At least one each and as even as the rooms allow; None where that is not possible."""
    if not len(rooms) <= total <= sum(rooms):
        return None
    shares = [1] * len(rooms)
    left = total - len(rooms)
    while left:
        lowest = min(share for share, room in zip(shares, rooms, strict=True) if share < room)
        for index, room in enumerate(rooms):
            if left and shares[index] == lowest and shares[index] < room:
                shares[index] += 1
                left -= 1
    return shares


def even_mask(islands: tuple[int, ...], gpus: int, over: int | None = None) -> int:
    """GPUs of a machine, spread evenly over its islands, or over so many of the largest."""
    if over is not None:
        islands = tuple(sorted(islands, key=int.bit_count, reverse=True))[:over]
    chosen = [0] * len(islands)
    while gpus:
        for index, island in enumerate(islands):
            if gpus and chosen[index] < island.bit_count():
                chosen[index] += 1
                gpus -= 1
    return sum(lowest_gpus(island, count) for island, count in zip(islands, chosen, strict=True))
