"""Jobs that share a NIC or an uplink: each gets what max-min fairness leaves it on every link it crosses.

A link is the port of a domain at the level above it: a machine's NICs, a rack's uplinks. A job's demand on a link
is the rate at which it would use it undisturbed: bytes per step over its step time alone. While it communicates,
it gets the share that max-min fairness gives to a flow that takes all it can, against the others' demands:

    w_j solves  w + Σ_{k≠j} min(u_k, w) = capacity.

Demands are those of undisturbed jobs, so links do not depend on each other, a change is felt only on the links it
touches, and a job more never speeds up another (docs/network/contention.md has the proof).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from dally.core.placement import Placement, level_of
from dally.core.topology import Topology
from dally.network.model import Step
from dally.network.step import StepProfile


def fair_shares(demands: list[float], capacity: float, counts: list[int] | None = None) -> list[float]:
    """For each of the demands, in ascending order: the rate left to a job that takes all it can.

    `counts[i]` jobs have the i-th demand, one each if nothing is said.
    """
    many = len(demands)
    if counts is None:
        counts = [1] * many
    jobs = 0
    for count in counts:
        jobs += count
    if jobs == 1:
        return [capacity]
    handed, before, height = 0.0, 0, 0.0
    for p in range(many):
        demand, count = demands[p], counts[p]
        height = handed + (jobs - before + 1) * demand
        handed += count * demand
        before += count
    if not many or handed > capacity or height > capacity + demands[0]:
        return _shared_out(demands, capacity, counts, jobs)
    shares: list[float] = []
    for demand in demands:  # as on most links: all get what they ask for, and whoever takes more takes what is left
        share = capacity - (handed - demand)
        shares.append(capacity if capacity < share else share)
    return shares


def _shared_out(demands: list[float], capacity: float, counts: list[int], jobs: int) -> list[float]:
    """The same where somebody may get less than it asks for, or could not take all that is left."""
    many = len(demands)
    handed, before = 0.0, 0
    below, fewer = [0.0], [0]  # sum of the p smallest demands, and how many jobs have them
    # heights[p]: what is handed out when the level is at the p-th demand, to all jobs and to one taker more
    heights: list[float] = []
    for p in range(many):
        demand, count = demands[p], counts[p]
        heights.append(handed + (jobs - before + 1) * demand)
        handed += count * demand
        before += count
        below.append(handed)
        fewer.append(before)
    shares: list[float] = []
    level = inf
    if handed > capacity:  # nobody who asks for more than this gets more
        for p in range(many):
            level = (capacity - below[p]) / (jobs - fewer[p])
            if demands[p] >= level:
                break
    above = 0  # demands below the level to which somebody's own share rises: the more it asks for, the more of them
    for p in range(many):
        demand = demands[p]
        if demand >= level:
            shares.append(level)
            continue
        while above < many and heights[above] <= capacity + demand:
            above += 1
        share = (capacity - (below[above] - demand)) / (jobs - fewer[above] + 1)
        shares.append(capacity if capacity < share else share)
    return shares


def _place_of(demands: list[float], demand: float) -> int:
    """`bisect_left` of numbers, which it would look up how to compare at each step."""
    low, high = 0, len(demands)
    while low < high:
        middle = (low + high) // 2
        if demands[middle] < demand:
            low = middle + 1
        else:
            high = middle
    return low


class _Member:
    """A job on its links."""

    __slots__ = ("crowds", "links", "profile", "slower", "step")

    def __init__(self, profile: StepProfile, levels: int) -> None:
        self.profile = profile
        self.links: list[tuple[int, float]] = []  # link and demand
        self.crowds: list[_Crowd] = []  # that it is in on each of them
        self.slower = [0.0] * levels  # the slowest of its links per level; 0: not known yet
        self.step = profile.step

    def seconds(self, levels: int) -> float:
        """Of a step as the links are now."""
        slower = self.slower = [1.0] * levels
        slack = self.profile.slack
        calm = True
        for crowd in self.crowds:
            level, now = crowd.level, crowd.slower
            if now > slower[level]:
                slower[level] = now
                if now > slack[level]:
                    calm = False
        return self.profile.alone if calm else self.profile.seconds(slower)


class _Crowd:
    """Jobs with the same demand on one link: what is left to one of them is left to each."""

    __slots__ = ("level", "members", "slower")

    def __init__(self, level: int) -> None:
        self.level = level
        self.members: dict[str, _Member] = {}
        self.slower = 0.0  # how many times slower than alone the link is to them; 0: not known yet


class _Link:
    """A port and who is on it."""

    __slots__ = ("capacity", "counts", "crowds", "demands", "level")

    def __init__(self, level: int, capacity: float) -> None:
        self.level, self.capacity = level, capacity
        self.demands: list[float] = []  # ascending, each once
        self.crowds: list[_Crowd] = []  # in their order
        self.counts: list[int] = []  # of their members

    def add(self, demand: float, job: str, member: _Member) -> _Crowd:
        place = _place_of(self.demands, demand)
        if place == len(self.demands) or self.demands[place] != demand:
            self.demands.insert(place, demand)
            self.crowds.insert(place, _Crowd(self.level))
            self.counts.insert(place, 0)
        crowd = self.crowds[place]
        crowd.members[job] = member
        self.counts[place] = len(crowd.members)
        return crowd

    def remove(self, demand: float, job: str) -> None:
        place = _place_of(self.demands, demand)
        crowd = self.crowds[place]
        del crowd.members[job]
        if crowd.members:
            self.counts[place] = len(crowd.members)
        else:
            self.demands.pop(place)
            self.crowds.pop(place)
            self.counts.pop(place)

    def share_out(self, affected: dict[str, _Member]) -> None:
        """Share the link anew and add the jobs to whom it is not as it was."""
        level, capacity = self.level, self.capacity
        shares = fair_shares(self.demands, capacity, self.counts)
        for place in range(len(shares)):
            crowd = self.crowds[place]
            before, now = crowd.slower, capacity / shares[place]
            crowd.slower = now
            for job, member in crowd.members.items():
                # Only the slowest link of a level counts: this one did, or now does.
                slowest = member.slower[level]
                if now > slowest or (before == slowest and now != before):
                    affected[job] = member


class Links:
    """All links of a cluster and the jobs on them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._own = topology.machine_level
        self._bandwidth = [level.bandwidth for level in topology.levels]
        self._domains = [machine.domains for machine in topology.machines]
        first, self._first = 0, []
        for level in range(len(topology.levels)):
            self._first.append(first)  # number of the first link of a level
            first += len(topology.domains[level - 1]) if level else 0
        self._islands = [list(machine.islands) for machine in topology.machines]
        self._first_island: list[int] = []  # number of a machine's first one
        count = 0
        for islands in self._islands:
            self._first_island.append(count)
            count += len(islands)
        self._links: dict[int, _Link] = {}
        self._members: dict[str, _Member] = {}

    def crossed(self, placement: Placement) -> list[tuple[int, int, float]]:
        """(link, its level, capacity) of the ports through which a gang's traffic leaves a domain."""
        own, slices = self._own, placement.slices
        if own == 0 and len(slices) == 1:
            return []  # most gangs: they stay inside a machine, and it has no ports of its own
        found: dict[int, tuple[int, int, float]] = {}
        top = level_of(placement, self.topology)
        for machine, mask in slices:
            domains = self._domains[machine]
            for offset in range(top - own):
                level = own + 1 + offset
                number = self._first[level] + domains[offset]
                if number not in found:
                    found[number] = (number, level, self._bandwidth[level])
            if own:
                self._inside(machine, mask, found)
        return list(found.values())

    def _inside(self, machine: int, mask: int, found: dict[int, tuple[int, int, float]]) -> None:
        """The ports of a machine's islands, where a gang is on several of them."""
        islands = self._islands[machine]
        for island in islands:
            if mask & island == mask:
                return
        number = self._first[1] + self._first_island[machine]
        for island in islands:
            if mask & island:
                found[number] = (number, 1, self.topology.machines[machine].links[1].bandwidth)
            number += 1

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
        affected: dict[str, _Member] = {}
        for number in touched:
            link = self._links[number]
            if link.demands:
                link.share_out(affected)
            else:
                del self._links[number]
        levels = len(self._bandwidth)
        for job, member in affected.items():
            seconds = member.seconds(levels)
            if seconds != member.step.seconds:
                compute = member.profile.compute
                member.step = answer[job] = Step(seconds, compute, seconds - compute, member.profile.alone)
        return answer

    def _enter(self, job: str, placement: Placement, profile: StepProfile, touched: dict[int, None]) -> None:
        crossed = self.crossed(placement)
        if not crossed:
            return
        member = _Member(profile, len(self._bandwidth))
        for number, level, capacity in crossed:
            sent = profile.bytes_per_level[level]
            if sent > 0:
                demand = min(sent / profile.alone, capacity)
                link = self._links.get(number)
                if link is None:
                    link = self._links[number] = _Link(level, capacity)
                member.links.append((number, demand))
                member.crowds.append(link.add(demand, job, member))
                touched[number] = None
        if member.links:
            self._members[job] = member

    def _leave(self, job: str, touched: dict[int, None]) -> None:
        member = self._members.pop(job, None)
        if member is not None:
            for number, demand in member.links:
                self._links[number].remove(demand, job)
                touched[number] = None
