"""How a gang of one GPU type can lie on a cluster, in counts: domains of each level, their GPUs, kinds of machines.

Counts are all that the shortest step is searched over (`network.floor`). They are those of the roomiest domain in
every respect, so whatever a placement has, the counts allow; not everything they allow is a placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

from dally.core.topology import Domain, Machine, Topology
from dally.network.shape import Kind

Span = tuple[int, int]  # fewest, most


@dataclass(frozen=True, slots=True)
class Room:
    """What domains of level `top` offer to a gang that fits into one of them.

    `gpus[l][k]`: GPUs in k of their domains of level l, at most. `inside[l][k]`: domains of level l in k of the
    level above, at most. `sizes[l]`: GPUs of the largest domain of level l, of the next one … For l < top; level 0
    without islands is the machine.
    """

    top: int
    sizes: tuple[tuple[int, ...], ...]
    gpus: tuple[tuple[int, ...], ...]
    inside: tuple[tuple[int, ...], ...]
    kinds: tuple[tuple[Kind, int], ...]  # and how many machines of each

    def spans(self, n: int, machine_level: int) -> list[Span] | None:
        """How many domains of each level below the top a gang of n may touch; None: there is no such gang."""
        wide: list[Span] = []
        for level in range(self.top):
            # a gang that is held by this level and by none further in touches two domains of the next one
            least = 2 if level == self.top - 1 and self.top > machine_level else 1
            wide.append((least, min(n, len(self.gpus[level]) - 1)))
        return self.narrowed(n, wide)

    def narrowed(self, n: int, wide: Sequence[Span]) -> list[Span] | None:
        """The same without counts that fit no others; None where nothing is left."""
        spans = [list(span) for span in wide]
        for level, span in enumerate(spans):
            span[0] = max(span[0], next((k for k, held in enumerate(self.gpus[level]) if held >= n), n + 1))
        for level in range(self.top - 1, -1, -1):  # outside in: no more than the level above has, and no fewer
            above = spans[level + 1] if level + 1 < self.top else [1, 1]
            spans[level][0] = max(spans[level][0], above[0])
            spans[level][1] = min(spans[level][1], self.inside[level][min(above[1], len(self.inside[level]) - 1)])
        for level in range(1, self.top):  # inside out: a domain holds at least one of the next, and no more than it has
            below, room = spans[level - 1], self.inside[level - 1]
            spans[level][1] = min(spans[level][1], below[1])
            spans[level][0] = max(spans[level][0], next((k for k, held in enumerate(room) if held >= below[0]), n + 1))
        if any(low > high for low, high in spans):
            return None
        return [(low, high) for low, high in spans]

    def largest(self, level: int) -> int:
        """GPUs of the largest domain of a level below the top."""
        return self.sizes[level][0]

    def fullest(self, level: int, n: int, domains: int) -> int:
        """GPUs of a gang in the fullest of the domains it touches, at least: with fewer in each they would not do."""
        sizes = self.sizes[level][:domains]
        low, high = -(-n // max(1, len(sizes))), sizes[0]
        while low < high:
            middle = (low + high) // 2
            if sum(min(size, middle) for size in sizes) >= n:
                high = middle
            else:
                low = middle + 1
        return low

    def part(self, top: int) -> Room:
        """What domains of an inner level offer, no more being known of them."""
        return Room(top, self.sizes[:top], self.gpus[:top], self.inside[:top], self.kinds)


class Census:
    """The domains of a topology, counted once per GPU type."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._found: dict[str, list[tuple[int, Room]]] = {}
        self._rooms: dict[tuple[str, int], list[Room]] = {}

    def types(self, wanted: str | None) -> tuple[str, ...]:
        """GPU types a job that wants this one may be placed on."""
        known = self.topology.gpu_types
        return known if wanted is None else (wanted,) if wanted in known else ()

    def rooms(self, gpu_type: str, n: int) -> list[Room]:
        """One per level that can hold a gang of n, the innermost first; no gang is held by less than a machine."""
        key = (gpu_type, n)
        if key not in self._rooms:
            if gpu_type not in self._found:
                self._found[gpu_type] = self._count(gpu_type)
            own, found = self.topology.machine_level, []
            for top in range(own, len(self.topology.levels)):
                fitting = [room for held, room in self._found[gpu_type] if room.top == top and held >= n]
                if fitting:
                    found.append(_merged(top, fitting))
            self._rooms[key] = found
        return self._rooms[key]

    def largest(self, gpu_type: str, level: int) -> int:
        """GPUs of a type in the domain of a level that has most."""
        machines = self.topology.machines
        return max((_gpus(domain, machines, gpu_type) for domain in self.topology.domains[level]), default=0)

    def _count(self, gpu_type: str) -> list[tuple[int, Room]]:
        topology = self.topology
        found: dict[tuple[int, Room], None] = {}
        for top in range(topology.machine_level, len(topology.levels)):
            for domain in topology.domains[top]:
                machines = [m for m in topology.machines[domain.start : domain.stop] if m.gpu_type == gpu_type]
                if machines:
                    found[sum(m.gpus for m in machines), _room(top, machines, topology.machine_level)] = None
        return list(found)


def _gpus(domain: Domain, machines: Sequence[Machine], gpu_type: str) -> int:
    return sum((machines[m].full_mask & domain.mask).bit_count() for m in domain.machines
               if machines[m].gpu_type == gpu_type)  # fmt: skip


def _room(top: int, machines: Sequence[Machine], own: int) -> Room:
    """Of one domain, given its machines of a type."""
    sizes: list[tuple[int, ...]] = []
    inside: list[tuple[int, ...]] = []
    if own and top >= own:
        sizes.append(_sorted(island.bit_count() for machine in machines for island in machine.islands))
        inside.append(_most(len(machine.islands) for machine in machines))
    for level in range(own, top):
        held: dict[int, int] = {}
        children: dict[int, set[int]] = {}
        for machine in machines:
            domain = machine.domains[level - own]
            held[domain] = held.get(domain, 0) + machine.gpus
            children.setdefault(machine.domains[level + 1 - own], set()).add(domain)
        sizes.append(_sorted(held.values()))
        inside.append(_most(map(len, children.values())))
    kinds: dict[Kind, int] = {}
    for machine in machines:
        kind = Kind(machine.gpu_type, machine.gpus, machine.links)
        kinds[kind] = kinds.get(kind, 0) + 1
    return Room(top, tuple(sizes), tuple(map(_most, sizes)), tuple(inside), tuple(kinds.items()))


def _sorted(counts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(counts, reverse=True))


def _most(counts: Iterable[int]) -> tuple[int, ...]:
    """[0, the largest, the two largest together, …]"""
    return (0, *accumulate(_sorted(counts)))


def _merged(top: int, rooms: Sequence[Room]) -> Room:
    """The roomiest in every respect."""
    if len(rooms) == 1:
        return rooms[0]

    def largest(series: Iterable[Sequence[int]]) -> Iterator[int]:
        return (max(column) for column in zip_longest(*series, fillvalue=0))

    def roomiest(series: Iterable[Sequence[int]]) -> tuple[int, ...]:
        # `accumulate(…, max)`: where one domain has no more children, the k largest are all it has
        return tuple(accumulate(largest(series), max))

    kinds: dict[Kind, int] = {}
    for room in rooms:
        for kind, count in room.kinds:
            kinds[kind] = max(kinds.get(kind, 0), count)
    return Room(top, tuple(tuple(largest(each)) for each in zip(*(room.sizes for room in rooms), strict=True)),
                tuple(roomiest(each) for each in zip(*(room.gpus for room in rooms), strict=True)),
                tuple(roomiest(each) for each in zip(*(room.inside for room in rooms), strict=True)),
                tuple(kinds.items()))  # fmt: skip
