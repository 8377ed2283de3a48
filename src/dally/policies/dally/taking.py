"""Whose GPUs are taken so that a gang fits into one domain of a level: in the domain where fewest are lost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool

if TYPE_CHECKING:
    from dally.policies.dally.dealing import Losers

# less its seconds left and its number, which put the hindmost first; which of its slices, the job, its GPUs there
Holder = tuple[float, int, int, ActiveJob, int]


class _Domain:
    """What taking the hindmost jobs of a domain comes to, as far as they have been looked at."""

    __slots__ = ("chosen", "lost", "need", "seen")

    def __init__(self, seen: int, need: int) -> None:
        self.seen, self.need = seen, need
        self.lost = 0  # GPUs of those chosen, here or elsewhere
        self.chosen: list[ActiveJob] = []


class Best:
    """The choice so far: the fewest GPUs lost; where equal, in the domain whose hindmost job comes first."""

    __slots__ = ("chosen", "lost", "seen")

    def __init__(self) -> None:
        self.chosen: list[ActiveJob] | None = None
        self.lost = 0
        self.seen = 0


def fewest_lost_of(best: Best, free: FreeGpus, gpus: int, kind: str, level: int, holders: Mapping[int, list[Holder]],
                   losers: Losers) -> None:  # fmt: skip
    """The same of jobs that are known by domain: all that could lose GPUs there, the hindmost first."""
    pool = free.pools[kind]
    top = level == len(free.topology.levels) - 1
    first: tuple[float, int, int] | None = None  # the hindmost job of the best domain
    for index, there in holders.items():
        need = gpus - (pool.total if top else pool.counts[level][index])
        lost, seen = 0, False
        hindmost = (0.0, 0, 0)
        chosen: list[ActiveJob] = []
        limit = sys.maxsize if best.chosen is None else best.lost
        for minus, number, at, victim, held in there:
            if chosen and chosen[-1] is victim:  # objects
                need -= held
            elif losers.may_lose(victim, -minus):
                if not seen:
                    seen, hindmost = True, (minus, number, at)
                if need > 0:
                    chosen.append(victim)
                    lost += victim.gpus
                need -= held
            if lost > limit or (seen and need <= 0):
                break
        if not seen or need > 0 or lost > limit:
            continue
        if best.chosen is None or lost < best.lost or (lost == best.lost and first is not None and hindmost < first):
            best.chosen, best.lost, first = chosen, lost, hindmost


def fewest_lost(best: Best, free: FreeGpus, held: FreeGpus, gpus: int, kind: str, level: int,
                victims: Iterable[ActiveJob]) -> None:  # fmt: skip
    """Of the victims, the hindmost first, those of one domain whose GPUs with what is free there are enough; `held` has
    the GPUs of all of them, and may have more. Nobody is looked at once no domain can be better than the best."""
    pool, taken = free.pools[kind], held.pools[kind]
    own = free.topology.machine_level
    machines = free.topology.machines
    top = level == len(free.topology.levels) - 1
    limit = best.lost if best.chosen is not None else None
    able = unseen = 1 if top else _could_be_better(pool, taken, gpus, level, limit)
    if not able:
        return
    best.seen = -1  # of another GPU type: who comes to as much is not better
    domains: dict[int, _Domain] = {}
    matter: dict[int, _Domain] = {}  # of these, the ones that are not full and could be better
    for victim in victims:
        assert victim.placement is not None
        touched: list[int] = []
        for machine, mask in victim.placement.slices:
            at = machines[machine]
            if at.gpu_type != kind:
                continue
            index = at.domains[level - own]
            domain = domains.get(index)
            if domain is None:
                have = pool.total if top else pool.counts[level][index]
                domain = domains[index] = _Domain(len(domains), gpus - have)
                if able >> index & 1:
                    matter[index] = domain
                    unseen &= ~(1 << index)
            if index not in matter:
                continue
            if not touched or touched[-1] != index:
                touched.append(index)
                if domain.need > 0:
                    domain.chosen.append(victim)
                    domain.lost += victim.gpus
            domain.need -= mask.bit_count()
        better = False
        for index in touched:
            domain = matter[index]
            beats = _beats(best, domain)
            if domain.need <= 0 or not beats:
                del matter[index]
            if domain.need <= 0 and beats:
                best.chosen, best.lost, best.seen = domain.chosen, domain.lost, domain.seen
                better = True
        if better:
            matter = {index: each for index, each in matter.items() if _beats(best, each)}
            if unseen:
                unseen &= _could_be_better(pool, taken, gpus, level, best.lost)
        if not matter and not unseen:
            return


def _beats(best: Best, domain: _Domain) -> bool:
    """Whether a domain is better than the best, or, where it is not full yet, could be."""
    if best.chosen is None:
        return True
    lost = domain.lost + max(0, domain.need)
    return lost < best.lost or (lost == best.lost and domain.seen < best.seen)


def _could_be_better(pool: Pool, taken: Pool, gpus: int, level: int, lost: int | None) -> int:
    """Bit set of the domains of a level that hold so many GPUs, free or to be taken, and where fewer than `lost` must
    be taken."""
    free_sets, taken_sets = pool.at_least[level], taken.at_least[level]
    found = 0
    for have in range(0 if lost is None else max(0, gpus - lost + 1), min(gpus, len(free_sets))):
        roomy = free_sets[have]
        if not roomy:
            break
        if gpus - have < len(taken_sets):
            found |= roomy & taken_sets[gpus - have]
    return found
