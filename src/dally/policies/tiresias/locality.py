"""Plans in which some jobs must be consolidated or wait: the order decides who, the profile decides where.

The cluster is handed out from the top of the order, as in `greedy`, but with concrete GPUs. A job that need not be
consolidated takes what there is, as tightly as it goes. One that must be takes the fewest machines that could ever
hold it, free or held by jobs behind it; if there are none it waits and others pass. GPUs are taken from the fewest
jobs, the hindmost first. Waiting jobs are kept in lanes of equal demand and equal need, so that one look at a
lane's head answers for all behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from heapq import heapify, heappop, heapreplace, merge
from operator import itemgetter

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool
from dally.core.placement import Placement
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Bucket, Entry, Key, Rank
from dally.core.reasons import Reason, Token
from dally.core.topology import Topology
from dally.policies.greedy import waits_for_gpus
from dally.policies.placing import place_best_fit, place_within, pools_for
from dally.policies.room import enough, make_room
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

    def added(self, job: ActiveJob, entry: Entry) -> None:
        lane = self._where[job.id] = self._lane(job)
        bucket = self.buckets.get(lane)
        if bucket is None:
            bucket = self.buckets[lane] = Bucket(job.demand, _STANDS_STILL)
        bucket.add(entry)

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        lane = self._where.pop(job.id)
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

    def explain(self, job: ActiveJob, most: int, machine: int) -> Wait:
        """The profile's decision and its evidence, and what the job waits for; `most`: free GPUs of one type."""
        picky, because = self.packing.verdict(job.job)
        need = job.gpus
        if job.demand.where is not None and job.demand.bound:
            return Wait(job.id, waits_for_gpus(job.demand).reason)
        if need == 1 or not picky:
            said = "" if need == 1 else f"; {because}, so it takes any GPUs"
            return Wait(job.id, Reason(Token.WAITING_FOR_GPUS, f"fewer than {need} GPUs are free for it{said}"))
        where = "one machine" if need <= machine else f"{-(-need // machine)} machines"
        token = Token.WAITING_FOR_LOCALITY if most >= need else Token.WAITING_FOR_GPUS
        return Wait(job.id, Reason(token, f"{because}: it waits for {need} free GPUs on {where}"))


class _Running:
    """Preemptible jobs, hindmost first, merged over the demands only as far as somebody needs to look."""

    def __init__(self, view: View, now: float, least: Fewest) -> None:
        self.least = least
        self.evicted: dict[str, ActiveJob] = {}
        self._now = now
        self._seen: list[tuple[Key, ActiveJob]] = []
        buckets = view.preemptible.buckets.values()
        self._more = merge(*map(self._backwards, buckets), key=itemgetter(0), reverse=True)

    def _backwards(self, bucket: Bucket) -> Iterator[tuple[Key, ActiveJob]]:
        now = self._now
        for base, then, tie, number, job in reversed(bucket.entries):
            yield (base + bucket.slope * now, then + bucket.then_slope * now, tie, number), job

    def behind(self, key: Key) -> Iterator[ActiveJob]:
        position = 0
        while True:
            if position == len(self._seen):
                following = next(self._more, None)
                if following is None:
                    return
                self._seen.append(following)
            found, job = self._seen[position]
            if found <= key:
                return
            position += 1
            # GPUs a job has not begun to use yet are left to it: see `greedy`
            used = self._now > job.progress_from or job.progress_from == job.last_change
            if used and job.id not in self.evicted:
                yield job


def plan_with_locality(view: View, now: float, lanes: Lanes, unexplained: Sequence[ActiveJob],
                       lease: float | None = None) -> Plan:  # fmt: skip
    """Order of rank, skipping what does not fit or has no place near enough; GPUs of jobs behind may be taken. Those
    who stay are told why: the first of each lane, and who has not been told yet."""
    if not lanes.buckets:
        return []
    least = lanes.least(view)
    running = _Running(view, now, least)
    heads = [(bucket.key(0, now), 0, lane, bucket) for lane, bucket in lanes.buckets.items()]
    heapify(heads)  # keys are all different: they end with the order of arrival
    starts: Plan = []
    started: dict[str, ActiveJob] = {}
    explained: list[ActiveJob] = []
    with view.free.trial() as free:
        while heads:
            key, position, lane, bucket = heads[0]
            job = bucket.job(position)
            placement = (_compact if lane[1] else _whatever)(free, lane[0], running, key)
            if placement is None:
                heappop(heads)  # what can be had only gets less: nobody else of this lane is served either
                explained.append(job)
                continue
            free.take(placement)
            starts.append(Start(job.id, placement, lease))
            started[job.id] = job
            position += 1
            if position == len(bucket):
                heappop(heads)
            else:
                heapreplace(heads, (bucket.key(position, now), position, lane, bucket))
        most = max(pool.total for pool in free.pools.values())
    plan: Plan = [Preempt(job_id) for job_id in running.evicted]
    plan += starts
    gone = Counter(job.demand for job in started.values())
    # whose GPUs come back at no cost waits from this instant on, and needs a reason as well
    waiting = [demand for demand, bucket in view.waiting.buckets.items() if len(bucket) > gone[demand]]
    waiting += [job.demand for job in running.evicted.values()]
    plan += [waits_for_gpus(demand) for demand in dict.fromkeys(waiting)]
    told = {job.id: job for job in (*explained, *unexplained) if job.id not in started}
    plan += [lanes.explain(job, most, least.largest) for job in told.values()]
    return plan


def _whatever(free: FreeGpus, demand: Demand, running: _Running, key: Key) -> Placement | None:
    """Any GPUs of one type, best fit: it costs nothing and leaves whole machines to those who need them."""
    found = place_best_fit(free, demand)
    if found is not None:
        return found
    if demand.where is not None and demand.bound:
        victims = make_room(free, demand, running.behind(key))
        _evict(free, running, victims or [])
        return None if victims is None else place_best_fit(free, demand)
    best: tuple[int, list[ActiveJob], str] | None = None
    for kind, pool in free.pools.items():
        if demand.gpu_type in (None, kind):
            need = demand.gpus - pool.total
            victims = enough(need, ((job, job.gpus) for job in running.behind(key) if _kind(free, job) == kind))
            if victims is not None and (best is None or len(victims) < best[0]):
                best = (len(victims), victims, kind)
    if best is None:
        return None
    _evict(free, running, best[1])
    return place_best_fit(free, Demand(demand.gpus, best[2]))


def _compact(free: FreeGpus, demand: Demand, running: _Running, key: Key) -> Placement | None:
    """The fewest machines that could ever hold the gang: first free ones, then the machines where the most is free
    and the rest is held by jobs further back; then the victims inside them."""
    found = place_compact(free, demand, running.least)
    if found is not None:
        return found
    held: dict[int, int] = {}  # machine → GPUs of jobs behind
    for job in running.behind(key):
        assert job.placement is not None
        for machine, mask in job.placement.slices:
            held[machine] = held.get(machine, 0) + mask.bit_count()
    for kind, pool in free.pools.items():
        if demand.gpu_type not in (None, kind) or pool.total + sum(held.values()) < demand.gpus:
            continue
        fewest = running.least.machines(kind, demand.gpus)
        if fewest is None:
            continue
        chosen = _machines(free, running.least.of(kind), held, demand.gpus, fewest)
        if chosen is None:
            continue
        need = demand.gpus - sum(free.masks[m].bit_count() for m in chosen)
        victims = enough(need, ((job, _inside(job, chosen)) for job in running.behind(key)))
        if victims is not None:
            _evict(free, running, victims)
            return place_compact(free, Demand(demand.gpus, kind), running.least)
    return None


def _machines(free: FreeGpus, among: Sequence[int], held: dict[int, int], gpus: int, fewest: int) -> set[int] | None:
    """The machines to clear: few victims first where one machine is enough, else those with most to give."""
    masks = free.masks
    if fewest == 1:
        best, most = -1, -1
        for machine in among:
            idle = masks[machine].bit_count()
            if idle > most and idle + held.get(machine, 0) >= gpus:
                best, most = machine, idle
        return {best} if best >= 0 else None
    offers = []
    for machine in among:
        idle = masks[machine].bit_count()
        offers.append((idle + held.get(machine, 0), idle, -machine))
    offers.sort(reverse=True)
    if sum(total for total, _, _ in offers[:fewest]) < gpus:
        return None
    return {-index for _, _, index in offers[:fewest]}


def _evict(free: FreeGpus, running: _Running, victims: list[ActiveJob]) -> None:
    for job in victims:
        assert job.placement is not None
        free.give(job.placement)
        running.evicted[job.id] = job


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
        self._of: dict[str, list[int]] = {}
        for machine in topology.machines:
            if machine.index not in down:
                sizes.setdefault(machine.gpu_type, []).append(machine.gpus)
                self._of.setdefault(machine.gpu_type, []).append(machine.index)
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

    def of(self, gpu_type: str) -> Sequence[int]:
        """The machines of a type that are up, in ascending order."""
        return self._of.get(gpu_type, ())
