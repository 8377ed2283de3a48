"""Placing a gang that says on how many machines it must be, with as many GPUs on each, or on which (`core.shape`).

Every policy that places such a gang comes here, whatever its own rule is for the others: a shape leaves little to
choose. Of machines that will do, the first are taken, or (`tight`) those with the fewest GPUs free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool, bits, lowest_gpus
from dally.core.placement import Placement, Slice
from dally.core.plan import Demand


def place_shaped(free: FreeGpus, demand: Demand, *, tight: bool, level: int | None = None) -> Placement | None:
    """In the innermost domain that has such machines now; `level`: inside one domain of this level, or of the one it
    must be inside of where that is further in. None where there are none."""
    for pool in sorted(_of_type(free, demand), key=lambda pool: -pool.total):
        found = _in_pool(free, pool, demand, tight, level)
        if found is not None:
            return found
    return None


def shaped_pools(free: FreeGpus, demand: Demand) -> list[Pool]:
    """The pools that have such machines now, the one with most free GPUs first."""
    found = [pool for pool in _of_type(free, demand) if _in_pool(free, pool, demand, False, _widest(free, demand))]
    return sorted(found, key=lambda pool: -pool.total)


def room_by_trying(free: FreeGpus, demand: Demand, behind: Iterable[ActiveJob]) -> list[ActiveJob] | None:
    """Of the jobs `behind`, the hindmost first, those whose GPUs make room for it; who is not needed is spared, the
    foremost first. None where all of them are not enough. Nothing stays changed."""
    allowed = -1 if demand.among is None else free.topology.among(demand.among)
    taken: list[tuple[ActiveJob, Placement]] = []
    widest = _widest(free, demand)

    def fits() -> bool:
        return place_shaped(free, demand, tight=False, level=widest) is not None

    enough = False
    for job in behind:
        held = job.placement
        assert held is not None
        kind = free.topology.machines[held.slices[0][0]].gpu_type
        if demand.gpu_type not in (None, kind) or not any(allowed >> machine & 1 for machine, _ in held.slices):
            continue
        free.give(held)
        taken.append((job, held))
        if fits():
            enough = True
            break
    victims = []
    for job, held in reversed(taken):
        free.take(held)
        if enough and not fits():
            free.give(held)
            victims.append((job, held))
    for _, held in victims:
        free.take(held)
    return [job for job, _ in victims] if enough else None


def pick(free: FreeGpus, machine: int, mask: int, gpus: int) -> int:
    """GPUs inside a machine: within the tightest island that holds them all, else the lowest."""
    islands = free.topology.machines[machine].islands
    if len(islands) > 1 and mask.bit_count() > gpus:
        fitting = [mask & island for island in islands if (mask & island).bit_count() >= gpus]
        if fitting:
            return lowest_gpus(min(fitting, key=int.bit_count), gpus)
        ordered = sorted((mask & island for island in islands), key=int.bit_count, reverse=True)
        taken = 0
        for part in ordered:
            need = gpus - taken.bit_count()
            taken |= lowest_gpus(part, min(need, part.bit_count()))
        return taken
    return lowest_gpus(mask, gpus)


def _of_type(free: FreeGpus, demand: Demand) -> list[Pool]:
    return [pool for kind, pool in free.pools.items() if demand.gpu_type in (None, kind) and pool.total >= demand.gpus]


def _widest(free: FreeGpus, demand: Demand) -> int:
    topology = free.topology
    return len(topology.levels) - 1 if demand.within is None else topology.level_index(demand.within)


def _in_pool(free: FreeGpus, pool: Pool, demand: Demand, tight: bool, level: int | None) -> Placement | None:
    topology = free.topology
    own, widest = topology.machine_level, _widest(free, demand)
    allowed = -1 if demand.among is None else topology.among(demand.among)
    if widest < own or (level is not None and level < own):
        return _in_island(free, pool, demand, min(widest, level if level is not None else widest), allowed, tight)
    nodes = demand.nodes
    some = pool.domains_with(own, 1 if nodes is None else demand.gpus // nodes) & allowed
    if some.bit_count() < (nodes or 1):
        return None
    levels = range(own, widest + 1) if level is None else (min(level, widest),)
    if nodes == 1:
        levels = (own,)  # it is nowhere nearer
    for each in levels:
        chosen = _machines(free, pool, demand, some, each, tight)
        if chosen is not None:
            return Placement.of((machine, pick(free, machine, free.masks[machine], gpus)) for machine, gpus in chosen)
    return None


def _machines(free: FreeGpus, pool: Pool, demand: Demand, some: int, level: int, tight: bool) -> list[Slice] | None:
    """(machine, GPUs) of one domain of a level: of the first that has enough, or of the one with the fewest."""
    gpus, nodes, own = demand.gpus, demand.nodes, free.topology.machine_level
    if nodes is not None:
        if level == own and nodes > 1:
            return None
        each = gpus // nodes
        inside = [there for there in _windows(free, level, some, whole=nodes == 1) if there.bit_count() >= nodes]
        if not inside:
            return None
        there = min(inside, key=int.bit_count) if tight else inside[0]
        return [(machine, each) for machine in _ordered(free, there, tight)[:nodes]]
    if level == own:
        roomy = pool.domains_with(own, gpus) & some
        return [(_ordered(free, roomy, tight)[0], gpus)] if roomy else None
    best: tuple[int, list[Slice]] | None = None
    for there in _windows(free, level, some):
        counts = {machine: free.masks[machine].bit_count() for machine in bits(there)}
        if sum(counts.values()) >= gpus:
            found = _fewest(counts, gpus)
            if best is None or len(found) < best[0]:
                best = len(found), found
    return None if best is None else best[1]


def _windows(free: FreeGpus, level: int, some: int, *, whole: bool = False) -> Iterator[int]:
    """Of some machines, those of each domain of a level, where there are any."""
    if whole or level == len(free.topology.levels) - 1:
        yield some
        return
    for domain in free.topology.domains[level]:
        there = some >> domain.start & ((1 << domain.stop - domain.start) - 1)
        if there:
            yield there << domain.start


def _ordered(free: FreeGpus, machines: int, tight: bool) -> list[int]:
    found = list(bits(machines))
    return sorted(found, key=lambda machine: free.masks[machine].bit_count()) if tight else found


def _fewest(counts: dict[int, int], gpus: int) -> list[Slice]:
    """The emptiest machines whole, the last one as tight as can be."""
    chosen: list[Slice] = []
    left = gpus
    for machine in sorted(counts, key=lambda machine: -counts[machine]):
        if counts[machine] >= left:
            others = [m for m in counts if counts[m] >= left and all(m != used for used, _ in chosen)]
            chosen.append((min(others, key=lambda m: counts[m]), left))
            break
        chosen.append((machine, counts[machine]))
        left -= counts[machine]
    return chosen


def _in_island(free: FreeGpus, pool: Pool, demand: Demand, level: int, allowed: int, tight: bool) -> Placement | None:
    if demand.nodes not in (None, 1):
        return None
    domains = free.topology.domains[level]
    found = [index for index in bits(pool.domains_with(level, demand.gpus)) if allowed >> domains[index].start & 1]
    if not found:
        return None
    domain = domains[min(found, key=lambda index: pool.counts[level][index]) if tight else found[0]]
    inside = free.masks[domain.start] & domain.mask
    return Placement(((domain.start, lowest_gpus(inside, demand.gpus)),), demand.gpus)
