"""Free GPUs, indexed by count: "which machine, rack or block has at least d free" is one look-up.

Per GPU type and level the index keeps, for every count d, a bit set of the domains with at least d free GPUs.
A set is a Python integer, so the first domain that fits is its lowest bit, and a change of c GPUs touches c sets, once
somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dally.core.placement import Placement, gpus_in
from dally.core.topology import Domain, Topology


class Pool:
    """Free GPUs of one type."""

    __slots__ = ("_sets", "counts", "gpu_type", "top", "total")

    def __init__(self, topology: Topology, gpu_type: str) -> None:
        self.gpu_type = gpu_type
        self.total = 0
        self.top = len(topology.levels) - 1  # the whole cluster is one domain: its count is the total
        self.counts: list[list[int]] = [[0] * len(domains) for domains in topology.domains]
        self._sets: list[_Sets] = []
        for level, domains in enumerate(topology.domains):
            largest = max((domain.gpus for domain in domains), default=0) if level < self.top else 0
            self._sets.append(_Sets(self.counts[level], largest))

    def domains_with(self, level: int, gpus: int) -> int:
        """Bit set of the level's domains with at least so many GPUs free."""
        if level == self.top:
            return 1 if self.total >= gpus else 0
        sets = self._sets[level]
        if gpus >= len(sets.at_least):
            return 0
        if sets.changed:
            sets.bring_up_to_date()
        return sets.at_least[gpus]

    def at_least_on(self, level: int) -> list[int]:
        """For every count d a bit set: bit i is set where domain i of the level has d or more GPUs free."""
        sets = self._sets[level]
        if sets.changed:
            sets.bring_up_to_date()
        return sets.at_least

    def largest_on(self, level: int) -> int:
        """GPUs of the largest domain of a level below the top."""
        return len(self._sets[level].at_least) - 1

    @property
    def at_least(self) -> list[list[int]]:
        """`at_least_on` every level."""
        return [self.at_least_on(level) for level in range(len(self._sets))]


class _Sets:
    """The domains of a level by how many GPUs they have free at least: as they were when somebody last asked, and
    which have changed since. What is tried, undone and then done comes to one change."""

    __slots__ = ("_most", "at_least", "changed", "counts", "shown")

    def __init__(self, counts: list[int], largest: int) -> None:
        self.counts = counts
        self.shown = list(counts)  # what the sets say
        self.at_least = [0] * (largest + 1)
        self.at_least[0] = (1 << len(counts)) - 1
        self.changed: list[int] = []  # domains; whoever has another count than is shown is among them
        self._most = 2 * len(counts) + 16

    def bring_up_to_date(self) -> None:
        at_least, counts, shown = self.at_least, self.counts, self.shown
        for domain in self.changed:
            before, after = shown[domain], counts[domain]
            if before != after:
                bit = 1 << domain
                shown[domain] = after
                for d in range(before + 1, after + 1):
                    at_least[d] |= bit
                for d in range(after + 1, before + 1):
                    at_least[d] ^= bit
        self.changed = []

    def change(self, domain: int, gpus: int) -> None:
        """So many more are free in a domain."""
        count = self.counts[domain]
        if count == self.shown[domain]:
            if len(self.changed) >= self._most:
                self.bring_up_to_date()
            self.changed.append(domain)
        self.counts[domain] = count + gpus


class _Holder:
    """A domain below the top that holds a machine, or part of one (`inside`: that part, -1 for all of it)."""

    __slots__ = ("domain", "inside", "sets")

    def __init__(self, sets: _Sets, domain: int, inside: int) -> None:
        self.sets, self.domain, self.inside = sets, domain, inside


class FreeGpus:
    """Which GPUs are free now. Policies read it and try changes on it inside a `trial`."""

    __slots__ = ("_log", "_touched", "changes", "masks", "pools", "topology")

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.masks = [0] * len(topology.machines)
        self.pools = {gpu_type: Pool(topology, gpu_type) for gpu_type in topology.gpu_types}
        self.changes = 0  # so far; what is tried and undone does not count
        self._log: list[tuple[int, int, bool]] | None = None
        self._touched: list[tuple[Pool, list[_Holder]]] = []  # per machine
        islands: dict[int, list[Domain]] = {}
        for island in topology.domains[0] if topology.machine_level else ():
            islands.setdefault(island.start, []).append(island)
        for machine in topology.machines:
            pool = self.pools[machine.gpu_type]
            holders = [(topology.machine_level + i, domain, -1) for i, domain in enumerate(machine.domains[:-1])]
            holders += [(0, island.index, island.mask) for island in islands.get(machine.index, ())]
            self._touched.append((pool, [_Holder(pool._sets[level], domain, inside)
                                         for level, domain, inside in holders]))  # fmt: skip
        for machine in topology.machines:
            self._change(machine.index, machine.full_mask, True)

    @property
    def total(self) -> int:
        return sum(pool.total for pool in self.pools.values())

    def has(self, machine: int, mask: int) -> bool:
        return self.masks[machine] & mask == mask

    def give(self, placement: Placement) -> None:
        for machine, mask in placement.slices:
            self._change(machine, mask, True)

    def take(self, placement: Placement) -> None:
        for machine, mask in placement.slices:
            self._change(machine, mask, False)

    def give_mask(self, machine: int, mask: int) -> None:
        if mask:
            self._change(machine, mask, True)

    def take_mask(self, machine: int, mask: int) -> None:
        if mask:
            self._change(machine, mask, False)

    def _change(self, machine: int, mask: int, free: bool) -> None:
        if free:
            assert self.masks[machine] & mask == 0, "a GPU was freed twice"
            self.masks[machine] |= mask
        else:
            assert self.masks[machine] & mask == mask, "a GPU was taken twice"
            self.masks[machine] &= ~mask
        if self._log is not None:
            self._log.append((machine, mask, free))
        self.changes += 1
        pool, holders = self._touched[machine]
        gpus = gpus_in(mask)
        pool.total += gpus if free else -gpus
        for holder in holders:
            inside = gpus if holder.inside < 0 else gpus_in(mask & holder.inside)
            if inside:
                holder.sets.change(holder.domain, inside if free else -inside)

    def trial(self) -> Trial:
        """`with free.trial() as t:` — try changes on the index; they are undone at the end of the block."""
        return Trial(self)


class Trial:
    """A transaction over the free GPUs that is always rolled back: a policy tries, the scheduler commits."""

    __slots__ = ("_changes", "_free")

    def __init__(self, free: FreeGpus) -> None:
        self._free = free
        self._changes = free.changes

    def __enter__(self) -> FreeGpus:
        assert self._free._log is None, "trials do not nest"
        self._free._log = []
        return self._free

    def __exit__(self, *_: object) -> None:
        log, self._free._log = self._free._log, None
        for machine, mask, free in reversed(log or []):
            self._free._change(machine, mask, not free)
        self._free.changes = self._changes


def bits(members: int) -> Iterator[int]:
    """Members of a bit set, ascending."""
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low


def lowest_gpus(mask: int, count: int) -> int:
    """The `count` lowest GPUs of a mask."""
    if gpus_in(mask) == count:
        return mask
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken
