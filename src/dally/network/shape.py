"""The shape of a placement: what a step depends on, with the identity of machines and racks taken out.

A shape is a nested tuple, each domain's children in descending order, so that placements that differ only by a
permutation of machines in a rack, of racks in a block … have the same one. The innermost level that holds the
gang is its top.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dally.core.placement import Placement
from dally.core.topology import Level, LinkKind, Topology

# What one GPU can put on the network by itself where a machine has several NICs: the rate of PCIe 4.0 ×16, which
# a GPU's own slot has (an estimate; where the NICs come to more per GPU, a GPU has its own part of them).
HOST_LINK = 32e9

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
        kinds: dict[Kind, int] = {}
        self._kind = [
            kinds.setdefault(Kind(machine.gpu_type, machine.gpus, machine.links), len(kinds))
            for machine in topology.machines
        ]
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
        """A number that says all there is to say of the shape where a gang is on one machine whose GPUs are all alike
        to each other, as most gangs are; -1 where it is not."""
        if self.topology.machine_level or len(placement.slices) != 1:
            return -1
        machine, _ = placement.slices[0]
        return self._kind[machine] << 32 | placement.gpus

    def of(self, placement: Placement) -> Shape:
        topology = self.topology
        own = topology.machine_level
        if own == 0 and len(placement.slices) == 1:  # most gangs
            machine, mask = placement.slices[0]
            return Shape(0, (self._kind[machine], mask.bit_count()))
        nodes: list[tuple[tuple[int, ...], Tree]] = []
        for machine, mask in placement.slices:
            found = topology.machines[machine]
            inside: Tree = mask.bit_count()
            if own:
                counts = ((mask & island).bit_count() for island in found.islands)
                inside = tuple(sorted((count for count in counts if count), reverse=True))
            nodes.append((found.domains, (self._kind[machine], inside)))
        level = own
        offset = 0
        while len(nodes) > 1:  # fold machines into racks, racks into blocks … until one domain holds all
            offset += 1
            level += 1
            folded: dict[int, tuple[tuple[int, ...], list[Tree]]] = {}
            for domains, tree in nodes:
                folded.setdefault(domains[offset], (domains, []))[1].append(tree)
            nodes = [(domains, tuple(sorted(trees, reverse=True))) for domains, trees in folded.values()]
        return trimmed(Shape(level, nodes[0][1]), own)


def trimmed(shape: Shape, machine_level: int) -> Shape:
    """Without outer domains that hold a single unit. A shape never loses its machine."""
    top, tree = shape
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
    if shape.top == machine_level:
        return {shape.tree[0]}
    found: set[int] = set()
    for child in shape.tree:
        found |= kinds_in(Shape(shape.top - 1, child), machine_level)
    return found


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
    return trimmed(Shape(shape.top, tree), machine_level)
