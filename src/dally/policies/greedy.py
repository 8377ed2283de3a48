"""Give the GPUs to jobs in order of rank: the plan shared by every policy that is "an order, and skip what
does not fit", with or without taking GPUs from jobs further back in the order.

The result is exactly that of sorting all jobs, waiting and running, and handing out the cluster from the top.
The cost is not: only the waiting job at the head of each demand can be next, and running jobs are visited from
the back of the order only as far as somebody in front needs their GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from dally.core.active import ActiveJob
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Bucket, Key
from dally.core.reasons import Reason, Token
from dally.policies.placing import Rule
from dally.policies.room import make_room

Chosen = list[tuple[ActiveJob, Demand]]  # jobs to start, with the GPU type settled


@lru_cache(maxsize=4096)
def waits_for_gpus(demand: Demand) -> Wait:
    kind = f"{demand.gpu_type} " if demand.gpu_type else ""
    return Wait(demand, Reason(Token.WAITING_FOR_GPUS, f"fewer than {demand.gpus} {kind}GPUs{demand.inside} are "
                               "free for it"))  # fmt: skip


@lru_cache(maxsize=4096)
def waits_its_turn(demand: Demand) -> Wait:
    return Wait(demand, Reason(Token.PRIORITY, "a job before it in the order does not fit yet, and nobody passes it"))


def plan_in_order(view: View, now: float, place: Rule) -> Plan:
    """Strict order: the first job that does not fit blocks all behind it, unless what is up of the cluster could not
    hold it even if it were empty."""
    if view.waiting.inside:
        return _plan_by_trying(view, now, place, preempt=False, lease=None, strict=True)
    heads = dict.fromkeys(view.waiting.buckets, 0)
    free = _free_counts(view)
    chosen: Chosen = []
    blocked: Demand | None = None
    while heads and blocked is None:
        bucket, _ = _first(view, heads, now)
        settled = _fits(bucket.demand, free)
        if settled is not None:
            free[settled] -= bucket.demand.gpus
            chosen.append((bucket.job(heads[bucket.demand]), Demand(bucket.demand.gpus, settled)))
            _advance(heads, bucket)
        elif view.too_large(bucket.demand) is not None:
            del heads[bucket.demand]
        else:
            blocked = bucket.demand
    plan = _carry(view, [], chosen, place, None)
    plan += [_waits_in_order(view, demand, blocked) for demand in _still_waiting(view, [], chosen)]
    return plan


def _waits_in_order(view: View, demand: Demand, blocked: Demand | None) -> Wait:
    """The first that does not fit waits for GPUs, those behind it for their turn."""
    if demand == blocked:
        return waits_for_gpus(demand)
    beyond = view.too_large(demand)
    return waits_its_turn(demand) if beyond is None else Wait(demand, beyond)


def plan_by_rank(view: View, now: float, place: Rule, *, preempt: bool, lease: float | None = None) -> Plan:
    """Order of rank, skipping what does not fit; with `preempt`, GPUs of jobs further back are for the taking."""
    if not view.waiting.buckets:
        return []
    if view.waiting.inside:
        return _plan_by_trying(view, now, place, preempt=preempt, lease=lease, strict=False)
    free = _free_counts(view)
    heads = dict.fromkeys(view.waiting.buckets, 0)
    back = _Back(view, now) if preempt else None
    released: list[tuple[Key, ActiveJob, str]] = []  # running jobs taken from the back; the last is foremost
    chosen: Chosen = []
    evicted: list[ActiveJob] = []

    def settle_foremost_released() -> None:
        """Its turn in the order has come: it keeps its GPUs if as many are left, else it goes."""
        _, job, kind = released.pop()
        if free[kind] >= job.gpus:
            free[kind] -= job.gpus
        else:
            evicted.append(job)

    while heads:
        if back is None:
            for demand in [d for d in heads if _fits(d, free) is None]:
                del heads[demand]  # free GPUs only get fewer: nobody else of this demand fits either
            if not heads:
                break
        bucket, key = _first(view, heads, now)
        demand = bucket.demand
        while released and released[-1][0] < key:
            settle_foremost_released()
        settled = _fits(demand, free)
        if settled is None and back is not None:
            while settled is None and (job := back.pop_behind(key)) is not None:
                released.append(job)
                free[job[2]] += job[1].gpus
                settled = _fits(demand, free)
        if settled is None:
            del heads[demand]
        else:
            free[settled] -= demand.gpus
            chosen.append((bucket.job(heads[demand]), Demand(demand.gpus, settled)))
            _advance(heads, bucket)
    while released:
        settle_foremost_released()
    plan = _carry(view, evicted, chosen, place, lease)
    plan += [waits_for_gpus(demand) for demand in _still_waiting(view, evicted, chosen)]
    return plan


def _plan_by_trying(view: View, now: float, place: Rule, *, preempt: bool, lease: float | None,
                    strict: bool) -> Plan:  # fmt: skip
    """The same order where somebody must be in certain places: counts do not say whether it fits, so everybody is
    placed when its turn has come, and GPUs are taken from no more jobs than open a domain for it."""
    heads = dict.fromkeys(view.waiting.buckets, 0)
    back = _Back(view, now) if preempt else None
    behind: list[tuple[Key, ActiveJob]] = []  # hindmost first, as far as anybody has looked
    evicted: dict[str, ActiveJob] = {}
    chosen: Chosen = []
    starts: Plan = []
    blocked: Demand | None = None

    def candidates(key: Key) -> Iterator[ActiveJob]:
        assert back is not None
        yield from (job for place, job in behind if place > key and job.id not in evicted)
        while (found := back.pop_behind(key)) is not None:
            behind.append(found[:2])
            yield found[1]

    with view.free.trial() as free:
        while heads and blocked is None:
            bucket, key = _first(view, heads, now)
            demand = bucket.demand
            placement = place(free, demand)
            if placement is None and back is not None:
                victims = make_room(free, demand, candidates(key))
                for job in victims or ():
                    assert job.placement is not None
                    free.give(job.placement)
                    evicted[job.id] = job
                placement = None if victims is None else place(free, demand)
            if placement is None:
                if strict and view.too_large(demand) is None:
                    blocked = demand
                del heads[demand]  # free GPUs only get fewer: nobody else of this demand fits either
                continue
            job = bucket.job(heads[demand])
            free.take(placement)
            starts.append(Start(job.id, placement, lease))
            chosen.append((job, demand))
            _advance(heads, bucket)
    still = _still_waiting(view, list(evicted.values()), chosen)
    told = [_waits_in_order(view, d, blocked) if strict else waits_for_gpus(d) for d in still]
    return [*(Preempt(job_id) for job_id in evicted), *starts, *told]


class _Back:
    """Preemptible jobs from the back of the order forwards, merged over the demands."""

    def __init__(self, view: View, now: float) -> None:
        self.view = view
        self.now = now
        self.tails: list[tuple[Key, Bucket, int]] | None = None

    def pop_behind(self, key: Key) -> tuple[Key, ActiveJob, str] | None:
        """The hindmost job not yet visited, if it is behind `key`."""
        tails = self.tails
        if tails is None:
            tails = self.tails = [(bucket.key(-1, self.now), bucket, len(bucket) - 1)
                                  for bucket in self.view.preemptible.buckets.values()]  # fmt: skip
        while tails:
            index = 0
            for other in range(1, len(tails)):
                if tails[other][0] > tails[index][0]:
                    index = other
            found, bucket, position = tails[index]
            if found <= key:
                return None
            if position == 0:
                tails.pop(index)
            else:
                tails[index] = (bucket.key(position - 1, self.now), bucket, position - 1)
            job = bucket.job(position)
            assert job.placement is not None
            if self.now > job.progress_from or job.progress_from == job.last_change:
                return found, job, self.view.topology.machines[job.placement.slices[0][0]].gpu_type
            # It still waits for its GPUs or loads its checkpoint. To take them now would make it pay again
            # for nothing, and two jobs that each look better while waiting would swap places for ever.
        return None


def _free_counts(view: View) -> dict[str, int]:
    return {kind: pool.total for kind, pool in view.free.pools.items()}


def _fits(demand: Demand, free: dict[str, int]) -> str | None:
    """The GPU type that would serve the demand: the one wanted, else the one with most free."""
    kind = demand.gpu_type if demand.gpu_type is not None else max(free, key=free.__getitem__)
    return kind if free.get(kind, 0) >= demand.gpus else None


def _first(view: View, heads: dict[Demand, int], now: float) -> tuple[Bucket, Key]:
    """Whose head is first of all, and the key it is first by."""
    buckets = view.waiting.buckets
    found: tuple[Bucket, Key] | None = None
    for demand, position in heads.items():
        bucket = buckets[demand]
        key = bucket.key(position, now)
        if found is None or key < found[1]:
            found = bucket, key
    assert found is not None
    return found


def _advance(heads: dict[Demand, int], bucket: Bucket) -> None:
    heads[bucket.demand] += 1
    if heads[bucket.demand] == len(bucket.entries):
        del heads[bucket.demand]


def _still_waiting(view: View, evicted: list[ActiveJob], chosen: Chosen) -> list[Demand]:
    """Demands of which somebody waits once those evicted are back in the queue and those chosen have started."""
    buckets = view.waiting.buckets
    if not chosen:
        return list(buckets)
    started: dict[Demand, int] = {}
    for job, _ in chosen:
        started[job.demand] = started.get(job.demand, 0) + 1
    waiting = [demand for demand, bucket in buckets.items() if len(bucket.entries) > started.get(demand, 0)]
    return waiting + list(dict.fromkeys(job.demand for job in evicted if job.demand not in waiting))


def _carry(view: View, evicted: list[ActiveJob], chosen: Chosen, place: Rule, lease: float | None) -> Plan:
    """Turn counts into concrete GPUs: what is evicted is vacated first, then gangs are placed in order."""
    if not evicted and not chosen:
        return []
    if len(chosen) == 1 and not evicted:
        job, demand = chosen[0]  # nobody else to make room for: nothing to try out
        placement = place(view.free, demand)
        assert placement is not None, "a gang that fits by count can be placed"
        return [Start(job.id, placement, lease)]
    plan: Plan = [Preempt(job.id) for job in evicted]
    with view.free.trial() as free:
        for job in evicted:
            assert job.placement is not None
            free.give(job.placement)
        for number, (job, demand) in enumerate(chosen, 1):
            placement = place(free, demand)
            assert placement is not None, "a gang that fits by count can be placed"
            plan.append(Start(job.id, placement, lease))
            if number < len(chosen):  # after the last one nobody looks
                free.take(placement)
    return plan
