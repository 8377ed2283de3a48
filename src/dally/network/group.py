"""A group of GPUs that run a collective together: the counts along the topology that its cost is made of."""

from __future__ import annotations

from typing import Final

from dally.network.shape import HOST_LINK, Shape, Tree, Wires

_MANY: Final = 1 << 60


class Group:
    """Counts of a shape, per level up to its top.

    `joins[l]`: merges that make the domains of level l whole, Σ (children − 1); all levels together n − 1.
    `most[l]`: children of the domain with most of them (level 0: GPUs).
    `spans[l]`: first and last position (exclusive) of every domain, in the order of the tree.
    `narrowest[l][q]`: units attached to level q inside the unit attached to level l that has fewest.
    `slowness[l]`: seconds per byte of the slowest port; `host`: of the slots of the machine with fewest GPUs.
    """

    __slots__ = ("host", "joins", "most", "n", "narrowest", "shape", "slowness", "spans", "top", "wires")

    def __init__(self, shape: Shape, wires: Wires) -> None:
        self.shape, self.wires = shape, wires
        top = self.top = shape.top
        self.joins = [0] * (top + 1)
        self.most = [1] * (top + 1)
        self.spans: list[list[tuple[int, int]]] = [[] for _ in range(top + 1)]
        self.narrowest = [[_MANY] * (top + 1) for _ in range(top + 1)]
        own = wires.machine_level
        self.slowness = [0.0] * (own + 1) + list(wires.slowness[own + 1 : top + 1])
        self.host = 0.0
        self.n = sum(self._walk(top, shape.tree, 0)[:1])

    def _walk(self, level: int, tree: Tree, start: int) -> list[int]:
        """Units attached to every level below: GPUs first."""
        if level == self.wires.machine_level:
            return self._machine(level, tree, start)
        units = [0] * (self.top + 1)
        at = start
        for child in tree:
            inside = self._walk(level - 1, child, at)
            at += inside[0]
            inside[level] = 1
            row = self.narrowest[level]
            for q, count in enumerate(inside[: level + 1]):
                units[q] += count
                if count < row[q]:
                    row[q] = count
        self._domain(level, len(tree), start, at)
        return units

    def _machine(self, level: int, tree: Tree, start: int) -> list[int]:
        kind = self.wires.kinds[tree[0]]
        units = [0] * (self.top + 1)
        if level == 0:
            gpus = units[0] = tree[1]
        else:
            at = start
            for island in tree[1]:
                self._domain(0, island, at, at + island)
                at += island
            gpus = units[0] = at - start
            units[1] = len(tree[1])
        self._domain(level, units[level], start, start + gpus)
        for inner, link in enumerate(kind.links[: level + 1]):
            self.slowness[inner] = max(self.slowness[inner], 1 / link.bandwidth)
        if self.top > level:
            own_part = 1 / (self.wires.slowness[level + 1] * kind.gpus)
            self.host = max(self.host, 1 / (gpus * max(own_part, HOST_LINK)))
        return units

    def _domain(self, level: int, children: int, start: int, stop: int) -> None:
        self.joins[level] += children - 1
        if children > self.most[level]:
            self.most[level] = children
        self.spans[level].append((start, stop))

    @property
    def active(self) -> list[int]:
        """Levels at which something has to be joined."""
        return [level for level in range(self.top + 1) if self.joins[level]]

    @property
    def network(self) -> range:
        """Levels above the machine that the group's traffic passes."""
        return range(self.wires.machine_level + 1, self.top + 1)
