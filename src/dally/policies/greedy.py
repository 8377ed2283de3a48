"""Give the GPUs to jobs in order of rank: the plan shared by every policy that is "an order, and skip what
does not fit", with or without taking GPUs from jobs further back in the order.

The result is exactly that of sorting all jobs, waiting and running, and handing out the cluster from the top.
The cost is not: only the waiting job at the head of each demand can be next, and running jobs are visited from
the back of the order only as far as somebody in front needs their GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, cast

from dally.core.active import ActiveJob
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Bucket, Key, before
from dally.core.reasons import Reason, Token
from dally.policies.placing import Rule
from dally.policies.room import make_room

_MOST_DEMANDS: Final = 4096  # that are remembered
_FOR_GPUS: Final[dict[Demand, Wait]] = {}


def waits_for_gpus(demand: Demand) -> Wait:
    """Said of every demand at every plan: remembered, and without asking which was asked for last."""
    found = _FOR_GPUS.get(demand)
    if found is None:
        if len(_FOR_GPUS) >= _MOST_DEMANDS:
            _FOR_GPUS.clear()
        found = _FOR_GPUS[demand] = _waits_for_gpus(demand)
    return found


def _waits_for_gpus(demand: Demand) -> Wait:
    kind = f"{demand.gpu_type} " if demand.gpu_type else ""
    return Wait(demand, Reason(Token.WAITING_FOR_GPUS, f"fewer than {demand.gpus} {kind}GPUs{demand.inside} are "
                               "free for it"))  # fmt: skip


@lru_cache(maxsize=_MOST_DEMANDS)
def waits_its_turn(demand: Demand) -> Wait:
    return Wait(demand, Reason(Token.PRIORITY, "a job before it in the order does not fit yet, and nobody passes it"))


def plan_in_order(view: View, now: float, place: Rule) -> Plan:
    """Strict order: the first job that does not fit blocks all behind it, unless what is up of the cluster could not
    hold it even if it were empty."""
    if view.waiting.inside:
        return _plan_by_trying(view, now, place, preempt=False, lease=None, strict=True)
    heads = _heads(view, now)
    free = _Free(view)
    chosen: list[_Chosen] = []
    blocked: Demand | None = None
    while heads and blocked is None:
        head = heads[_first(heads)]
        if free.fits(head.gpus, head.kind):
            chosen.append(free.given(head))
            if not head.advance(now):
                heads.remove(head)
        elif view.too_large(head.bucket.demand) is not None:
            heads.remove(head)
        else:
            blocked = head.bucket.demand
    plan = _carry(view, [], chosen, place, None)
    reasons = view.reasons
    for demand in _still_waiting(view, [], chosen):
        wait = _waits_in_order(view, demand, blocked)
        if reasons.get(demand) != wait.reason:  # what was said holds
            plan.append(wait)
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
    chosen: list[_Chosen] = []
    evicted: list[ActiveJob] = []
    if preempt and view.preemptible.buckets:
        _hand_out(view, now, chosen, evicted)
    else:
        _hand_out_free(view, now, chosen)
    plan = _carry(view, evicted, chosen, place, lease)
    reasons = cast("dict[str | Demand, Reason]", view.reasons)
    for demand in _still_waiting(view, evicted, chosen):
        wait = waits_for_gpus(demand)
        said = reasons.get(demand)
        if said is not wait.reason and said != wait.reason:  # objects: what was said holds, mostly in the same words
            plan.append(wait)
    return plan


def _hand_out_free(view: View, now: float, chosen: list[_Chosen]) -> None:
    """Nobody loses anything: free GPUs only get fewer, so who is too large once is too large for good."""
    free = _Free(view)
    heads = [_Head(bucket, now) for demand, bucket in view.waiting.buckets.items()
             if free.fits(demand.gpus, demand.gpu_type)]  # fmt: skip
    while heads:
        head = heads[_first(heads)]
        if not free.fits(head.gpus, head.kind):
            heads.remove(head)
            continue
        chosen.append(free.given(head))
        if not head.advance(now):
            heads.remove(head)


def _hand_out(view: View, now: float, chosen: list[_Chosen], evicted: list[ActiveJob]) -> None:
    """Running jobs are taken from the back as somebody in front needs their GPUs. When its own turn in the order has
    come, such a job keeps them if as many are left, else it goes."""
    free, back = _Free(view), _Back(view, now)
    # Where a gang may be of several types, of which it is depends on whose GPUs were looked at before.
    counts = len(free.of) == 1 or all(demand.gpu_type is not None for demand in view.waiting.buckets)
    heads = _heads(view, now)
    released: list[_Running] = []  # taken from the back; the last is foremost
    while heads:
        head = heads[_first(heads)]
        while released and before(released[-1].key, head.key):
            _settle(released.pop(), free, evicted)
        fits = free.fits(head.gpus, head.kind)
        if not fits and (not counts or back.could(head.key[0], head.gpus - free.most(head.kind))):
            while not fits and (job := back.pop_behind(head.key)) is not None:
                released.append(job)
                free.of[job.kind] += job.job.gpus
                fits = free.fits(head.gpus, head.kind)
        if not fits:
            heads.remove(head)
            continue
        chosen.append(free.given(head))
        if not head.advance(now):
            heads.remove(head)
    while released:
        _settle(released.pop(), free, evicted)


def _settle(running: _Running, free: _Free, evicted: list[ActiveJob]) -> None:
    """Its turn in the order has come."""
    if free.of[running.kind] >= running.job.gpus:
        free.of[running.kind] -= running.job.gpus
    else:
        evicted.append(running.job)


def _plan_by_trying(view: View, now: float, place: Rule, *, preempt: bool, lease: float | None,
                    strict: bool) -> Plan:  # fmt: skip
    """The same order where somebody must be in certain places: counts do not say whether it fits, so everybody is
    placed when its turn has come, and GPUs are taken from no more jobs than open a domain for it."""
    heads = _heads(view, now)
    back = _Back(view, now) if preempt else None
    behind: list[_Running] = []  # hindmost first, as far as anybody has looked
    evicted: dict[str, ActiveJob] = {}
    chosen: list[_Chosen] = []
    starts: Plan = []
    blocked: Demand | None = None

    def candidates(key: Key) -> Iterator[ActiveJob]:
        assert back is not None
        yield from (each.job for each in behind if each.key > key and each.job.id not in evicted)
        while (found := back.pop_behind(key)) is not None:
            behind.append(found)
            yield found.job

    with view.free.trial() as free:
        while heads and blocked is None:
            head = heads[_first(heads)]
            demand = head.bucket.demand
            placement = place(free, demand)
            if placement is None and back is not None:
                victims = make_room(free, demand, candidates(head.key))
                for job in victims or ():
                    assert job.placement is not None
                    free.give(job.placement)
                    evicted[job.id] = job
                placement = None if victims is None else place(free, demand)
            if placement is None:
                if strict and view.too_large(demand) is None:
                    blocked = demand
                heads.remove(head)  # free GPUs only get fewer: nobody else of this demand fits either
                continue
            job = head.job()
            free.take(placement)
            starts.append(Start(job.id, placement, lease))
            chosen.append(_Chosen(job, demand))
            if not head.advance(now):
                heads.remove(head)
    still = _still_waiting(view, list(evicted.values()), chosen)
    told = [_waits_in_order(view, d, blocked) if strict else waits_for_gpus(d) for d in still]
    return [*(Preempt(job_id) for job_id in evicted), *starts, *told]


class _Chosen:
    """A job to start, with the GPU type settled."""

    __slots__ = ("demand", "job")

    def __init__(self, job: ActiveJob, demand: Demand) -> None:
        self.job, self.demand = job, demand


class _Head:
    """The first job of a demand that has not had its turn yet."""

    __slots__ = ("bucket", "gpus", "key", "kind", "position")

    def __init__(self, bucket: Bucket, now: float) -> None:
        self.bucket = bucket
        self.gpus, self.kind = bucket.demand.gpus, bucket.demand.gpu_type
        self.position = 0
        self.key: Key = bucket.key(0, now)

    def advance(self, now: float) -> bool:
        """The next one's turn, if there is one."""
        self.position += 1
        if self.position == len(self.bucket.entries):
            return False
        self.key = self.bucket.key(self.position, now)
        return True

    def job(self) -> ActiveJob:
        return self.bucket.job(self.position)


class _Running:
    """A running job, and where it stands now."""

    __slots__ = ("job", "key", "kind")

    def __init__(self, key: Key, job: ActiveJob, kind: str) -> None:
        self.key, self.job, self.kind = key, job, kind


class _Tail:
    """The hindmost job of a demand that nobody has looked at yet."""

    __slots__ = ("bucket", "key", "position")

    def __init__(self, bucket: Bucket, now: float) -> None:
        self.bucket = bucket
        self.position = len(bucket.entries) - 1
        self.key: Key = bucket.key(self.position, now)


class _Back:
    """Preemptible jobs from the back of the order forwards, merged over the demands."""

    __slots__ = ("_now", "_tails", "_too_many", "_view")

    def __init__(self, view: View, now: float) -> None:
        self._view = view
        self._now = now
        self._tails: list[_Tail] | None = None
        self._too_many = 1 << 60  # GPUs that those behind an earlier key did not have

    def could(self, first: float, need: int) -> bool:
        """Whether those not yet visited who may be behind a key that begins so have so many GPUs. Where not, it need
        not be looked who they are. To be asked in ascending order: there are ever fewer behind."""
        if need >= self._too_many:
            return False
        missing = need
        if self._tails is None:
            for bucket in self._view.preemptible.buckets.values():
                missing = self._less(bucket, len(bucket.entries) - 1, first, missing)
                if missing <= 0:
                    return True
        else:
            for tail in self._tails:
                missing = self._less(tail.bucket, tail.position, first, missing)
                if missing <= 0:
                    return True
        self._too_many = need
        return False

    def _less(self, bucket: Bucket, last: int, first: float, need: int) -> int:
        """What is needed beside those of this demand, up to the last one."""
        entries = bucket.entries
        shift = bucket.slope * self._now
        hindmost: float = entries[last][0]
        if hindmost + shift < first:
            return need
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            base: float = entries[middle][0]
            if base + shift < first:
                low = middle + 1
            else:
                high = middle
        return need - (last + 1 - low) * bucket.demand.gpus

    def pop_behind(self, key: Key) -> _Running | None:
        """The hindmost job not yet visited, if it is behind `key`."""
        tails = self._tails
        if tails is None:
            tails = self._tails = [_Tail(bucket, self._now) for bucket in self._view.preemptible.buckets.values()]
        while tails:
            last = tails[0]
            for tail in tails:
                if before(last.key, tail.key):
                    last = tail
            found = last.key
            if not before(key, found):
                return None
            job = last.bucket.job(last.position)
            if last.position == 0:
                tails.remove(last)
            else:
                last.position -= 1
                last.key = last.bucket.key(last.position, self._now)
            assert job.placement is not None
            if self._now > job.progress_from or job.progress_from == job.last_change:
                return _Running(found, job, self._view.topology.machines[job.placement.slices[0][0]].gpu_type)
            # It still waits for its GPUs or loads its checkpoint. To take them now would make it pay again
            # for nothing, and two jobs that each look better while waiting would swap places for ever.
        return None


class _Free:
    """How many GPUs of each type are free, or would be."""

    __slots__ = ("_only", "of")

    def __init__(self, view: View) -> None:
        self.of = {kind: pool.total for kind, pool in view.free.pools.items()}
        self._only = next(iter(self.of)) if len(self.of) == 1 else None

    def most(self, kind: str | None) -> int:
        """Of the type wanted, else of the one with most free."""
        if kind is None:
            kind = self._only
            if kind is None:
                return max(self.of.values())
        return self.of.get(kind, 0)

    def fits(self, gpus: int, kind: str | None) -> bool:
        return self.most(kind) >= gpus

    def given(self, head: _Head) -> _Chosen:
        """It gets them of the type wanted, else of the first of those with most free."""
        kind, demand = head.kind, head.bucket.demand
        if kind is None:
            most = self.most(None)
            for each, total in self.of.items():
                if total == most:
                    kind = each
                    break
            assert kind is not None
            if len(self.of) > 1:
                demand = Demand(head.gpus, kind)
        self.of[kind] -= head.gpus
        return _Chosen(head.job(), demand)


def _heads(view: View, now: float) -> list[_Head]:
    return [_Head(bucket, now) for bucket in view.waiting.buckets.values()]


def _first(heads: list[_Head]) -> int:
    """Which of them is first of all in the order."""
    first, least = 0, heads[0].key
    for at in range(1, len(heads)):
        key = heads[at].key
        if before(key, least):
            first, least = at, key
    return first


def _still_waiting(view: View, evicted: list[ActiveJob], chosen: list[_Chosen]) -> list[Demand]:
    """Demands of which somebody waits once those evicted are back in the queue and those chosen have started."""
    buckets = view.waiting.buckets
    if not chosen:
        return list(buckets)
    started: dict[Demand, int] = {}
    for each in chosen:
        started[each.job.demand] = started.get(each.job.demand, 0) + 1
    waiting = [demand for demand, bucket in buckets.items() if len(bucket.entries) > started.get(demand, 0)]
    if not evicted:
        return waiting
    return waiting + list(dict.fromkeys(job.demand for job in evicted if job.demand not in waiting))


def _carry(view: View, evicted: list[ActiveJob], chosen: list[_Chosen], place: Rule, lease: float | None) -> Plan:
    """Turn counts into concrete GPUs: what is evicted is vacated first, then gangs are placed in order."""
    if not evicted and not chosen:
        return []
    if len(chosen) == 1 and not evicted:
        only = chosen[0]  # nobody else to make room for: nothing to try out
        placement = place(view.free, only.demand)
        assert placement is not None, "a gang that fits by count can be placed"
        return [Start(only.job.id, placement, lease)]
    plan: Plan = [Preempt(job.id) for job in evicted]
    with view.free.trial() as free:
        for job in evicted:
            assert job.placement is not None
            free.give(job.placement)
        for number, each in enumerate(chosen, 1):
            placement = place(free, each.demand)
            assert placement is not None, "a gang that fits by count can be placed"
            plan.append(Start(each.job.id, placement, lease))
            if number < len(chosen):  # after the last one nobody looks
                free.take(placement)
    return plan
