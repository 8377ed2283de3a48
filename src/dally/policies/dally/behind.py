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
from dally.policies.dally import order
from dally.policies.dally.bounds import Alike, Bound, Here, any_of
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.offered import Offer
from dally.policies.dally.taking import Live, Victims, free_by_domain
from dally.policies.dally.tiers import Tiers

if TYPE_CHECKING:
    from dally.policies.dally.dealing import Losers

_LOOSE: Final = 2.0  # times what a job has left that it may be said to have at most, before that is worked out again
_MANY: Final = 128  # jobs looked at to see which machines they could open; to look at more costs more than it saves
_ROUNDING: Final = 1e-9  # relative: what is at most so much is never found to be more

Class = tuple[Demand, int, int]  # what a running gang would ask for to be nearer; its tier and its machines now
Behindhand = tuple[float, int, Bound]  # less what it has left, as it weighs, and its number: the hindmost first


class Apart:
    """Running gangs of one class that could be nearer together."""

    __slots__ = ("_least", "_machines", "_may", "_state", "_tier", "demand", "jobs", "offer")

    def __init__(self, demand: Demand, tier: int, machines: int, least: int) -> None:
        self.demand, self._tier, self._machines = demand, tier, machines
        self._least = least  # machines that such a gang needs, were everything free
        self.jobs: dict[str, ActiveJob] = {}
        self.offer: Offer | None = None  # to all of them; None: nobody has asked yet
        self._state, self._may = -1, False  # whether it may bring them nearer, in a state of the free GPUs

    def may_be_nearer(self, offer: Offer, tiers: Tiers, free: FreeGpus) -> bool:
        """Whether the GPUs of an offer may be nearer; no need to choose them where they are not."""
        if self._state != offer.state:
            self._state, self._may = offer.state, self._nearer_at(offer.room, tiers, free)
        return self._may

    def _nearer_at(self, room: int, tiers: Tiers, free: FreeGpus) -> bool:
        """The same of a tier, the innermost with room."""
        if room < 0 or room > self._tier:
            return False
        if room < self._tier or self.demand.where is not None:
            return True
        return self._machines > self._least and self._machines > tiers.machines_at_least(free, self.demand)

    def nearer(self, tier: int, machines: int) -> bool:
        return tier < self._tier or (tier == self._tier and machines < self._machines)


class Hindmost(Victims):
    """Worked out no further than somebody looks: until no other can come before the next. Who is loading is passed
    over."""

    def __init__(self, weighed: Sequence[Alike], changed: dict[str, ActiveJob], forecast: Forecast, least: float,
                 losers: Losers) -> None:  # fmt: skip
        self._changed, self._forecast, self._least, self._losers = changed, forecast, least, losers
        self._live: Live | None = None  # where others need not be looked at
        self._heads: list[tuple[float, int, int, Alike]] = []  # at most; the next of each size
        for alike in weighed:
            last = alike.bounds[-1]
            if alike.weighs * last.most > least:
                self._heads.append((-alike.weighs * last.most, last.number, len(alike.bounds) - 1, alike))
        heapify(self._heads)
        self._nearly: list[Behindhand] = []

    def only(self, live: Live) -> None:
        self._live = live

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
        self._basis = -1.0  # the beliefs that bounds were worked out by
        self._time = 0.0  # and when: they hold from then on, and somebody may have looked ahead
        self._bounds: dict[str, Bound] = {}
        self._alike: dict[int, Alike] = {}  # by GPUs of the job
        self._weighed: list[Alike] = []  # those of which there are any, weighed for this plan
        self.there: list[list[Here]] = [[] for _ in view.topology.machines]  # who has GPUs on a machine
        self._due: list[tuple[float, int, Bound]] = []  # until when a bound holds
        self._dues = 0  # so far
        self._plans = 0  # in which somebody asked, so far
        self._changed: dict[str, ActiveJob] = {}  # since the order was last brought up to date
        self._moved: dict[str, ActiveJob] = {}  # since those apart were
        self._class: dict[str, Class] = {}
        self.apart: dict[Class, Apart] = {}  # of preemptible jobs, those that could be nearer together
        self._largest: dict[str, int] = {}  # GPUs of the largest machine of a type
        self._of_kind: dict[str, int] = {}  # machines of a type, as a bit set
        for machine in view.topology.machines:
            self._of_kind[machine.gpu_type] = self._of_kind.get(machine.gpu_type, 0) | 1 << machine.index
            self._largest[machine.gpu_type] = max(machine.gpus, self._largest.get(machine.gpu_type, 1))

    def added(self, job: ActiveJob, entry: Entry) -> None:
        self._changed[job.id] = self._moved[job.id] = job

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        self._changed[job.id] = self._moved[job.id] = job

    def weigh(self, forecast: Forecast, waiting: int, breadth: float) -> float:
        """For one plan, in which so many wait; returns what nobody has more of left, as it weighs."""
        self._bring_up_to_date(forecast)
        self._plans += 1
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

    def could_open(self, free: FreeGpus, gpus: int, kind: str, level: int, least: float, forecast: Forecast) -> int:
        """Bit set of the domains of a level that could come to hold so many GPUs by what jobs with more than `least`
        left hold. Where many may have, as far as what they have at most can tell; machines then all or none."""
        machines, tier = free.topology.machines, level - free.topology.machine_level
        many = self._beyond(least) > _MANY
        counts, mixed = free_by_domain(free, kind, level), len(free.pools) > 1
        able = 0
        for alike in self._weighed:
            weighs, bounds = alike.weighs, alike.bounds
            for at in range(len(bounds) - 1, -1, -1):
                bound = bounds[at]
                if weighs * bound.most <= least:
                    break
                if not many and self.left(forecast, bound) <= least:
                    continue
                if bound.alone:
                    if not mixed or bound.kind == kind:
                        domain = bound.inside[tier]
                        before = counts[domain]
                        counts[domain] = before + bound.held
                        if before < gpus <= before + bound.held:
                            able |= 1 << domain
                else:
                    for machine, mask in bound.placement.slices:
                        if not mixed or machines[machine].gpu_type == kind:
                            domain = machines[machine].domains[tier]
                            before = counts[domain]
                            counts[domain] = after = before + gpus_in(mask)
                            if before < gpus <= after:
                                able |= 1 << domain
                if many and able and not tier:
                    return self._of_kind[kind]
        return able

    def with_fewer(self, gpus: int) -> int:
        """Bit set of machines where somebody of fewer GPUs than that is."""
        found = 0
        for alike in self._weighed:
            if alike.gpus < gpus:
                found |= alike.machines
        return found

    def left(self, forecast: Forecast, bound: Bound) -> float:
        """What a job has left, as it weighs, worked out once a plan; -1 of who is loading."""
        if bound.asked != self._plans:
            bound.asked = self._plans
            weighs = bound.alike.weighs
            size = weighs * bound.size(forecast)
            if weighs * bound.most > _LOOSE * size + weighs:
                self._changed[bound.job.id] = bound.job
            bound.left = size if settled(bound.job, forecast.now) else -1.0
        return bound.left

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
            for job in changed.values():
                self._look_again(forecast, job)
        due = self._due
        while due and due[0][0] <= now:
            _, number, bound = heappop(due)
            if bound.due == number:
                self._bound(forecast, bound)
        if len(due) > 4 * len(self._bounds) + 64:  # mostly of bounds that hold no more
            self._due = [each for each in due if each[2].due == each[1]]
            heapify(self._due)

    def _look_again(self, forecast: Forecast, job: ActiveJob) -> None:
        """At a job that came, went, or has a bound that is too loose."""
        held = job.placement if job.id in self._view.preemptible else None
        bound = self._bounds.get(job.id)
        if bound is not None:
            if bound.job is job and bound.placement is held:  # objects
                self._bound(forecast, bound)
                return
            self._forget(bound)
        if held is not None:
            alike = self._alike.get(job.gpus)
            if alike is None:
                alike = self._alike[job.gpus] = Alike(job.gpus)
            first = self._view.topology.machines[held.slices[0][0]]
            bound = self._bounds[job.id] = Bound(job, held, forecast, first, alike)
            alike.add(bound)
            for machine, mask in held.slices:
                self.there[machine].append(Here(bound, gpus_in(mask)))
                alike.machines |= 1 << machine
            self._bound(forecast, bound)

    def _forget(self, bound: Bound) -> None:
        del self._bounds[bound.job.id]
        bound.alike.remove(bound)
        bound.due = 0
        for machine, _ in bound.placement.slices:
            there = self.there[machine] = [here for here in self.there[machine] if here.bound is not bound]  # objects
            if not any_of(there, bound.alike):
                bound.alike.machines ^= 1 << machine

    def _bound(self, forecast: Forecast, bound: Bound) -> None:
        """What it has left at most from now on, and until when."""
        size, until = forecast.most(bound.job)
        bound.alike.change(bound, size * (1.0 + _ROUNDING) + _ROUNDING)
        bound.due = 0
        if until < math.inf:
            self._dues += 1
            bound.due = self._dues
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
