"""Jobs that share a NIC or an uplink: each gets what max-min fairness leaves it on every link it crosses.

A link is the port of a domain at the level above it: a machine's NICs, a rack's uplinks. A job's demand on a link
is the rate at which it would use it undisturbed: bytes per step over its step time alone. While it communicates,
it gets the share that max-min fairness gives to a flow that takes all it can, against the others' demands:

    w_j solves  w + Σ_{k≠j} min(u_k, w) = capacity.

Demands are those of undisturbed jobs, so links do not depend on each other, a change is felt only on the links it
touches, and a job more never speeds up another (docs/network/contention.md has the proof).

Most links are calm: all who are on them together leave so much that no step is longer for it (`StepProfile.slack`). w
is never less than the capacity without the others' demands, so a sum tells, and as long as it does nobody's share is
worked out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from dally.core.placement import Placement, level_of
from dally.core.topology import Topology
from dally.network.model import Step
from dally.network.step import StepProfile

_SURELY: Final = 1.0 - 1e-9  # rounding: of sums that many have been added to and taken from, too


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


class _Member:
    """A job on its links."""

    __slots__ = ("job", "profile", "step", "uses")

    def __init__(self, job: str, profile: StepProfile) -> None:
        self.job, self.profile = job, profile
        self.uses: list[_Use] = []  # one for each of its links
        self.step = profile.step

    def seconds(self, levels: int) -> float:
        """Of a step as the links are now. Those that are not calm are shared out, and calm ones cost nothing."""
        slower: list[float] | None = None
        for use in self.uses:
            link = use.link
            if not link.calm and use.slower > 1.0:
                if slower is None:
                    slower = [1.0] * levels
                if use.slower > slower[link.level]:
                    slower[link.level] = use.slower
        return self.profile.alone if slower is None else self.profile.seconds(slower)


class _Use:
    """Of a link by a job."""

    __slots__ = ("before", "demand", "link", "member", "slower", "slowest")

    def __init__(self, member: _Member, link: _Link, demand: float) -> None:
        self.member, self.link, self.demand = member, link, demand
        self.slower = 0.0  # how many times slower than alone the link is to it; 0: not known yet
        self.before = 0.0  # the same before a change
        self.slowest = 0.0  # and of its links of this level, which of them counted

    def note(self) -> None:
        """How it is before a change; all links of the job and level are shared out."""
        level, slowest = self.link.level, 1.0
        for use in self.member.uses:
            if use.link.level == level and use.slower > slowest:
                slowest = use.slower
        self.before, self.slowest = self.slower, slowest


class _Link:
    """A port and who is on it."""

    __slots__ = ("calm", "capacity", "crowd", "demand", "fresh", "least", "level", "order", "slack", "touched", "uses")

    def __init__(self, level: int, capacity: float) -> None:
        self.level, self.capacity = level, capacity
        self.uses: dict[str, _Use] = {}
        self.order: list[_Use] = []  # by demand, as of when it was last shared out
        self.fresh = True  # whether that is as they are now
        self.touched = 0  # the last change it was part of
        self.calm = True  # whether no step of anybody on it is longer for the others
        # Of those on it once the change that is being made is done: how many, and their demands together; no more than
        # the smallest of these; and no more than how many times slower the link may be to each of them at no cost.
        self.crowd = 0
        self.demand = 0.0
        self.least = self.slack = inf

    def comes(self, use: _Use) -> None:
        self.crowd += 1
        self.demand += use.demand
        self._look_at(use)

    def goes(self, use: _Use) -> None:
        self.crowd -= 1
        if self.crowd:
            self.demand -= use.demand
        else:
            self.demand, self.least, self.slack = 0.0, inf, inf

    def _look_at(self, use: _Use) -> None:
        if use.demand < self.least:
            self.least = use.demand
        slack = use.member.profile.slack[self.level]
        if slack < self.slack:
            self.slack = slack

    def has_room(self) -> bool:
        """Whether it is surely calm: to whoever asks for least it is slowest, by C/(C − Σ_{k≠j} u_k) at the most."""
        if self.crowd <= 1:
            return True
        left = self.capacity * _SURELY - self.demand + self.least
        return left > 0 and self.capacity <= left * _SURELY * (self.slack if self.slack > 1.0 else 1.0)

    def look_again(self, come: list[_Member]) -> None:
        """Those whose demand or slack was the smallest may be gone."""
        self.least = self.slack = inf
        for use in self.uses.values():
            self._look_at(use)
        for member in come:
            for use in member.uses:
                if use.link is self:  # objects
                    self._look_at(use)

    def share_out(self) -> None:
        """What is left to everybody on it."""
        uses = list(self.uses.values())
        by_demand: list[tuple[float, int]] = []
        for place in range(len(uses)):
            by_demand.append((uses[place].demand, place))
        by_demand.sort()
        order: list[_Use] = []
        demands: list[float] = []
        counts: list[int] = []
        last = -1.0
        for demand, place in by_demand:
            order.append(uses[place])
            if demand == last:
                counts[-1] += 1
            else:
                demands.append(demand)
                counts.append(1)
                last = demand
        self.order, self.fresh = order, True
        shares = fair_shares(demands, self.capacity, counts) if demands else []
        first = 0
        for crowd in range(len(demands)):
            slower = self.capacity / shares[crowd]
            for place in range(first, first + counts[crowd]):
                order[place].slower = slower
            first += counts[crowd]


class Links:
    """All links of a cluster and the jobs on them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._own = topology.machine_level
        self._levels = len(topology.levels)
        self._bandwidth = [level.bandwidth for level in topology.levels]
        self._domains = [machine.domains for machine in topology.machines]
        first, self._first = 0, []
        for level in range(self._levels):
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
        self._changes = 0

    def change(
        self, left: Iterable[str], entered: Iterable[tuple[str, Placement, StepProfile]]
    ) -> dict[str, Step]:
        """Steps of those that entered and of every job whose step changed."""
        self._changes += 1
        touched: list[_Link] = []
        gone: list[_Member] = []
        come: list[_Member] = []
        answer: dict[str, Step] = {}
        for job in left:
            self._leaves(job, gone, touched)
        for job, placement, profile in entered:
            self._leaves(job, gone, touched)
            member = _Member(job, profile)
            self._enters(member, placement, touched)
            if member.uses:
                come.append(member)
            answer[job] = profile.step
        if not touched:
            return answer
        calm = self._calm(touched, come)
        if not calm:
            self._note(touched)
        for member in gone:
            for use in member.uses:
                del use.link.uses[member.job]
            member.uses = []  # they name it, too: nothing waits to be collected
        for member in come:
            self._members[member.job] = member
            for use in member.uses:
                use.link.uses[member.job] = use
        for link in touched:
            link.fresh = False
        if not calm:
            self._share_out(touched, answer)
        return answer

    def _share_out(self, touched: list[_Link], answer: dict[str, Step]) -> None:
        """Share these links anew; the steps of those to whom they are not as they were."""
        affected: dict[str, _Member] = {}
        for link in touched:
            link.share_out()
            for use in link.order:
                # Only the slowest link of a level counts: this one did, or now does.
                now, slowest = use.slower, use.slowest
                if now > slowest or (use.before == slowest and now != slowest):
                    affected[use.member.job] = use.member
        for job, member in affected.items():
            seconds = member.seconds(self._levels)
            if seconds != member.step.seconds:
                compute = member.profile.compute
                member.step = answer[job] = Step(seconds, compute, seconds - compute, member.profile.alone)

    def _calm(self, touched: list[_Link], come: list[_Member]) -> bool:
        """Whether all these links are calm before a change and after it; asked when it is known and not yet made."""
        calm = True
        for link in touched:
            before, link.calm = link.calm, link.has_room()
            if not link.calm:
                link.look_again(come)
                link.calm = link.has_room()
            calm = calm and before and link.calm
        return calm

    def _note(self, touched: list[_Link]) -> None:
        """How it is before a change."""
        for link in touched:
            if not link.fresh:
                link.share_out()
        for link in touched:
            for use in link.order:
                for other in use.member.uses:
                    if other.link.level == link.level and not other.link.fresh:
                        other.link.share_out()
                use.note()

    def _leaves(self, job: str, gone: list[_Member], touched: list[_Link]) -> None:
        member = self._members.pop(job, None)
        if member is not None:
            gone.append(member)
            for use in member.uses:
                self._touch(use.link, touched)
                use.link.goes(use)

    def _enters(self, member: _Member, placement: Placement, touched: list[_Link]) -> None:
        """The ports through which a gang's traffic leaves a domain."""
        own, slices = self._own, placement.slices
        if len(slices) == 1:  # most gangs: they stay inside a machine
            if own:
                machine, mask = slices[0]
                self._crosses(member, machine, mask, touched)
            return
        top = level_of(placement, self.topology)
        seen: dict[int, None] = {}
        for machine, mask in slices:
            domains = self._domains[machine]
            for offset in range(top - own):
                level = own + 1 + offset
                number = self._first[level] + domains[offset]
                if number not in seen:
                    seen[number] = None
                    self._use(member, number, level, self._bandwidth[level], touched)
            if own:
                self._crosses(member, machine, mask, touched)

    def _crosses(self, member: _Member, machine: int, mask: int, touched: list[_Link]) -> None:
        """The ports of a machine's islands, where a gang is on several of them."""
        islands = self._islands[machine]
        for island in islands:
            if mask & island == mask:
                return
        number = self._first[1] + self._first_island[machine]
        capacity: float = self.topology.machines[machine].links[1].bandwidth
        for island in islands:
            if mask & island:
                self._use(member, number, 1, capacity, touched)
            number += 1

    def _use(self, member: _Member, number: int, level: int, capacity: float, touched: list[_Link]) -> None:
        profile = member.profile
        sent = profile.bytes_per_level[level]
        if sent > 0:
            link = self._links.get(number)
            if link is None:
                link = self._links[number] = _Link(level, capacity)
            use = _Use(member, link, min(sent / profile.alone, capacity))
            member.uses.append(use)
            self._touch(link, touched)
            link.comes(use)

    def _touch(self, link: _Link, touched: list[_Link]) -> None:
        if link.touched != self._changes:
            link.touched = self._changes
            touched.append(link)
