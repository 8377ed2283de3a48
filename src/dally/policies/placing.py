"""Placement rules any policy can use: where a gang goes once it is decided that it runs.

None of them waits for a better place: they answer None only when fewer GPUs of one type are free than the gang
needs. A gang never mixes GPU types. One that says on how many or on which machines it must be is placed by
`policies.shaped`, whatever the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

from dally.core.free import FreeGpus, Pool, bits, lowest_gpus
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.policies.shaped import pick, place_shaped, shaped_pools

RuleName = Literal["any", "consolidated", "spread", "best-fit"]
Rule = Callable[[FreeGpus, Demand], Placement | None]


def pools_for(free: FreeGpus, demand: Demand) -> list[Pool]:
    """The pools a demand could be met from now, the one with most free GPUs first."""
    if demand.where is not None and demand.bound:
        if demand.within is None or demand.shaped:
            return shaped_pools(free, demand)
        level = free.topology.level_index(demand.within)
        inside = [pool for kind, pool in free.pools.items()
                  if demand.gpu_type in (None, kind) and pool.domains_with(level, demand.gpus)]  # fmt: skip
        return sorted(inside, key=lambda pool: -pool.total)
    if demand.gpu_type is not None:
        pool = free.pools.get(demand.gpu_type)
        return [pool] if pool is not None and pool.total >= demand.gpus else []
    fitting = [pool for pool in free.pools.values() if pool.total >= demand.gpus]
    if len(fitting) > 1:
        fitting.sort(key=lambda pool: -pool.total)
    return fitting


def roomiest(free: FreeGpus, demand: Demand) -> Pool | None:
    """The first of them."""
    if demand.where is not None and demand.bound:
        pools = pools_for(free, demand)
        return pools[0] if pools else None
    gpus, kind = demand.gpus, demand.gpu_type
    if kind is not None:
        only = free.pools.get(kind)
        return only if only is not None and only.total >= gpus else None
    best: Pool | None = None
    for pool in free.pools.values():
        if pool.total >= gpus and (best is None or pool.total > best.total):
            best = pool
    return best


def place_any(free: FreeGpus, demand: Demand) -> Placement | None:
    """Pure counting: the first free GPUs there are."""
    if demand.where is not None and demand.shaped:
        return place_shaped(free, demand, tight=False)
    for pool in pools_for(free, demand):
        some = pool.domains_with(free.topology.machine_level, 1)
        if demand.where is not None and demand.within is not None:
            window = _window(free, pool, demand)
            if window is None:
                return _innermost(free, pool, demand.gpus, tight=False)
            some &= window
        return _fill(free, demand.gpus, bits(some))
    return None


def place_consolidated(free: FreeGpus, demand: Demand) -> Placement | None:
    """The innermost domain that holds the gang, and the fewest machines in it; first fit among equals."""
    if demand.where is not None and demand.shaped:
        return place_shaped(free, demand, tight=False)
    pool = roomiest(free, demand)
    return None if pool is None else _innermost(free, pool, demand.gpus, tight=False)


def place_best_fit(free: FreeGpus, demand: Demand) -> Placement | None:
    """As consolidated, but in the fullest domain that still holds the gang, so that whole ones stay open."""
    if demand.where is not None and demand.shaped:
        return place_shaped(free, demand, tight=True)
    pool = roomiest(free, demand)
    return None if pool is None else _innermost(free, pool, demand.gpus, tight=True)


def place_spread(free: FreeGpus, demand: Demand) -> Placement | None:
    """Over as many machines as possible, the emptiest first."""
    if demand.where is not None and demand.shaped:
        return place_shaped(free, demand, tight=False)
    for pool in pools_for(free, demand):
        level = free.topology.machine_level
        some = pool.domains_with(level, 1)
        if demand.where is not None and demand.within is not None:
            window = _window(free, pool, demand)
            if window is None:
                return _innermost(free, pool, demand.gpus, tight=False)
            some &= window
        counts = {m: gpus_in(free.masks[m]) for m in bits(some)}
        machines = sorted(counts, key=lambda m: -counts[m])[: demand.gpus]
        share = dict.fromkeys(machines, 0)
        left = demand.gpus
        while left:
            for machine in machines:
                if left and share[machine] < counts[machine]:
                    share[machine] += 1
                    left -= 1
        return Placement.of((m, lowest_gpus(free.masks[m], count)) for m, count in share.items())
    return None


def _window(free: FreeGpus, pool: Pool, demand: Demand) -> int | None:
    """The machines of the first domain that holds a gang which must be inside one, as a bit set; None where a domain
    is a machine or less, so that there is nothing to choose."""
    topology = free.topology
    assert demand.within is not None
    level = topology.level_index(demand.within)
    if level <= topology.machine_level:
        return None
    fitting = pool.domains_with(level, demand.gpus)
    domain = topology.domains[level][(fitting & -fitting).bit_length() - 1]
    return ((1 << (domain.stop - domain.start)) - 1) << domain.start


RULES: Final[dict[str, Rule]] = {
    "any": place_any, "consolidated": place_consolidated, "spread": place_spread, "best-fit": place_best_fit,
}  # fmt: skip


def place_within(free: FreeGpus, pool: Pool, gpus: int, level: int, *, tight: bool) -> Placement | None:
    """A gang inside one domain of the given level, on the fewest machines; None where no domain has room."""
    topology = free.topology
    fitting = pool.domains_with(level, gpus)
    if not fitting:
        return None
    if level <= topology.machine_level:
        chosen = _tightest(pool, level, gpus, fitting) if tight else (fitting & -fitting).bit_length() - 1
        domain = topology.domains[level][chosen]
        inside = free.masks[domain.start] & domain.mask
        return Placement(((domain.start, pick(free, domain.start, inside, gpus)),), gpus)
    best: list[tuple[int, int]] | None = None
    fewest, fullest = 0, 0  # machines of the best, and free GPUs of its domain
    least = -(-gpus // pool.largest_on(topology.machine_level))  # machines that it takes, were all empty
    counts = pool.counts[level]  # at the top there is only one
    while fitting:
        low = fitting & -fitting
        fitting ^= low
        index = low.bit_length() - 1
        full = counts[index] if tight else 0
        if best is not None and fewest == least and fullest <= full:
            continue  # no better
        domain = topology.domains[level][index]
        machines = _fewest(pool, topology.machine_level, gpus, domain.start, domain.stop)
        if best is None or len(machines) < fewest or (len(machines) == fewest and full < fullest):
            best, fewest, fullest = machines, len(machines), full
    assert best is not None
    return Placement.of((m, pick(free, m, free.masks[m], count)) for m, count in best)


def place_tight(free: FreeGpus, pool: Pool, gpus: int) -> Placement | None:
    """As best fit, in this pool."""
    return _innermost(free, pool, gpus, tight=True)


def _innermost(free: FreeGpus, pool: Pool, gpus: int, *, tight: bool) -> Placement | None:
    for level in range(len(free.topology.levels)):
        found = place_within(free, pool, gpus, level, tight=tight)
        if found is not None:
            return found
    return None


def _tightest(pool: Pool, level: int, gpus: int, fitting: int) -> int:
    """First domain among those with the fewest free GPUs that are enough."""
    sets = pool.at_least_on(level)
    for count in range(gpus, len(sets)):
        exactly = sets[count] & ~(sets[count + 1] if count + 1 < len(sets) else 0)
        if exactly:
            return (exactly & -exactly).bit_length() - 1
    return (fitting & -fitting).bit_length() - 1


def _fewest(pool: Pool, level: int, gpus: int, start: int, stop: int) -> list[tuple[int, int]]:
    """(machine, GPUs) with the fewest machines of a range: the emptiest whole, the last one as tight as can be."""
    sets = pool.at_least_on(level)
    window = ((1 << (stop - start)) - 1) << start
    chosen: list[tuple[int, int]] = []
    left = gpus
    count = len(sets) - 1
    while True:
        if left < len(sets) and sets[left] & window:
            tight = left
            while tight + 1 < len(sets) and not sets[tight] & ~sets[tight + 1] & window:
                tight += 1
            last = sets[tight] & window & ~(sets[tight + 1] if tight + 1 < len(sets) else 0)
            chosen.append(((last & -last).bit_length() - 1, left))
            return chosen
        while not sets[count] & window:
            count -= 1
        emptiest = sets[count] & window
        machine = (emptiest & -emptiest).bit_length() - 1
        chosen.append((machine, count))
        left -= count
        window &= ~(1 << machine)


def _fill(free: FreeGpus, gpus: int, machines: Iterable[int]) -> Placement:
    slices, left = [], gpus
    for machine in machines:
        mask = free.masks[machine]
        count = min(left, gpus_in(mask))
        slices.append((machine, lowest_gpus(mask, count)))
        left -= count
        if not left:
            break
    return Placement(tuple(slices), gpus)
