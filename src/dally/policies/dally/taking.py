"""Whose GPUs are taken so that a gang fits into one domain of a level: in the domain where fewest are lost."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool
from dally.core.placement import gpus_in


class Domain:
    """What taking the hindmost jobs of a domain comes to, as far as they have been looked at."""

    __slots__ = ("chosen", "index", "lost", "need", "seen")

    def __init__(self, index: int, seen: int, need: int) -> None:
        self.index, self.seen, self.need = index, seen, need
        self.lost = 0  # GPUs of those chosen, here or elsewhere
        self.chosen: list[ActiveJob] = []


class Live:
    """Domains of a tier where it matters who is next: nobody there was looked at yet (`unseen`, a bit set), or those
    who were are not enough."""

    __slots__ = ("looked", "tier", "unseen")

    def __init__(self, tier: int, unseen: int) -> None:
        self.tier, self.unseen = tier, unseen
        self.looked: dict[int, Domain] = {}

    def has(self, index: int) -> bool:
        return index in self.looked or bool(self.unseen >> index & 1)


class Victims:
    """Running jobs that may lose their GPUs, the hindmost first."""

    def next(self) -> ActiveJob | None:
        raise NotImplementedError

    def only(self, live: Live) -> None:
        """From now on those with GPUs in these domains will do, as they become fewer; others may still come."""

    def with_fewer(self, gpus: int) -> int:
        """Bit set of machines where one of fewer GPUs than that may be among them."""
        return -1


class Best:
    """The choice so far: the fewest GPUs lost; where equal, in the domain whose hindmost job comes first."""

    __slots__ = ("chosen", "lost", "seen")

    def __init__(self) -> None:
        self.chosen: list[ActiveJob] | None = None
        self.lost = 0
        self.seen = 0

    def after(self, domain: Domain) -> bool:
        """Whether a domain is better, or, where it is not full yet, could be."""
        if self.chosen is None:
            return True
        lost = domain.lost + max(0, domain.need)
        return lost < self.lost or (lost == self.lost and domain.seen < self.seen)


def fewest_lost(best: Best, free: FreeGpus, gpus: int, kind: str, level: int, able: int, victims: Victims) -> None:
    """Of the victims, those of one domain whose GPUs with what is free there are enough; `able`: a bit set of those
    where all of them would be. Nobody is looked at once no domain can be better than the best, nor, once there is one,
    where none can."""
    machines, tier = free.topology.machines, level - free.topology.machine_level
    pool, top = free.pools[kind], level == len(free.topology.levels) - 1
    live = Live(tier, _fewer(pool, able, gpus, level, best))
    best.seen = -1  # of another GPU type: who comes to as much is not better
    looked = live.looked  # without those that are full or can be no better
    seen = 0
    while live.unseen or looked:
        victim = victims.next()
        if victim is None or victim.placement is None:
            return
        touched: list[Domain] = []
        for machine, mask in victim.placement.slices:
            at = machines[machine]
            index = at.domains[tier]
            if at.gpu_type != kind:
                continue
            domain = looked.get(index)
            if domain is None:
                if not live.unseen >> index & 1:
                    continue
                live.unseen ^= 1 << index
                domain = looked[index] = Domain(index, seen, gpus - (pool.total if top else pool.counts[level][index]))
                seen += 1
            if not touched or touched[-1] is not domain:  # objects
                touched.append(domain)
                if domain.need > 0:
                    domain.chosen.append(victim)
                    domain.lost += victim.gpus
            domain.need -= gpus_in(mask)
        better = False
        for domain in touched:
            could = best.after(domain)
            if domain.need <= 0 or not could:
                del looked[domain.index]
            if domain.need <= 0 and could:
                best.chosen, best.lost, best.seen = domain.chosen, domain.lost, domain.seen
                better = True
        if better:
            for domain in [domain for domain in looked.values() if not best.after(domain)]:
                del looked[domain.index]
            live.unseen = _fewer(pool, live.unseen, gpus, level, best)
            if not tier:  # where all have as many GPUs as the best loses, one is already too many
                live.unseen &= victims.with_fewer(best.lost)
            victims.only(live)


def free_by_domain(free: FreeGpus, kind: str, level: int) -> list[int]:
    """Free GPUs by domain of a level, to add to."""
    pool = free.pools[kind]
    return [pool.total] if level == len(free.topology.levels) - 1 else list(pool.counts[level])


def able_to_open(pool: Pool, taken: Pool, gpus: int, level: int) -> int:
    """Bit set of the domains of a level that hold so many GPUs, free or to be taken."""
    if level == len(pool.at_least) - 1:
        return 1
    free_sets, taken_sets = pool.at_least[level], taken.at_least[level]
    found = 0
    for have in range(min(gpus, len(free_sets))):
        roomy = free_sets[have]
        if not roomy:
            break
        if gpus - have < len(taken_sets):
            found |= roomy & taken_sets[gpus - have]
    return found


def _fewer(pool: Pool, domains: int, gpus: int, level: int, best: Best) -> int:
    """Of a bit set of domains, those where fewer GPUs must be taken than the best loses."""
    if best.chosen is None:
        return domains
    return domains & pool.domains_with(level, max(0, gpus - best.lost + 1))
