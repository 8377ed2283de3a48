"""Tiers: the levels Dally waits at, from the machine up to the whole cluster, and gangs placed in one of them.

Tier 0 is the machine with whatever is inside it (an NVLink island counts as the machine, where the paper starts),
tier 1 the rack, and so on; the last one is the whole cluster.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from dally.core.free import FreeGpus, Pool, bits, lowest_gpus
from dally.core.placement import Placement, Slice, gpus_in, level_of
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.shape import fits_empty
from dally.core.topology import Topology
from dally.policies.placing import place_within, pools_for
from dally.policies.shaped import place_shaped

Fit = Literal["first", "fewest", "best"]


class Tiers:
    """What a gang can get at each tier now, and what it could ever get of the machines that are up."""

    def __init__(self, topology: Topology, fit: Fit) -> None:
        self.topology, self.fit = topology, fit
        self.gpus = topology.gpus
        self.own = topology.machine_level
        self.count = len(topology.levels) - self.own
        self.names = [level.name for level in topology.levels[self.own :]]
        # by machine: its GPU type and, per tier, the domain it is in
        self.kinds = [machine.gpu_type for machine in topology.machines]
        self.domains = [[machine.domains[tier] for machine in topology.machines] for tier in range(self.count)]
        self._layout: int | None = None  # the one of the view that was measured
        self._measure(frozenset())

    def _measure(self, down: Set[int]) -> None:
        """The most GPUs of one type in one domain, per tier."""
        self._down = down
        self._smallest: dict[Demand, int] = {}
        self._largest: dict[str, list[int]] = {kind: [0] * self.count for kind in self.topology.gpu_types}
        for tier in range(self.count):
            for domain in self.topology.domains[self.own + tier]:
                inside = dict.fromkeys(self._largest, 0)
                for index in domain.machines:
                    machine = self.topology.machines[index]
                    inside[machine.gpu_type] += machine.gpus if index not in down else 0
                for kind, gpus in inside.items():
                    self._largest[kind][tier] = max(self._largest[kind][tier], gpus)

    def follow(self, view: View) -> None:
        """A gang that only a failed machine could hold must not wait for that machine."""
        if self._layout != view.layout:
            self._layout = view.layout
            self._measure(view.down)

    def smallest(self, demand: Demand) -> int:
        """The innermost tier with a domain large enough for the gang: what it may wait for."""
        found = self._smallest.get(demand)
        if found is None:
            kinds = [kind for kind in self._largest if demand.gpu_type in (None, kind)]  # none: it can never run here
            large = (tier for tier in range(self.count - 1)
                     if any(self._largest[kind][tier] >= demand.gpus for kind in kinds) and (
                         demand.where is None or not demand.shaped
                         or fits_empty(self.topology, demand, without=self._down, level=self.own + tier)))  # fmt: skip
            found = self._smallest[demand] = next(large, self.count - 1)
        return found

    def wanted(self, demand: Demand) -> int:
        """The innermost tier the gang waits for: the one it prefers, where it is large enough for it."""
        if demand.where is None or demand.prefers is None:
            return self.smallest(demand)
        level = self.topology.level_index(demand.prefers)
        if demand.within is not None:
            level = min(level, self.topology.level_index(demand.within))
        return max(self.smallest(demand), level - self.own)

    def nearest(self, free: FreeGpus, demand: Demand) -> int | None:
        """The innermost tier at which so many GPUs are free in one domain."""
        if demand.where is not None and demand.shaped:
            return next((tier for tier in range(self.count) if self.place(free, demand, tier) is not None), None)
        if demand.where is None and len(free.pools) == 1:  # as a rule: nothing to choose
            for pool in free.pools.values():
                return self._nearest_in(pool, demand)
        pools = pools_for(free, demand)
        if not pools:
            return None
        for level in range(self.own, self.own + self.count):
            for pool in pools:
                if pool.domains_with(level, demand.gpus):
                    return level - self.own
        return None

    def _nearest_in(self, pool: Pool, demand: Demand) -> int | None:
        gpus = demand.gpus
        if pool.total < gpus or (demand.gpu_type is not None and demand.gpu_type != pool.gpu_type):
            return None
        for tier in range(self.count - 1):
            if pool.domains_with(self.own + tier, gpus):
                return tier
        return self.count - 1

    def of(self, placement: Placement) -> int:
        return max(0, level_of(placement, self.topology) - self.own)

    def nearer(self, one: Placement, other: Placement) -> bool:
        """Whether a placement is of a nearer tier than another, or of the same on fewer machines."""
        return (self.of(one), len(one.slices)) < (self.of(other), len(other.slices))

    def could_be_nearer(self, gpus: int, held: Placement) -> bool:
        """Whether some placement of a gang would be nearer than this one, were everything free."""
        if len(held.slices) == 1:
            return False
        largest = self._largest[self.topology.machines[held.slices[0][0]].gpu_type]
        if len(held.slices) > -(-gpus // max(1, largest[0])):
            return True
        return any(largest[tier] >= gpus for tier in range(self.of(held)))

    def machines_for(self, gpus: int, kind: str) -> int:
        """The fewest machines that hold a gang, were everything free."""
        return -(-gpus // max(1, self._largest[kind][0]))

    def machines_at_least(self, free: FreeGpus, demand: Demand) -> int:
        """The fewest machines with so many of the free GPUs of its type, wherever they are."""
        assert demand.gpu_type is not None
        sets = free.pools[demand.gpu_type].at_least_on(self.own)
        machines, left, before = 0, demand.gpus, 0  # before: how many have more free
        for count in range(len(sets) - 1, 0, -1):
            if not sets[count]:
                continue
            found = sets[count].bit_count()
            if (found - before) * count >= left:
                return machines + -(-left // count)
            machines, left, before = found, left - (found - before) * count, found
        return machines + left  # there are not so many

    def scattered(self, placement: Placement) -> bool:
        """Whether a gang that no machine holds has more machines than it needs."""
        count = len(placement.slices)
        if count < 3:  # two machines are as few as it can have
            return False
        fewest = self.machines_for(placement.gpus, self.topology.machines[placement.slices[0][0]].gpu_type)
        return 1 < fewest < count

    def most_free(self, free: FreeGpus, demand: Demand, tier: int) -> int:
        """Free GPUs in the emptiest domain of a tier."""
        kinds = (demand.gpu_type,) if demand.gpu_type is not None else tuple(free.pools)
        if tier == self.count - 1:
            return max(free.pools[kind].total for kind in kinds)
        return max(max(free.pools[kind].counts[self.own + tier]) for kind in kinds)

    def place(self, free: FreeGpus, demand: Demand, tier: int) -> Placement | None:
        """The gang inside one domain of a tier, after the rule of `fit`, and of the level it must be inside of."""
        level = self.own + tier
        if demand.where is not None and demand.shaped:
            return place_shaped(free, demand, tight=self.fit == "best", level=level)
        if demand.where is not None and demand.within is not None:
            level = min(level, self.topology.level_index(demand.within))
        for pool in pools_for(free, demand):
            if pool.domains_with(level, demand.gpus):
                if self.fit == "first" and level > self.own:
                    return self._first_fit(free, pool, demand.gpus, level)
                return place_within(free, pool, demand.gpus, level, tight=self.fit == "best")
        return None

    def _first_fit(self, free: FreeGpus, pool: Pool, gpus: int, level: int) -> Placement:
        """The first domain with room, and in it the emptiest machines, the last of them as tight as can be."""
        fitting = pool.domains_with(level, gpus)
        domain = self.topology.domains[level][(fitting & -fitting).bit_length() - 1]
        some = pool.domains_with(self.own, 1) >> domain.start & (1 << domain.stop - domain.start) - 1
        offers = [(gpus_in(free.masks[domain.start + i]), domain.start + i) for i in bits(some)]
        offers.sort(key=lambda offer: (-offer[0], offer[1]))
        slices: list[Slice] = []
        left = gpus
        for count, machine in offers:
            if count >= left:
                count, machine = min(offer for offer in offers[len(slices) :] if offer[0] >= left)
                slices.append((machine, lowest_gpus(free.masks[machine], left)))
                break
            slices.append((machine, free.masks[machine]))
            left -= count
        return Placement.of(slices)
