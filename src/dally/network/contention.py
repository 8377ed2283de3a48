"""Jobs that share a NIC or an uplink: each gets what max-min fairness leaves it on every link it crosses.

A link is the port of a domain at the level above it: a machine's NICs, a rack's uplinks. A job's demand on a link
is the rate at which it would use it undisturbed: bytes per step over its step time alone. While it communicates,
it gets the share that max-min fairness gives to a flow that takes all it can, against the others' demands:

    w_j solves  w + Σ_{k≠j} min(u_k, w) = capacity.

Demands are those of undisturbed jobs, so links do not depend on each other, a change is felt only on the links it
touches, and a job more never speeds up another (docs/network/contention.md has the proof).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.model import Step
from dally.network.step import StepProfile


def fair_shares(demands: Sequence[float], capacity: float) -> list[float]:
    """For each of the demands, in ascending order: the rate left to a job that takes all it can."""
    n = len(demands)
    if n == 1:
        return [capacity]
    below = [0.0]  # sums of the p smallest
    for demand in demands:
        below.append(below[-1] + demand)
    # heights[p]: what is handed out when the level is at the p-th smallest demand, to all and to one taker more
    heights = [below[p] + (n - p + 1) * demand for p, demand in enumerate(demands)]
    level = float("inf")
    if below[n] > capacity:
        for p in range(n):
            level = (capacity - below[p]) / (n - p)
            if demands[p] >= level:
                break
    shares = []
    for demand in demands:
        if demand >= level:
            shares.append(level)
            continue
        p = bisect_right(heights, capacity + demand)
        shares.append(min(capacity, (capacity - (below[p] - demand)) / (n - p + 1)))
    return shares


class _Member:
    """A job on its links."""

    __slots__ = ("by_link", "links", "profile", "slower", "step")

    def __init__(self, profile: StepProfile, links: tuple[tuple[int, int, float], ...]) -> None:
        self.profile = profile
        self.links = links  # (link, its level, demand)
        self.by_link: dict[int, float] = {}  # how many times slower each link is
        self.slower: list[float] = []
        self.step = profile.step


class Links:
    """All links of a cluster and the jobs on them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        own = topology.machine_level
        first, self._first = 0, []
        for level in range(len(topology.levels)):
            self._first.append(first)  # number of the first link of a level
            first += len(topology.domains[level - 1]) if level else 0
        self._islands: list[int] = []
        count = 0
        for machine in topology.machines:
            self._islands.append(count)
            count += len(machine.islands)
        self._own = own
        self._order: dict[int, list[tuple[float, str]]] = {}
        self._capacity: dict[int, float] = {}
        self._members: dict[str, _Member] = {}

    def crossed(self, placement: Placement) -> list[tuple[int, int, float]]:
        """(link, its level, capacity) of the ports through which a gang's traffic leaves a domain."""
        found: dict[int, tuple[int, float]] = {}
        topology, own = self.topology, self._own
        top = placement.level(topology)
        for machine, mask in placement.slices:
            here = topology.machines[machine]
            for offset in range(top - own):
                link = self._first[own + 1 + offset] + here.domains[offset]
                found[link] = (own + 1 + offset, topology.levels[own + 1 + offset].bandwidth)
            if own and not any(mask & ~island == 0 for island in here.islands):
                for number, island in enumerate(here.islands):
                    if mask & island:
                        found[self._first[1] + self._islands[machine] + number] = (1, here.links[1].bandwidth)
        return [(link, level, capacity) for link, (level, capacity) in found.items()]

    def change(
        self, left: Iterable[str], entered: Iterable[tuple[str, Placement, StepProfile]]
    ) -> dict[str, Step]:
        """Steps of those that entered and of every job whose step changed."""
        touched: dict[int, None] = {}
        answer: dict[str, Step] = {}
        for job in left:
            self._leave(job, touched)
        for job, placement, profile in entered:
            self._leave(job, touched)
            self._enter(job, placement, profile, touched)
            answer[job] = profile.step
        affected: dict[str, None] = dict.fromkeys(answer)
        for link in touched:
            self._share_out(link, affected)
        for job in affected:
            member = self._members.get(job)
            if member is None:
                continue  # it crosses no link
            step = self._step(member)
            if job in answer or step.seconds != member.step.seconds:
                answer[job] = step
            member.step = step
        return answer

    def _enter(self, job: str, placement: Placement, profile: StepProfile, touched: dict[int, None]) -> None:
        links = []
        for link, level, capacity in self.crossed(placement):
            sent = profile.bytes_per_level[level]
            if sent > 0:
                demand = min(sent / profile.alone, capacity)
                links.append((link, level, demand))
                insort(self._order.setdefault(link, []), (demand, job))
                self._capacity[link] = capacity
                touched[link] = None
        if links:
            self._members[job] = _Member(profile, tuple(links))

    def _leave(self, job: str, touched: dict[int, None]) -> None:
        member = self._members.pop(job, None)
        if member is None:
            return
        for link, _, demand in member.links:
            order = self._order[link]
            del order[bisect_left(order, (demand, job))]
            touched[link] = None

    def _share_out(self, link: int, affected: dict[str, None]) -> None:
        order = self._order[link]
        if not order:
            del self._order[link]
            return
        capacity = self._capacity[link]
        shares = fair_shares([demand for demand, _ in order], capacity)
        for (_, job), share in zip(order, shares, strict=True):
            slower = capacity / share
            known = self._members[job].by_link
            if known.get(link) != slower:
                known[link] = slower
                affected[job] = None

    def _step(self, member: _Member) -> Step:
        slower = [1.0] * len(self.topology.levels)
        by_link = member.by_link
        for link, level, _ in member.links:
            if by_link[link] > slower[level]:
                slower[level] = by_link[link]
        if slower == member.slower:
            return member.step
        member.slower = slower
        return member.profile.under(slower)
