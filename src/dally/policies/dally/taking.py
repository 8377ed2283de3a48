"""Whose GPUs are taken so that a gang fits into one domain of a level: in the domain where fewest are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool
from dally.core.placement import gpus_in

if TYPE_CHECKING:
    from dally.policies.dally.behind import Behind
    from dally.policies.dally.bounds import Bound, Here
    from dally.policies.dally.dealing import Losers
    from dally.policies.dally.forecast import Forecast


_PATIENCE: Final = 1  # of the hindmost jobs whose machines are looked at before all that may be better are …
_FEW: Final = 128  # … if they are no more


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


class Best:
    """The choice so far: the fewest GPUs lost; where equal, in the domain whose hindmost job comes first."""

    __slots__ = ("chosen", "first", "lost", "machine", "seen")

    def __init__(self) -> None:
        self.chosen: list[ActiveJob] | None = None
        self.lost = 0
        self.seen = 0
        self.first: Bound | None = None  # the hindmost on the machine it is on
        self.machine = 0

    def after(self, domain: Domain) -> bool:
        """Whether a domain is better, or, where it is not full yet, could be."""
        if self.chosen is None:
            return True
        lost = domain.lost + max(0, domain.need)
        return lost < self.lost or (lost == self.lost and domain.seen < self.seen)

    def beaten_by(self, lost: int, first: Bound, machine: int) -> bool:
        """The same of a machine that so many would be lost on, and its hindmost job."""
        if self.chosen is None or lost != self.lost:
            return self.chosen is None or lost < self.lost
        if self.first is first:  # objects
            return machine < self.machine
        return self.first is not None and first.after(self.first)


class Machines:
    """The same choice among machines: there it is enough to look at the jobs of each."""

    __slots__ = ("_asked", "_behind", "_best", "_everybody", "_forecast", "_least", "_losers")

    def __init__(self, best: Best, behind: Behind, forecast: Forecast, least: float, losers: Losers) -> None:
        self._best, self._behind, self._forecast, self._least = best, behind, forecast, least
        self._losers = losers
        self._asked = self._everybody = False  # whether all of them may lose GPUs, once there is somebody to ask for

    def choose(self, free: FreeGpus, gpus: int, kind: str, able: int) -> None:
        """One of a bit set of machines."""
        pool, level = free.pools[kind], free.topology.machine_level
        self._best.first = None  # of another GPU type: who comes to as much is not better
        if gpus <= pool.largest_on(level):
            if able.bit_count() > _PATIENCE:
                able = self._walk(pool, gpus, level, able)
            self._scan(gpus, pool.at_least_on(level), able)

    def _walk(self, pool: Pool, gpus: int, level: int, able: int) -> int:
        """Where the hindmost are first. Soon none can be better, as a rule; if not, returns the few that may be."""
        best, victims = self._best, self._behind.hindmost(self._forecast, self._least, self._losers)
        live = Live(0, _fewer(pool, able, gpus, level, best))
        patience = _PATIENCE
        while live.unseen and (patience > 0 or live.unseen.bit_count() > _FEW):
            patience -= 1
            victim = victims.next()
            if victim is None or victim.placement is None:
                return 0
            chosen = best.chosen
            for machine, _ in victim.placement.slices:
                if live.unseen >> machine & 1:
                    live.unseen ^= 1 << machine
                    self._look(machine, gpus - pool.counts[level][machine])
            if best.chosen is not chosen:  # objects
                live.unseen = _fewer(pool, live.unseen, gpus, level, best) & self._behind.with_fewer(best.lost)
                victims.only(live)
        return live.unseen

    def _scan(self, gpus: int, sets: list[int], able: int) -> None:
        """Where fewest are missing first, as long as no more are than the best loses."""
        best = self._best
        for need in range(1, gpus + 1):
            if best.chosen is not None and need > best.lost:
                return
            short = able & sets[gpus - need] & ~sets[gpus - need + 1]
            while short:
                machine = short.bit_length() - 1
                short ^= 1 << machine
                self._look(machine, need)

    def _look(self, machine: int, need: int) -> None:
        """Whether the hindmost jobs of a machine are a better choice."""
        best, least, there = self._best, self._least, self._behind.there[machine]
        if best.chosen is not None and self._no_better(there, need):
            return
        gpus = 0
        for here in there:
            if self._behind.left(self._forecast, here.bound) > least:
                gpus += here.gpus
        if gpus < need:
            return
        chosen: list[ActiveJob] = []
        first: Bound | None = None
        lost = 0
        behind = self._hindmost(there, None)
        while behind is not None:
            bound = behind.bound
            if self._may_lose(bound):
                lost += bound.gpus
                if best.chosen is not None and lost > best.lost:
                    return
                if first is None:
                    first = bound
                need -= behind.gpus
                chosen.append(bound.job)
                if need <= 0:
                    if best.beaten_by(lost, first, machine):
                        best.chosen, best.lost, best.first, best.machine = chosen, lost, first, machine
                    return
            behind = self._hindmost(there, bound)

    def _hindmost(self, there: list[Here], before: Bound | None) -> Here | None:
        """Of the jobs of a machine that have enough left; before another one. Few are taken, so none are sorted."""
        found: Here | None = None
        for here in there:
            bound = here.bound
            if (bound.left > self._least and (found is None or bound.after(found.bound))
                    and (before is None or before.after(bound))):  # fmt: skip
                found = here
        return found

    def _no_better(self, there: list[Here], need: int) -> bool:
        """Whether more GPUs would be lost than the best loses, or as many and of a job that comes before its first."""
        best = self._best
        smallest, most = best.lost + 1, 0.0
        for here in there:
            bound = here.bound
            if bound.gpus < smallest:
                smallest = bound.gpus
            most = max(most, bound.alike.weighs * bound.most)
        fewest = max(need, smallest)
        return fewest > best.lost or (fewest == best.lost and (best.first is None or most < best.first.left))

    def _may_lose(self, bound: Bound) -> bool:
        if not self._asked:
            self._asked, self._everybody = True, self._losers.everybody()
        return self._everybody or self._losers.may_lose(bound.job, bound.left)


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
            victims.only(live)


def free_by_domain(free: FreeGpus, kind: str, level: int) -> list[int]:
    """Free GPUs by domain of a level, to add to."""
    pool = free.pools[kind]
    return [pool.total] if level == len(free.topology.levels) - 1 else list(pool.counts[level])


def _fewer(pool: Pool, domains: int, gpus: int, level: int, best: Best) -> int:
    """Of a bit set of domains, those where fewer GPUs must be taken than the best loses."""
    if best.chosen is None:
        return domains
    return domains & pool.domains_with(level, max(0, gpus - best.lost + 1))
