"""The shape of a placement: what a step depends on, with the identity of machines and racks taken out.

A shape is a nested tuple, each domain's children in descending order, so that placements that differ only by a
permutation of machines in a rack, of racks in a block … have the same one. The innermost level that holds the
gang is its top.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dally.core.placement import Placement, gpus_in
from dally.core.topology import Level, LinkKind, Topology

# What one GPU can put on the network by itself where a machine has several NICs: the rate of PCIe 4.0 ×16, which
# a GPU's own slot has (an estimate; where the NICs come to more per GPU, a GPU has its own part of them).
HOST_LINK: Final = 32e9
_WORD: Final = 1 << 32
_MOST: Final = 100_000  # parts of shapes that are remembered

Tree = Any  # level 0: GPUs of a domain; above: tuple of subtrees; a machine: (kind of machine, what is inside)


class Kind(NamedTuple):
    """Machines that are the same to a job."""

    gpu_type: str
    gpus: int
    links: tuple[Level, ...]


class Shape(NamedTuple):
    """`tree` is a domain of level `top`."""

    top: int
    tree: Tree


@dataclass(frozen=True, slots=True)
class Wires:
    """The links of a topology as collectives see them: per level, seconds per byte of a port and per message."""

    levels: tuple[Level, ...]
    machine_level: int
    kinds: tuple[Kind, ...]
    slowness: tuple[float, ...]  # 1 / bandwidth of the port of each unit attached to a level
    latency: tuple[float, ...]  # of a message between two units that meet at a level

    @property
    def host(self) -> int:
        """Index after the last level: a machine's GPUs put data on the network no faster than their slots allow."""
        return len(self.levels)


def hop_latency(level: Level) -> float:
    """A switch is two hops away from a neighbour, everything else one (as ASTRA-sim counts)."""
    return level.latency * (2 if level.kind is LinkKind.SWITCH else 1)


class Shapes:
    """Turns placements on one topology into shapes."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._own = topology.machine_level
        self._domains = [machine.domains for machine in topology.machines]
        self._islands = [list(machine.islands) for machine in topology.machines]
        kinds: dict[Kind, int] = {}
        self._kind = [
            kinds.setdefault(Kind(machine.gpu_type, machine.gpus, machine.links), len(kinds))
            for machine in topology.machines
        ]
        layouts: dict[tuple[int, tuple[int, ...]], int] = {}
        self._layout = [
            layouts.setdefault((self._kind[machine.index], tuple(machine.islands)), len(layouts))
            for machine in topology.machines
        ]  # the same for machines of one kind whose GPUs are joined in the same way
        self._machines: dict[int, Tree] = {}  # by layout and GPUs
        self.wires = Wires(
            topology.levels,
            topology.machine_level,
            tuple(kinds),
            tuple(1 / level.bandwidth for level in topology.levels),
            tuple(hop_latency(level) for level in topology.levels),
        )

    def of_machine(self, machine: int) -> int:
        """The kind of one machine."""
        return self._kind[machine]

    def alone(self, placement: Placement) -> int:
        """A number that says all there is to say of the shape where a gang is on one machine, as most gangs are; -1
        where it is not. Where GPUs of a machine are not all alike to each other, it says which they are."""
        slices = placement.slices
        if len(slices) != 1:
            return -1
        machine, mask = slices[0]
        if not self._own:
            return self._kind[machine] << 32 | placement.gpus
        return self._layout[machine] << 32 | mask if mask < _WORD else -1

    def of(self, placement: Placement) -> Shape:
        own, slices = self._own, placement.slices
        if own == 0 and len(slices) == 1:  # most gangs
            machine, mask = slices[0]
            return Shape(0, (self._kind[machine], gpus_in(mask)))
        nodes: list[tuple[tuple[int, ...], Tree]] = []
        for machine, mask in slices:
            nodes.append((self._domains[machine], self._machine(machine, mask)))
        level = own
        offset = 0
        while len(nodes) > 1:  # fold machines into racks, racks into blocks … until one domain holds all
            offset += 1
            level += 1
            folded: dict[int, tuple[tuple[int, ...], list[Tree]]] = {}
            for domains, tree in nodes:
                folded.setdefault(domains[offset], (domains, []))[1].append(tree)
            nodes = [(domains, tuple(sorted(trees, reverse=True))) for domains, trees in folded.values()]
        return trimmed(level, nodes[0][1], own)


    def _machine(self, machine: int, mask: int) -> Tree:
        """The part of a shape that is on one machine. There are few, whatever gangs they belong to."""
        number = self._layout[machine] << 32 | mask if mask < _WORD else -1
        found = self._machines.get(number)
        if found is None:
            inside: Tree = gpus_in(mask)
            if self._own:
                counts = [gpus_in(mask & island) for island in self._islands[machine] if mask & island]
                counts.sort(reverse=True)
                inside = tuple(counts)
            found = (self._kind[machine], inside)
            if number >= 0 and len(self._machines) < _MOST:
                self._machines[number] = found
        return found


def trimmed(top: int, tree: Tree, machine_level: int) -> Shape:
    """Without outer domains that hold a single unit. A shape never loses its machine."""
    while top > machine_level and len(tree) == 1:
        top, tree = top - 1, tree[0]
    return Shape(top, tree)


def gpu_count(top: int, tree: Tree, machine_level: int) -> int:
    if top == machine_level:
        inside = tree[1]
        return int(inside) if machine_level == 0 else sum(inside)
    return sum(gpu_count(top - 1, child, machine_level) for child in tree)


def kinds_in(shape: Shape, machine_level: int) -> set[int]:
    """Kinds of machines a shape is made of."""
    found: set[int] = set()
    _add_kinds(shape.top - machine_level, shape.tree, found)
    return found


def _add_kinds(above: int, tree: Tree, found: set[int]) -> None:
    """Of a domain so many levels above the machines."""
    if above == 0:
        found.add(tree[0])
        return
    for child in tree:
        _add_kinds(above - 1, child, found)


def subset(shape: Shape, positions: Sequence[int], machine_level: int) -> Shape:
    """The shape of some of the GPUs, given as ascending positions in the order of the tree."""

    def within(start: int, stop: int) -> int:
        return bisect_left(positions, stop) - bisect_left(positions, start)

    def cut(level: int, tree: Tree, start: int) -> tuple[Tree, int]:
        """What is left of a subtree (None: nothing) and the position after it."""
        if level == machine_level:
            kind, inside = tree
            if machine_level == 0:
                stop = start + inside
                count = within(start, stop)
                return ((kind, count) if count else None), stop
            kept = []
            for size in inside:
                count = within(start, start + size)
                start += size
                if count:
                    kept.append(count)
            return ((kind, tuple(sorted(kept, reverse=True))) if kept else None), start
        children = []
        for child in tree:
            left, start = cut(level - 1, child, start)
            if left is not None:
                children.append(left)
        return (tuple(sorted(children, reverse=True)) if children else None), start

    tree, _ = cut(shape.top, shape.tree, 0)
    return trimmed(shape.top, tree, machine_level)
