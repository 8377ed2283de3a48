"""Running jobs that may lose their GPUs, the hindmost of the order first: nobody looks further than it must.

What a job has left changes all the time, each at its own rate, so no order by it lasts. What it has at most for a while
does (`Beliefs.most`): jobs of one size are kept in that order, and worked out exactly only until no other can come
before; sizes are weighed against each other when somebody asks. What is kept follows the index of preemptible jobs; as
long as nobody asks, a change costs a note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify
from typing import TYPE_CHECKING, Final

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.inner import heappop, heappush, heapreplace
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.ranking import Entry
from dally.core.topology import Machine
from dally.policies.dally import order
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.taking import Live, Victims, free_by_domain
from dally.policies.dally.tiers import Tiers

if TYPE_CHECKING:
    from dally.policies.dally.dealing import Losers

_LOOSE: Final = 2.0  # times what a job has left that it may be said to have at most, before that is worked out again
_MANY: Final = 128  # jobs worked out to see which domains they could open; to look at more costs more than it saves
_ROUNDING: Final = 1e-9  # relative: what is at most so much is never found to be more

Class = tuple[Demand, int, int]  # what a running gang would ask for to be nearer; its tier and its machines now


class Bound:
    """What a running job has left at most, in seconds, and where it is."""

    __slots__ = ("alone", "held", "inside", "job", "kind", "most", "number", "pace", "placement")

    def __init__(self, job: ActiveJob, placement: Placement, most: float, pace: float | None, first: Machine) -> None:
        self.job, self.placement, self.most = job, placement, most
        self.number, self.held = job.number, placement.gpus
        self.alone = len(placement.slices) == 1  # on a single machine
        self.kind, self.inside = first.gpu_type, first.domains  # of its first machine
        self.pace = -1.0 if pace is None else pace  # -1: it may become another one

    def touches(self, live: Live) -> bool:
        """Whether it may have GPUs in one of these domains."""
        return not self.alone or live.has(self.inside[live.tier])

    def size(self, forecast: Forecast) -> float:
        """What it has left now."""
        return forecast.size(self.job) if self.pace < 0 else forecast.size_by(self.job, self.pace)


Behindhand = tuple[float, int, Bound]  # less what it has left, as it weighs, and its number: the hindmost first


class Alike:
    """Running jobs of one size, in ascending order of their bounds; where equal, in order of arrival."""

    __slots__ = ("_there", "bounds", "gpus", "machines", "weighs")

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.bounds: list[Bound] = []
        self.weighs = 0.0  # what a second of theirs counts in this plan
        self._there: dict[int, int] = {}  # how many of them, by machine
        self.machines = 0  # where there are any, as a bit set

    def add(self, bound: Bound) -> None:
        self.bounds.insert(self._place(bound), bound)
        for machine, _ in bound.placement.slices:
            before = self._there.get(machine, 0)
            self._there[machine] = before + 1
            if not before:
                self.machines |= 1 << machine

    def remove(self, bound: Bound) -> None:
        del self.bounds[self._place(bound)]
        for machine, _ in bound.placement.slices:
            left = self._there[machine] - 1
            self._there[machine] = left
            if not left:
                self.machines ^= 1 << machine

    def beyond(self, least: float) -> int:
        """How many may have more than so much left, as it weighs."""
        first, last = 0, len(self.bounds)
        while first < last:
            middle = (first + last) // 2
            if self.weighs * self.bounds[middle].most <= least:
                first = middle + 1
            else:
                last = middle
        return len(self.bounds) - first

    def _place(self, bound: Bound) -> int:
        bounds, most, number = self.bounds, bound.most, bound.number
        first, last = 0, len(bounds)
        while first < last:
            middle = (first + last) // 2
            other = bounds[middle]
            if other.most < most or (other.most == most and other.number < number):
                first = middle + 1
            else:
                last = middle
        return first


class Apart:
    """Running gangs of one class that could be nearer together."""

    __slots__ = ("_least", "_machines", "_tier", "demand", "jobs")

    def __init__(self, demand: Demand, tier: int, machines: int, least: int) -> None:
        self.demand, self._tier, self._machines = demand, tier, machines
        self._least = least  # machines that such a gang needs, were everything free
        self.jobs: dict[str, ActiveJob] = {}

    def nearer_at(self, room: int) -> bool:
        """Whether GPUs at a tier, the innermost with room, may be nearer; no need to choose them where they are not."""
        if room < 0 or room > self._tier:
            return False
        return room < self._tier or self._machines > self._least or self.demand.where is not None

    def nearer(self, tier: int, machines: int) -> bool:
        return tier < self._tier or (tier == self._tier and machines < self._machines)


class Running(Victims):
    """Of jobs that are known by their size."""

    def __init__(self, weighed: Sequence[Alike], losers: Losers) -> None:
        self._weighed, self._losers = weighed, losers
        self._live: Live | None = None  # where others need not be looked at

    def only(self, live: Live) -> None:
        self._live = live

    def with_fewer(self, gpus: int) -> int:
        found = 0
        for alike in self._weighed:
            if alike.gpus < gpus:
                found |= alike.machines
        return found


class Holders(Running):
    """Jobs that have more left than somebody who looks for GPUs, and the domains that they could open."""

    def __init__(self, weighed: Sequence[Alike], losers: Losers) -> None:
        super().__init__(weighed, losers)
        self.able = 0  # a bit set
        self.sizes: list[float] = []  # what each has left, as it weighs
        self.bounds: list[Bound] = []
        self._hindmost: list[Behindhand] | None = None  # a heap, from when the first is asked for

    def next(self) -> ActiveJob | None:
        hindmost = self._hindmost
        if hindmost is None:
            hindmost = self._hindmost = [(-size, -bound.number, bound)
                                         for size, bound in zip(self.sizes, self.bounds, strict=True)]  # fmt: skip
            heapify(hindmost)
        live = self._live
        while hindmost:
            minus, _, bound = heappop(hindmost)
            if (live is None or bound.touches(live)) and self._losers.may_lose(bound.job, -minus):
                return bound.job
        return None


class Hindmost(Running):
    """The same, worked out no further than somebody looks: until no other can come before the next. Who is loading is
    passed over."""

    def __init__(self, weighed: Sequence[Alike], changed: dict[str, ActiveJob], forecast: Forecast, least: float,
                 losers: Losers) -> None:  # fmt: skip
        super().__init__(weighed, losers)
        self._changed, self._forecast, self._least = changed, forecast, least
        self._heads: list[tuple[float, int, int, Alike]] = []  # at most; the next of each size
        for alike in weighed:
            last = alike.bounds[-1]
            if alike.weighs * last.most > least:
                self._heads.append((-alike.weighs * last.most, last.number, len(alike.bounds) - 1, alike))
        heapify(self._heads)
        self._nearly: list[Behindhand] = []

    def next(self) -> ActiveJob | None:
        heads, nearly, live = self._heads, self._nearly, self._live
        while True:
            while heads and not (nearly and nearly[0][0] < heads[0][0]):
                self._work_out(heads)
            if not nearly or -nearly[0][0] <= self._least:
                return None
            minus, _, bound = heappop(nearly)
            if (live is None or bound.touches(live)) and self._losers.may_lose(bound.job, -minus):
                return bound.job

    def _work_out(self, heads: list[tuple[float, int, int, Alike]]) -> None:
        """The first of the heads."""
        _, _, at, alike = heads[0]
        bound, weighs, bounds, live = alike.bounds[at], alike.weighs, alike.bounds, self._live
        if live is None or bound.touches(live):
            size = weighs * bound.size(self._forecast)
            if weighs * bound.most > _LOOSE * size + weighs:
                self._changed[bound.job.id] = bound.job
            if settled(bound.job, self._forecast.now):
                heappush(self._nearly, (-size, -bound.number, bound))
        at -= 1
        if live is not None:
            while at >= 0 and not bounds[at].touches(live):
                at -= 1
        if at >= 0 and weighs * bounds[at].most > self._least:
            heapreplace(heads, (-weighs * bounds[at].most, bounds[at].number, at, alike))
        else:
            heappop(heads)


class Behind:
    """A watcher of the view's `preemptible`."""

    def __init__(self, view: View, tiers: Tiers) -> None:
        self._view, self._tiers = view, tiers
        self.held = FreeGpus(view.topology)  # GPUs that could be taken, in the form of free ones
        for machine in view.topology.machines:
            self.held.take_mask(machine.index, machine.full_mask)
        self._basis = -1.0  # the beliefs that bounds were worked out by
        self._time = 0.0  # and when: they hold from then on, and somebody may have looked ahead
        self._bounds: dict[str, Bound] = {}
        self._alike: dict[int, Alike] = {}  # by GPUs of the job
        self._weighed: list[Alike] = []  # those of which there are any, weighed for this plan
        self._due: list[tuple[float, int, Bound]] = []  # until when a bound holds
        self._dues = 0  # so far
        self._changed: dict[str, ActiveJob] = {}  # since the order was last brought up to date
        self._moved: dict[str, ActiveJob] = {}  # since those apart were
        self._class: dict[str, Class] = {}
        self.apart: dict[Class, Apart] = {}  # of preemptible jobs, those that could be nearer together
        self._largest: dict[str, int] = {}  # GPUs of the largest machine of a type
        for machine in view.topology.machines:
            self._largest[machine.gpu_type] = max(machine.gpus, self._largest.get(machine.gpu_type, 1))

    def added(self, job: ActiveJob, entry: Entry) -> None:
        self._changed[job.id] = self._moved[job.id] = job

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        self._changed[job.id] = self._moved[job.id] = job

    def weigh(self, forecast: Forecast, waiting: int, breadth: float) -> float:
        """For one plan, in which so many wait; returns what nobody has more of left, as it weighs."""
        self._bring_up_to_date(forecast)
        self._weighed = []
        most = 0.0
        for alike in self._alike.values():
            if alike.bounds:
                alike.weighs = order.weight(alike.gpus, waiting, breadth)
                self._weighed.append(alike)
                most = max(most, alike.weighs * alike.bounds[-1].most)
        return most

    def hindmost(self, forecast: Forecast, least: float, losers: Losers) -> Hindmost:
        """Those with more than `least` left."""
        return Hindmost(self._weighed, self._changed, forecast, least, losers)

    def may_open(self, free: FreeGpus, gpus: int, kind: str, level: int, least: float) -> bool:
        """Whether a domain of a level could come to hold so many GPUs by what jobs with more than `least` left hold, as
        far as what they have at most can tell."""
        machines, tier = free.topology.machines, level - free.topology.machine_level
        counts = free_by_domain(free, kind, level)
        for alike in self._weighed:
            weighs, bounds = alike.weighs, alike.bounds
            for at in range(len(bounds) - 1, -1, -1):
                if weighs * bounds[at].most <= least:
                    break
                for machine, mask in bounds[at].placement.slices:
                    if machines[machine].gpu_type == kind:
                        domain = machines[machine].domains[tier]
                        counts[domain] += gpus_in(mask)
                        if counts[domain] >= gpus:
                            return True
        return False

    def holders(self, free: FreeGpus, gpus: int, kind: str, level: int, least: float,
                forecast: Forecast, losers: Losers) -> Holders | None:  # fmt: skip
        """The jobs with more than `least` left, with the domains of a level where they hold enough together; None where
        there are too many to look at all of them."""
        machines, tier = free.topology.machines, level - free.topology.machine_level
        counts, mixed = free_by_domain(free, kind, level), len(free.pools) > 1
        if self._beyond(least) > _MANY:
            return None
        holders = Holders(self._weighed, losers)
        sizes, found = holders.sizes, holders.bounds
        able, now = 0, forecast.now
        for alike in self._weighed:
            weighs, bounds = alike.weighs, alike.bounds
            for at in range(len(bounds) - 1, -1, -1):
                bound = bounds[at]
                if weighs * bound.most <= least:
                    break
                job = bound.job
                size = weighs * bound.size(forecast)
                if weighs * bound.most > _LOOSE * size + weighs:
                    self._changed[job.id] = job
                if size <= least or not settled(job, now):
                    continue
                sizes.append(size)
                found.append(bound)
                if bound.alone:
                    if not mixed or bound.kind == kind:
                        domain = bound.inside[tier]
                        before = counts[domain]
                        counts[domain] = before + bound.held
                        if before < gpus <= before + bound.held:
                            able |= 1 << domain
                    continue
                for machine, mask in bound.placement.slices:
                    if machines[machine].gpu_type == kind:
                        domain = machines[machine].domains[tier]
                        before = counts[domain]
                        counts[domain] = after = before + gpus_in(mask)
                        if before < gpus <= after:
                            able |= 1 << domain
        holders.able = able
        return holders

    def _beyond(self, least: float) -> int:
        """How many jobs may have more than so much left."""
        count = 0
        for alike in self._weighed:
            count += alike.beyond(least)
        return count

    def _bring_up_to_date(self, forecast: Forecast) -> None:
        if forecast.basis != self._basis or forecast.now < self._time:
            self._basis = forecast.basis
            for bound in self._bounds.values():
                self._changed[bound.job.id] = bound.job
        now = self._time = forecast.now
        if self._changed:
            changed, self._changed = self._changed, {}
            preemptible = self._view.preemptible
            for job_id in changed:
                known = self._bounds.pop(job_id, None)
                if known is not None:
                    self._alike[known.job.gpus].remove(known)
                    self.held.take(known.placement)
            for job in changed.values():  # once all that went are gone: their GPUs may be others' by now
                if job.id in preemptible:
                    assert job.placement is not None
                    self._bound(forecast, job, job.placement)
                    self.held.give(job.placement)
        due = self._due
        while due and due[0][0] <= now:
            bound = heappop(due)[2]
            if self._bounds.get(bound.job.id) is bound:  # objects
                self._alike[bound.job.gpus].remove(bound)
                self._bound(forecast, bound.job, bound.placement)
        if len(due) > 4 * len(self._bounds) + 64:  # mostly of bounds that hold no more
            self._due = [each for each in due if self._bounds.get(each[2].job.id) is each[2]]  # objects
            heapify(self._due)

    def _bound(self, forecast: Forecast, job: ActiveJob, placement: Placement) -> None:
        size, until = forecast.most(job)
        first = self._view.topology.machines[placement.slices[0][0]]
        bound = Bound(job, placement, size * (1.0 + _ROUNDING) + _ROUNDING, forecast.known_pace(job), first)
        self._bounds[job.id] = bound
        alike = self._alike.get(job.gpus)
        if alike is None:
            alike = self._alike[job.gpus] = Alike(job.gpus)
        alike.add(bound)
        if until < math.inf:
            self._dues += 1
            heappush(self._due, (until, self._dues, bound))

    def could_be_nearer(self, forecast: Forecast) -> dict[Class, Apart]:
        """Preemptible jobs that could be nearer together were everything free, by what they would ask for."""
        if self._moved:
            preemptible, apart = self._view.preemptible, forecast.memory.apart
            for job in self._moved.values():
                before = self._class.pop(job.id, None)
                if before is not None:
                    there = self.apart[before].jobs
                    del there[job.id]
                    if not there:
                        del self.apart[before]
                if job.id in apart and job.id in preemptible:
                    assert job.placement is not None
                    self._class[job.id] = found = self._class_of(job, job.placement)
                    if found not in self.apart:
                        demand, kind = found[0], found[0].gpu_type or ""
                        self.apart[found] = Apart(*found, -(-demand.gpus // self._largest[kind]))
                    self.apart[found].jobs[job.id] = job
            self._moved = {}
        return self.apart

    def _class_of(self, job: ActiveJob, held: Placement) -> Class:
        kind = self._view.topology.machines[held.slices[0][0]].gpu_type
        return Demand(held.gpus, kind, job.demand.where), self._tiers.of(held), len(held.slices)


def settled(job: ActiveJob, now: float) -> bool:
    """Whether it is through with loading."""
    return now > job.progress_from or job.progress_from == job.last_change
