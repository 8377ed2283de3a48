"""When domains of a tier come to have room for a gang, by the ends expected of running jobs: as far as somebody looks.

All is as it was when the first opening was asked for: the free GPUs, and who is about to lose its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dally.core.free import FreeGpus
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.policy import View
from dally.policies.dally.tiers import Tiers

End = tuple[float, int, str]  # the end expected of a job, its number, its id


class Openings:
    """Of one demand and tier. `times`: the soonest first; `seen`: the last moment that was looked at."""

    def __init__(self, ends: Iterator[End], gone: frozenset[str], view: View) -> None:
        self._ends, self._gone, self._view = ends, gone, view
        self.times: list[float] = []
        self.seen = -math.inf

    def open_now(self, now: float, count: int) -> None:
        if count:
            self.seen = now
            self.times = [now] * count

    def look(self) -> bool:
        """As far as the next job that ends; False where there is none."""
        gone, view = self._gone, self._view
        for end, _, job_id in self._ends:
            if not gone or job_id not in gone:
                placement = view.job(job_id).placement
                if placement is not None:
                    self.seen = end
                    self._give(placement)
                    return True
        return False

    def first(self) -> float | None:
        while not self.times:
            if not self.look():
                return None
        return self.times[0]

    def _give(self, placement: Placement) -> None:
        """Who ends leaves these GPUs."""
        raise NotImplementedError


class OpeningsByCount(Openings):
    """Of a gang that one machine holds, or any domain with so many GPUs."""

    def __init__(self, ends: Iterator[End], gone: frozenset[str], view: View, now: float,
                 free: FreeGpus, tiers: Tiers, demand: Demand, tier: int) -> None:  # fmt: skip
        super().__init__(ends, gone, view)
        self._gpus, self._kinds, self._domains = demand.gpus, tiers.kinds, tiers.domains[tier]
        self._free: dict[str, list[int]] = {}
        top, level, count = tier == tiers.count - 1, tiers.own + tier, 0
        for kind, pool in free.pools.items():
            if demand.gpu_type is None or demand.gpu_type == kind:
                self._free[kind] = [pool.total] if top else list(pool.counts[level])
                count += pool.domains_with(level, demand.gpus).bit_count()
        self.open_now(now, count)

    def _give(self, placement: Placement) -> None:
        for index, mask in placement.slices:
            counts = self._free.get(self._kinds[index])
            if counts is not None:
                domain = self._domains[index]
                before = counts[domain]
                counts[domain] = after = before + gpus_in(mask)
                if before < self._gpus <= after:
                    self.times.append(self.seen)


class OpeningsByShape(Openings):
    """Of a gang that no machine holds: when a domain has as few machines for it as can be, each with an even share
    free. So many GPUs here and there in the domain are another thing: every machine more is a slower step."""

    def __init__(self, ends: Iterator[End], gone: frozenset[str], view: View, now: float,
                 free: FreeGpus, down: frozenset[int], tiers: Tiers, gpus: int, tier: int,
                 kinds: Sequence[str]) -> None:  # fmt: skip
        super().__init__(ends, gone, view)
        self._gpus, self._kinds, self._domains = gpus, tiers.kinds, tiers.domains[tier]
        self._masks = list(free.masks)
        self._free: dict[int, int] = {}  # by machine, once somebody has left it
        self._least = {kind: tiers.machines_for(gpus, kind) for kind in kinds}
        self._fit: dict[str, dict[int, int]] = {kind: {} for kind in kinds}  # machines of a domain with a share free
        up, count = ~sum(1 << machine for machine in down), 0
        for kind, least in self._least.items():
            share = free.pools[kind].domains_with(tiers.own, -(-gpus // least)) & up
            for domain in tiers.topology.domains[tiers.own + tier] if share else ():
                inside = (share >> domain.start & (1 << domain.stop - domain.start) - 1).bit_count()
                self._fit[kind][domain.index] = inside
                count += inside // least
        self.open_now(now, count)

    def _give(self, placement: Placement) -> None:
        gpus = self._gpus
        for index, mask in placement.slices:
            seen = self._free.get(index)
            before = gpus_in(self._masks[index]) if seen is None else seen
            self._free[index] = after = before + gpus_in(mask)
            kind = self._kinds[index]
            needs = self._least.get(kind)
            if needs is not None and before * needs < gpus <= after * needs:
                fit, domain = self._fit[kind], self._domains[index]
                inside = fit[domain] = fit.get(domain, 0) + 1
                if inside % needs == 0:
                    self.times.append(self.seen)


class OpeningsAmong(Openings):
    """Of a gang that may be on some machines only: a bit set of them."""

    def __init__(self, ends: Iterator[End], gone: frozenset[str], view: View, now: float,
                 free: FreeGpus, tiers: Tiers, demand: Demand, tier: int, allowed: int) -> None:  # fmt: skip
        super().__init__(ends, gone, view)
        self._gpus, self._kind, self._allowed = demand.gpus, demand.gpu_type, allowed
        self._kinds, self._domains = tiers.kinds, tiers.domains[tier]
        self._free: dict[tuple[str, int], int] = {}
        for index, kind in enumerate(tiers.kinds):
            if self._may_be_on(index):
                key = (kind, self._domains[index])
                self._free[key] = self._free.get(key, 0) + gpus_in(free.masks[index])
        self.open_now(now, sum(1 for count in self._free.values() if count >= self._gpus))

    def _may_be_on(self, index: int) -> bool:
        return bool(self._allowed >> index & 1) and (self._kind is None or self._kind == self._kinds[index])

    def _give(self, placement: Placement) -> None:
        for index, mask in placement.slices:
            if self._may_be_on(index):
                key = (self._kinds[index], self._domains[index])
                before = self._free[key]
                self._free[key] = after = before + gpus_in(mask)
                if before < self._gpus <= after:
                    self.times.append(self.seen)
