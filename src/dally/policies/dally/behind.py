"""Running jobs that may lose their GPUs, the hindmost of the order first: nobody looks further than it must.

What a job has left changes all the time, each at its own rate, so no order by it lasts. What it has at most for a while
does (`Beliefs.most`): jobs of one size are kept in that order, and worked out exactly only until no other can come
before; sizes are weighed against each other when somebody asks. What is kept follows the index of preemptible jobs; as
long as nobody asks, a change costs a note.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.ranking import Entry
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.taking import Holder
from dally.policies.dally.tiers import Tiers

_LOOSE = 2.0  # times what a job has left that it may be said to have at most, before that is worked out again
_MANY = 256  # jobs worked out to see which domains they could open; to look on would cost more than it saves
_ROUNDING = 1e-9  # relative: what is at most so much is never found to be more

# seconds left at most, number of the job, the job; its machine and its GPUs there, or -1 where it has several
Bound = tuple[float, int, ActiveJob, int, int]
Class = tuple[Demand, int, int]  # what a running gang would ask for to be nearer; its tier and its machines now
Victim = tuple[float, ActiveJob]  # seconds left, as they weigh; the job


class Hindmost:
    """Those of one plan, the hindmost first, the later to come where equal; not those that are loading. Worked out as
    far as somebody has looked. `most`: nobody has more left, as it weighs."""

    __slots__ = ("_found", "_more", "most")

    def __init__(self, most: float, more: Iterator[Victim]) -> None:
        self.most = most
        self._found: list[Victim] = []
        self._more = more

    def beyond(self, least: float) -> Iterator[Victim]:
        """Those with more than so much left."""
        at, found = 0, self._found
        while True:
            if at == len(found):
                victim = next(self._more, None)
                if victim is None:
                    return
                found.append(victim)
            victim = found[at]
            if victim[0] <= least:
                return
            yield victim
            at += 1


class Behind:
    """A watcher of the view's `preemptible`."""

    def __init__(self, view: View, tiers: Tiers) -> None:
        self._view, self._tiers = view, tiers
        self.held = FreeGpus(view.topology)  # GPUs that could be taken, in the form of free ones
        for machine in view.topology.machines:
            self.held.take_mask(machine.index, machine.full_mask)
        self._basis = -1.0  # the beliefs that bounds were worked out by
        self._time = 0.0  # and when: they hold from then on, and somebody may have looked ahead
        self._bounds: dict[str, tuple[Bound, Placement]] = {}
        self._orders: dict[int, list[Bound]] = {}  # by GPUs of the job, ascending
        self._weighed: list[tuple[float, list[Bound]]] = []  # the same with what a second of theirs counts in this plan
        self._due: list[tuple[float, int, Bound]] = []  # until when a bound holds
        self._changed: dict[str, ActiveJob] = {}  # since the order was last brought up to date
        self._moved: dict[str, ActiveJob] = {}  # since those apart were
        self._class: dict[str, Class] = {}
        self.apart: dict[Class, dict[str, ActiveJob]] = {}  # of preemptible jobs, those that could be nearer together

    def added(self, job: ActiveJob, entry: Entry) -> None:
        self._changed[job.id] = self._moved[job.id] = job

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        self._changed[job.id] = self._moved[job.id] = job

    def in_order(self, forecast: Forecast, weight: Callable[[int], float]) -> Hindmost:
        """For one plan. `weight`: what a second of a gang of so many GPUs counts."""
        self._bring_up_to_date(forecast)
        self._weighed = [(weight(gpus), order) for gpus, order in self._orders.items() if order]
        most = 0.0
        for weighs, order in self._weighed:
            most = max(most, weighs * order[-1][0])
        return Hindmost(most, self._exactly(forecast))

    def may_open(self, free: FreeGpus, gpus: int, kind: str, level: int, least: float) -> bool:
        """Whether a domain of a level could come to hold so many GPUs by what jobs with more than `least` left hold, as
        far as what they have at most can tell: most who ask are told no by that."""
        machines, tier = free.topology.machines, level - free.topology.machine_level
        counts, mixed = _counts(free, kind, level), len(free.pools) > 1
        for weighs, order in self._weighed:
            for most, _, job, machine, held in reversed(order):
                if weighs * most <= least:
                    break
                if machine >= 0:
                    if mixed and machines[machine].gpu_type != kind:
                        continue
                    domain = machines[machine].domains[tier] if tier else machine
                    counts[domain] += held
                    if counts[domain] >= gpus:
                        return True
                    continue
                assert job.placement is not None
                for machine, mask in job.placement.slices:
                    if machines[machine].gpu_type == kind:
                        domain = machines[machine].domains[tier]
                        counts[domain] += mask.bit_count()
                        if counts[domain] >= gpus:
                            return True
        return False

    def holders(self, free: FreeGpus, gpus: int, kind: str, level: int, least: float,
                forecast: Forecast) -> dict[int, list[Holder]] | None:  # fmt: skip
        """By domain of a level, where they hold enough together, the jobs with more than `least` left; None where there
        are too many to look at all of them."""
        machines, tier = free.topology.machines, level - free.topology.machine_level
        counts = _counts(free, kind, level)
        found: list[tuple[float, int, ActiveJob]] = []
        able: dict[int, list[Holder]] = {}
        looked, now = 0, forecast.now
        for weighs, order in self._weighed:
            for most, number, job, _, _ in reversed(order):
                if weighs * most <= least:
                    break
                looked += 1
                if looked > _MANY:
                    return None
                size = weighs * forecast.size(job)
                if weighs * most > _LOOSE * size + weighs:
                    self._changed[job.id] = job
                if size <= least or not settled(job, now):
                    continue
                found.append((-size, -number, job))
                for machine, mask in job.placement.slices if job.placement is not None else ():
                    if machines[machine].gpu_type == kind:
                        domain = machines[machine].domains[tier]
                        counts[domain] += mask.bit_count()
                        if counts[domain] >= gpus and domain not in able:
                            able[domain] = []
        for minus, number, job in found if able else ():
            for at, (machine, mask) in enumerate(job.placement.slices if job.placement is not None else ()):
                there = able.get(machines[machine].domains[tier])
                if there is not None and machines[machine].gpu_type == kind:
                    there.append((minus, number, at, job, mask.bit_count()))
        return able

    def _exactly(self, forecast: Forecast) -> Iterator[Victim]:
        now = forecast.now
        heads: list[tuple[float, int, float, ActiveJob, Iterator[Bound]]] = []  # at most; the next of each size
        for weighs, order in self._weighed:
            more = reversed(order)
            for most, number, job, _, _ in more:
                heads.append((-weighs * most, number, weighs, job, more))
                break
        heapify(heads)
        nearly: list[tuple[float, int, ActiveJob]] = []
        while heads:
            least, _, weighs, job, more = heads[0]
            while nearly and nearly[0][0] < least:
                size, _, first = heappop(nearly)
                yield -size, first
            size = weighs * forecast.size(job)
            if -least > _LOOSE * size + weighs:
                self._changed[job.id] = job
            if settled(job, now):
                heappush(nearly, (-size, -job.number, job))
            for most, number, job, _, _ in more:
                heapreplace(heads, (-weighs * most, number, weighs, job, more))
                break
            else:
                heappop(heads)
        while nearly:
            size, _, first = heappop(nearly)
            yield -size, first

    def _bring_up_to_date(self, forecast: Forecast) -> None:
        basis = forecast.memory.basis
        if basis != self._basis or forecast.now < self._time:
            self._basis = basis
            for bound, _ in self._bounds.values():
                self._changed[bound[2].id] = bound[2]
        self._time = forecast.now
        if self._changed:
            changed, self._changed = self._changed, {}
            preemptible = self._view.preemptible
            for job_id in changed:
                known = self._bounds.pop(job_id, None)
                if known is not None:
                    self._leave(known[0])
                    self.held.take(known[1])
            for job in changed.values():  # once all that went are gone: their GPUs may be others' by now
                if job.id in preemptible:
                    assert job.placement is not None
                    self.held.give(job.placement)
                    self._bound(forecast, job, job.placement)
        due, now = self._due, forecast.now
        while due and due[0][0] <= now:
            bound = heappop(due)[2]
            known = self._bounds.get(bound[2].id)
            if known is not None and known[0] == bound:
                self._leave(bound)
                self._bound(forecast, bound[2], known[1])
        if len(due) > 4 * len(self._bounds) + 64:  # mostly of bounds that hold no more
            self._due = [each for each in due if (known := self._bounds.get(each[2][2].id)) is not None
                         and known[0] == each[2]]  # fmt: skip
            heapify(self._due)

    def _bound(self, forecast: Forecast, job: ActiveJob, placement: Placement) -> None:
        size, until = forecast.most(job)
        most = size * (1.0 + _ROUNDING) + _ROUNDING
        alone = len(placement.slices) == 1
        bound = (most, job.number, job, placement.slices[0][0] if alone else -1, placement.gpus)
        self._bounds[job.id] = (bound, placement)
        order = self._orders.get(job.gpus)
        if order is None:
            order = self._orders[job.gpus] = []
        insort(order, bound)
        if until < float("inf"):
            heappush(self._due, (until, job.number, bound))

    def _leave(self, bound: Bound) -> None:
        order = self._orders[bound[2].gpus]
        del order[bisect_left(order, bound)]

    def could_be_nearer(self, forecast: Forecast) -> dict[Class, dict[str, ActiveJob]]:
        """Preemptible jobs that could be nearer together were everything free, by what they would ask for."""
        if self._moved:
            preemptible, apart = self._view.preemptible, forecast.memory.apart
            for job in self._moved.values():
                before = self._class.pop(job.id, None)
                if before is not None:
                    del self.apart[before][job.id]
                    if not self.apart[before]:
                        del self.apart[before]
                if job.id in apart and job.id in preemptible:
                    assert job.placement is not None
                    self._class[job.id] = found = self._class_of(job, job.placement)
                    self.apart.setdefault(found, {})[job.id] = job
            self._moved = {}
        return self.apart

    def _class_of(self, job: ActiveJob, held: Placement) -> Class:
        kind = self._view.topology.machines[held.slices[0][0]].gpu_type
        return Demand(held.gpus, kind, job.demand.where), self._tiers.of(held), len(held.slices)


def _counts(free: FreeGpus, kind: str, level: int) -> list[int]:
    """Free GPUs by domain of a level, to add to."""
    pool = free.pools[kind]
    return [pool.total] if level == len(free.topology.levels) - 1 else list(pool.counts[level])


def settled(job: ActiveJob, now: float) -> bool:
    """Whether it is through with loading."""
    return now > job.progress_from or job.progress_from == job.last_change
