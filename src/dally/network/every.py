"""Every shape a gang can have on a cluster, with a placement for each: to look at all of them where they are few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dally.core.placement import Placement, Slice
from dally.core.topology import Machine, Topology
from dally.network.shape import Shape, Shapes, Tree, trimmed

# by GPUs taken: what a domain can contribute, each with the GPUs that do it
Ways = dict[int, dict[Tree, tuple[Slice, ...]]]


class TooManyError(Exception):
    """More shapes than anybody wants to look at."""


def every_shape(shapes: Shapes, gpu_type: str, gpus: int, most: int) -> dict[Shape, Placement] | None:
    """All shapes of a gang on GPUs of one type; None where there are more than `most`, or it takes too long to say."""
    topology = shapes.topology
    own = topology.machine_level
    budget = [20 * most]
    try:
        nodes = {machine.domains[0]: _machine(machine, shapes.of_machine(machine.index), own, gpus, budget)
                 for machine in topology.machines if machine.gpu_type == gpu_type}  # fmt: skip
        for level in range(own + 1, len(topology.levels)):
            nodes = _folded(topology, nodes, level, gpus, budget)
    except TooManyError:
        return None
    found: dict[Shape, Placement] = {}
    for tree, slices in (pair for ways in nodes.values() for pair in ways.get(gpus, {}).items()):
        found.setdefault(trimmed(len(topology.levels) - 1, tree, own), Placement.of(slices))
    return found if len(found) <= most else None


def _machine(machine: Machine, kind: int, own: int, gpus: int, budget: list[int]) -> Ways:
    if own == 0:
        return {count: {(kind, count): ((machine.index, (1 << count) - 1),)}
                for count in range(1, min(machine.gpus, gpus) + 1)}  # fmt: skip
    found: Ways = {}
    for counts, mask in _in_islands(machine.islands, gpus, budget):
        inside = tuple(sorted((count for count in counts if count), reverse=True))
        if inside:
            found.setdefault(sum(inside), {}).setdefault((kind, inside), ((machine.index, mask),))
    return found


def _in_islands(islands: tuple[int, ...], gpus: int, budget: list[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Counts per island; among islands of one size in descending order, since they are alike."""
    if not islands:
        yield (), 0
        return
    first, rest = islands[0], islands[1:]
    for counts, mask in _in_islands(rest, gpus, budget):
        size = first.bit_count()
        floor = counts[0] if rest and rest[0].bit_count() == size else 0
        for count in range(floor, min(size, gpus - sum(counts)) + 1):
            _spend(budget)
            yield (count, *counts), mask | _lowest(first, count)


def _lowest(mask: int, count: int) -> int:
    shift = (mask & -mask).bit_length() - 1
    return ((1 << count) - 1) << shift


def _folded(topology: Topology, nodes: dict[int, Ways], level: int, gpus: int, budget: list[int]) -> dict[int, Ways]:
    """Machines into racks, racks into blocks …: every set of ways of the children, in descending order."""
    children: dict[int, list[Ways]] = {}
    for machine in topology.machines:
        below, above = machine.domains[level - topology.machine_level - 1 :][:2]
        if below in nodes:
            children.setdefault(above, []).append(nodes.pop(below))
    return {domain: _together(ways, gpus, budget) for domain, ways in children.items()}


def _together(parts: Iterable[Ways], gpus: int, budget: list[int]) -> Ways:
    sums: Ways = {0: {(): ()}}
    for part in parts:
        grown: Ways = {taken: dict(ways) for taken, ways in sums.items()}
        for taken, ways in sums.items():
            for more, others in part.items():
                if taken + more > gpus:
                    continue
                into = grown.setdefault(taken + more, {})
                for trees, slices in ways.items():
                    for tree, own_slices in others.items():
                        key = tuple(sorted((*trees, tree), reverse=True))
                        if key not in into:
                            _spend(budget)
                            into[key] = (*slices, *own_slices)
        sums = grown
    del sums[0]
    return sums


def _spend(budget: list[int]) -> None:
    budget[0] -= 1
    if budget[0] < 0:
        raise TooManyError
