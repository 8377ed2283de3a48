"""Plans in which some jobs must be consolidated or wait: the order decides who, the profile decides where.

The cluster is handed out from the top of the order, as in `greedy`, but with concrete GPUs. A job that need not be
consolidated takes what there is, as tightly as it goes. One that must be takes the fewest machines that could ever
hold it, free or held by jobs behind it; if there are none it waits and others pass. GPUs are taken from the fewest
jobs, the hindmost first. Waiting jobs are kept in lanes of equal demand and equal need, so that one look at a
lane's head answers for all behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from heapq import heapify, heappop, heapreplace

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool
from dally.core.placement import Placement
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Bucket, Entry, Rank
from dally.core.reasons import Reason, Token
from dally.core.topology import Topology
from dally.policies.greedy import waits_for_gpus
from dally.policies.placing import place_best_fit, place_within, pools_for
from dally.policies.room import enough, make_room
from dally.policies.tiresias.behind import Behind, Place
from dally.policies.tiresias.profile import Packing

Lane = tuple[Demand, bool]  # demand, must be consolidated
_STANDS_STILL = Rank(0.0)  # the ranks of waiting jobs do not change with time


class Lanes:
    """Waiting jobs by demand and need, in the policy's order: follows the view's queue (`Ranking.watch`)."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.buckets: dict[Lane, Bucket] = {}  # only those that are not empty
        self._where: dict[str, Lane] = {}
        self._least: Fewest | None = None
        self._behind: Behind | None = None
        self._said: dict[str, tuple[str, bool, int, Wait]] = {}  # what `explain` last made of what it was told
        self._failed: dict[Lane, Place] = {}  # from there on, nobody of the lane is served, as long as
        self._as_of = (-1, -1, -1)  # the layout, free GPUs and running jobs are those of then

    def added(self, job: ActiveJob, entry: Entry) -> None:
        lane = self._where[job.id] = self._lane(job)
        bucket = self.buckets.get(lane)
        if bucket is None:
            bucket = self.buckets[lane] = Bucket(job.demand, _STANDS_STILL)
        bucket.add(entry)

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        lane = self._where.pop(job.id)
        self._said.pop(job.id, None)
        bucket = self.buckets[lane]
        bucket.remove(entry)
        if not bucket.entries:
            del self.buckets[lane]

    def _lane(self, job: ActiveJob) -> Lane:
        """Who says itself where it must be is not held to anything more."""
        free = job.demand.where is None or not job.demand.bound
        return (job.demand, job.gpus > 1 and free and self.packing.verdict(job.job).picky)

    def astray(self, view: View) -> list[ActiveJob]:
        """Whose need is another one than when they came. Looks at everybody: PACKLIMIT seldom moves."""
        return [job for job in view.waiting if self._where[job.id] != self._lane(job)]

    def least(self, view: View) -> Fewest:
        if self._least is None or self._least.layout != view.layout:
            self._least = Fewest(view.topology, view.down, view.layout)
        return self._least

    def behind(self, view: View) -> Behind:
        """Kept from the first time on that anybody waits."""
        if self._behind is None:
            self._behind = Behind(view)
        return self._behind

    def failed(self, view: View, behind: Behind) -> dict[Lane, Place]:
        """From which place on nobody of a lane was served the last time, if everything is as it was; else empty, to be
        filled. Others who came in between have only taken."""
        as_of = (view.layout, view.free.changes, behind.changes)
        if as_of != self._as_of or not behind.lasts:
            self._as_of = as_of
            self._failed.clear()
        return self._failed

    def explain(self, job: ActiveJob, most: int, machine: int) -> Wait:
        """The profile's decision and its evidence, and what the job waits for; `most`: free GPUs of one type."""
        picky, because = self.packing.verdict(job.job)
        there = most >= job.gpus
        said = self._said.get(job.id)
        if said is None or said[0] != because or said[1] != there or said[2] != machine:
            wait = _wait(job, picky, because, there, machine)
            if job.id not in self._where:  # it has just lost its GPUs: it is not in a lane yet
                return wait
            said = self._said[job.id] = (because, there, machine, wait)
        return said[3]


def _wait(job: ActiveJob, picky: bool, because: str, there: bool, machine: int) -> Wait:
    need = job.gpus
    if job.demand.where is not None and job.demand.bound:
        return Wait(job.id, waits_for_gpus(job.demand).reason)
    if need == 1 or not picky:
        said = "" if need == 1 else f"; {because}, so it takes any GPUs"
        return Wait(job.id, Reason(Token.WAITING_FOR_GPUS, f"fewer than {need} GPUs are free for it{said}"))
    where = "one machine" if need <= machine else f"{-(-need // machine)} machines"
    token = Token.WAITING_FOR_LOCALITY if there else Token.WAITING_FOR_GPUS
    return Wait(job.id, Reason(token, f"{because}: it waits for {need} free GPUs on {where}"))


def plan_with_locality(view: View, now: float, lanes: Lanes, unexplained: Sequence[ActiveJob],
                       lease: float | None = None) -> Plan:  # fmt: skip
    """Order of rank, skipping what does not fit or has no place near enough; GPUs of jobs behind may be taken. Those
    who stay are told why: the first of each lane, and who has not been told yet."""
    if not lanes.buckets:
        return []
    least, behind = lanes.least(view), lanes.behind(view)
    # waiting ranks do not change with time, so an entry is its place in the order; no two are equal
    heads: list[tuple[Place, int, Lane, Bucket]] = [
        (bucket.entries[0], 0, lane, bucket) for lane, bucket in lanes.buckets.items()]
    heapify(heads)
    starts: Plan = []
    started: dict[str, ActiveJob] = {}
    explained: list[ActiveJob] = []
    hopeless = _Hopeless()
    behind.begin(now)
    failed = lanes.failed(view, behind)
    try:
        with view.free.trial() as free:
            while heads:
                place, position, lane, bucket = heads[0]
                job: ActiveJob = place[4]
                placement = None
                known = failed.get(lane)
                # whose GPUs are taken may leave some to others who could not have taken them
                if (known is None or place < known or behind.evicted) and not hopeless.at(lane[0]):
                    placement = (_compact if lane[1] else _whatever)(free, lane[0], behind, least, place)
                    if placement is None and not lane[1]:
                        hopeless.found(lane[0])
                if placement is None:
                    heappop(heads)  # what can be had only gets less: nobody else of this lane is served either
                    explained.append(job)
                    if not starts and (known is None or place < known):  # the plan may come to nothing
                        failed[lane] = place
                    continue
                free.take(placement)
                starts.append(Start(job.id, placement, lease))
                started[job.id] = job
                position += 1
                if position == len(bucket.entries):
                    heappop(heads)
                else:
                    heapreplace(heads, (bucket.entries[position], position, lane, bucket))
            most = max(pool.total for pool in free.pools.values())
        evicted = list(behind.evicted.values())
    finally:
        behind.end()
    plan: Plan = [Preempt(job.id) for job in evicted]
    plan += starts
    gone = Counter([job.demand for job in started.values()])
    # whose GPUs come back at no cost waits from this instant on, and needs a reason as well
    waiting = [demand for demand, bucket in view.waiting.buckets.items()
               if not gone or len(bucket.entries) > gone[demand]]  # fmt: skip
    waiting += [job.demand for job in evicted]
    told: dict[str, ActiveJob] = {job.id: job for job in (*explained, *unexplained) if job.id not in started}
    said = [waits_for_gpus(demand) for demand in dict.fromkeys(waiting)]
    said += [lanes.explain(job, most, least.largest) for job in told.values()]
    reasons = view.reasons
    plan += [wait for wait in said if reasons.get(wait.who) != wait.reason]  # what was said holds
    return plan


class _Hopeless:
    """So many GPUs of a type, or of any, were neither free nor held by somebody behind. Further back in the order there
    are no more: that answers for all who ask for as many, wherever they would have to be."""

    def __init__(self) -> None:
        self._any = 1 << 62
        self._of: dict[str, int] = {}

    def at(self, demand: Demand) -> bool:
        gpus, kind = demand.gpus, demand.gpu_type
        return gpus >= self._any or (kind is not None and kind in self._of and gpus >= self._of[kind])

    def found(self, demand: Demand) -> None:
        if demand.where is not None and demand.bound:
            return  # there are GPUs perhaps, but not where it must be
        if demand.gpu_type is None:
            self._any = min(self._any, demand.gpus)
        else:
            self._of[demand.gpu_type] = min(self._of.get(demand.gpu_type, demand.gpus), demand.gpus)


def _whatever(free: FreeGpus, demand: Demand, behind: Behind, least: Fewest, place: Place) -> Placement | None:
    """Any GPUs of one type, best fit: it costs nothing and leaves whole machines to those who need them."""
    found = place_best_fit(free, demand)
    if found is not None:
        return found
    if demand.where is not None and demand.bound:
        victims = make_room(free, demand, behind.all(place))
        _evict(free, behind, victims or [])
        return None if victims is None else place_best_fit(free, demand)
    reach = behind.reach(place)
    best: tuple[int, list[ActiveJob], str] | None = None
    for kind, pool in free.pools.items():
        need = demand.gpus - pool.total
        if demand.gpu_type in (None, kind) and reach.totals.get(kind, 0) >= need:
            victims = enough(need, ((job, job.gpus) for job in behind.all(place) if _kind(free, job) == kind))
            if victims is not None and (best is None or len(victims) < best[0]):
                best = (len(victims), victims, kind)
    if best is None:
        return None
    _evict(free, behind, best[1])
    return place_best_fit(free, Demand(demand.gpus, best[2]))


def _compact(free: FreeGpus, demand: Demand, behind: Behind, least: Fewest, place: Place) -> Placement | None:
    """The fewest machines that could ever hold the gang: first free ones, then the machines where the most is free
    and the rest is held by jobs further back; then the victims inside them."""
    found = place_compact(free, demand, least)
    if found is not None:
        return found
    reach, level = behind.reach(place), free.topology.machine_level
    for kind, pool in free.pools.items():
        if demand.gpu_type not in (None, kind) or pool.total + reach.totals.get(kind, 0) < demand.gpus:
            continue
        fewest = least.machines(kind, demand.gpus)
        if fewest is None:
            continue
        up = least.up(kind)
        if fewest == 1:  # few victims first
            one = reach.one_machine(pool, level, up, demand.gpus)
            chosen = None if one is None else {one}
        else:  # those with most to give
            chosen = reach.machines(pool, level, up, demand.gpus, fewest)
        if chosen is None:
            continue
        need = demand.gpus - sum(free.masks[m].bit_count() for m in chosen)
        victims = enough(need, ((job, _inside(job, chosen)) for job in behind.on(chosen, place)))
        if victims is not None:
            _evict(free, behind, victims)
            return place_compact(free, Demand(demand.gpus, kind), least)
    return None


def _evict(free: FreeGpus, behind: Behind, victims: list[ActiveJob]) -> None:
    for job in victims:
        assert job.placement is not None
        free.give(job.placement)
        behind.evict(job)


def _kind(free: FreeGpus, job: ActiveJob) -> str:
    assert job.placement is not None
    return free.topology.machines[job.placement.slices[0][0]].gpu_type


def _inside(job: ActiveJob, machines: set[int]) -> int:
    assert job.placement is not None
    return sum(mask.bit_count() for machine, mask in job.placement.slices if machine in machines)


def place_compact(free: FreeGpus, demand: Demand, least: Fewest) -> Placement | None:
    """On the fewest machines that could ever hold the gang, in the innermost domain that has them; else None."""
    for pool in pools_for(free, demand):
        fewest = least.machines(pool.gpu_type, demand.gpus)
        if fewest is not None and (found := _on_fewest(free, pool, demand.gpus, fewest)) is not None:
            return found
    return None


def _on_fewest(free: FreeGpus, pool: Pool, gpus: int, fewest: int) -> Placement | None:
    levels = len(free.topology.levels)
    last = free.topology.machine_level + 1 if fewest == 1 else levels
    for level in range(min(last, levels)):
        found = place_within(free, pool, gpus, level, tight=True)
        if found is not None and len(found.slices) <= fewest:
            return found
    return None


class Fewest:
    """How many machines a gang needs at least, of those that are up."""

    def __init__(self, topology: Topology, down: Set[int], layout: int) -> None:
        self.layout = layout  # for which this was counted
        sizes: dict[str, list[int]] = {}
        self._up: dict[str, int] = {}
        for machine in topology.machines:
            if machine.index not in down:
                sizes.setdefault(machine.gpu_type, []).append(machine.gpus)
                self._up[machine.gpu_type] = self._up.get(machine.gpu_type, 0) | 1 << machine.index
        self._sizes = {kind: sorted(found, reverse=True) for kind, found in sizes.items()}
        self.largest = max((found[0] for found in self._sizes.values()), default=1)

    def machines(self, gpu_type: str, gpus: int) -> int | None:
        """None where it does not fit at all."""
        left = gpus
        for count, size in enumerate(self._sizes.get(gpu_type, ()), 1):
            left -= size
            if left <= 0:
                return count
        return None

    def up(self, gpu_type: str) -> int:
        """The machines of a type that are up, as a bit set."""
        return self._up.get(gpu_type, 0)
