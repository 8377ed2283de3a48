"""Backfill with reservations: jobs may pass one that does not fit if that does not delay it, as their limits have it.

EASY backfill reserves for the first job that does not fit, and for nobody else; conservative backfill for every job in
its turn. As long as everybody who waits may be anywhere, reservations are numbers of GPUs of one type. Where somebody
must be on so many machines, on some of them or inside one domain, they are places (`reserving_places`).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.journal import Entry
from dally.core.plan import Demand, Plan, Start
from dally.core.policy import View
from dally.core.ranking import Entry as Ranked
from dally.policies.greedy import waits_for_gpus, waits_its_turn
from dally.policies.limits import Limits
from dally.policies.placing import Rule
from dally.policies.reserving_places import Held, Later, Places, held_by

Reserving = Literal["easy", "conservative"]
YEAR: Final = 365 * 86400.0  # the limit of a job of which nobody knows how long it takes
_GONE = (ev.Finished, ev.Failed, ev.Cancelled, ev.Yielded, ev.StartFailed, ev.Interrupted)


def limit(view: View, job: ActiveJob) -> float:
    """How long it takes as it says itself, or as it is estimated."""
    said = job.job.declared_duration
    said = view.estimates.work(job.job) if said is None else said
    return YEAR if said is None else min(said, YEAR)


def hear_limits(view: View, memory: Limits, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if isinstance(entry, pl.Start):
            job = view.job(entry.job)
            memory.ends[job.id] = job.last_change + limit(view, job)
        elif isinstance(entry, _GONE):
            memory.ends.pop(entry.job, None)


class Profile:
    """GPUs of one type that are free from now on: steps over time."""

    def __init__(self, now: float, free: int, ends: Iterable[tuple[float, int]]) -> None:
        self.times, self.free = [now], [free]
        for time, gpus in sorted(ends):
            if time <= self.times[-1]:  # who is over time is taken to end at once
                self.free[-1] += gpus
            else:
                self.times.append(time)
                self.free.append(self.free[-1] + gpus)

    def earliest(self, gpus: int, span: float) -> float:
        """When so many are free for so long; ∞: never."""
        begin = math.inf  # since when they are, at the step that is looked at; ∞: they are not
        times, free = self.times, self.free
        for index in range(len(times)):
            time = times[index]
            if time >= begin + span:
                return begin
            if free[index] < gpus:
                begin = math.inf
            elif begin == math.inf:
                begin = time
        return begin

    def take(self, begin: float, span: float, gpus: int) -> None:
        for index in range(self._cut(begin), self._cut(begin + span)):
            self.free[index] -= gpus

    def _cut(self, time: float) -> int:
        """The step that begins then; there is one before it, or it is the first."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at


def plan_reserving(view: View, memory: Limits, now: float, place: Rule, kind: Reserving,
                   later: Callable[[], Later]) -> Plan:  # fmt: skip
    """In order; who does not fit now gets a reservation, and whoever fits before or beside all of them starts."""
    if not view.waiting.buckets:
        return []
    if any(demand.bound for demand in view.waiting.buckets):
        return _plan_places(view, memory, now, place, kind, later())
    fits = {demand for demand in view.waiting.buckets if place(view.free, demand) is not None}
    plan: Plan = []
    started: dict[Demand, int] = {}
    first: Demand | None = None
    if fits:  # else nobody starts, whatever is reserved
        with view.free.trial() as free:
            turn = _Turn(view, memory, now, place, free, fits)
            first = turn.all_in_order(kind)
            plan, started = turn.plan, turn.started
    for demand, bucket in view.waiting.buckets.items():
        if len(bucket.entries) > started.get(demand, 0):
            alone = demand == first or demand not in fits
            plan.append(waits_for_gpus(demand) if alone else waits_its_turn(demand))
    return plan


class _Turn:
    """One plan in the making, where reservations are numbers of GPUs."""

    def __init__(self, view: View, memory: Limits, now: float, place: Rule, free: FreeGpus, fits: set[Demand]) -> None:
        self.view, self.memory, self.now, self.place, self.free, self.fits = view, memory, now, place, free, fits
        self.profiles = _profiles(view, memory, now)
        self.plan: Plan = []
        self.started: dict[Demand, int] = {}
        # What cannot start for so long cannot for longer, nor later in this plan: free GPUs only become fewer.
        self.failed: dict[Demand, float] = {}

    def all_in_order(self, kind: Reserving) -> Demand | None:
        """Who fits before or beside all reservations starts; what the first that does not asks for."""
        buckets = self.view.waiting.buckets
        left = sum([len(buckets[demand].entries) for demand in self.fits])  # of jobs that could start
        first: Demand | None = None
        for entry in heapq.merge(*[bucket.entries for bucket in buckets.values()]):
            job: ActiveJob = entry[4]
            left -= job.demand in self.fits
            if not self.start(job, limit(self.view, job), True):
                first = first or job.demand
                if kind == "easy":
                    self._pass(entry)
                    break
            if not left:
                break  # nobody further back fits, whatever is reserved
        return first

    def _pass(self, first: Ranked) -> None:
        """Behind the first that does not fit, whoever delays it not; of who does not fit nobody is looked at."""
        buckets = self.view.waiting.buckets
        behind = []
        for demand in self.fits:
            entries = buckets[demand].entries
            behind.append(entries[bisect_right(entries, first) :])
        for entry in heapq.merge(*behind):
            job: ActiveJob = entry[4]
            span = limit(self.view, job)
            if span < self.failed.get(job.demand, math.inf):
                self.start(job, span, False)

    def start(self, job: ActiveJob, span: float, reserves: bool) -> bool:
        """Whether it could, now; where not, and it `reserves`, the earliest GPUs for it are kept."""
        demand, now = job.demand, self.now
        begin = math.inf
        chosen: str | None = None
        for each, profile in self.profiles.items():
            if demand.gpu_type is None or each == demand.gpu_type:
                found = profile.earliest(job.gpus, span)
                if chosen is None or (found, each) < (begin, chosen):
                    begin, chosen = found, each
        placement = None
        if begin <= now:
            placement = self.place(self.free, demand._replace(gpu_type=chosen))
        else:
            self.failed[demand] = min(span, self.failed.get(demand, math.inf))
        if placement is not None:
            self.free.take(placement)
            self.plan.append(Start(job.id, placement))
            self.memory.ends[job.id] = now + span
            self.started[demand] = self.started.get(demand, 0) + 1
        if chosen is not None and begin < math.inf and (placement is not None or reserves):
            self.profiles[chosen].take(begin, max(span, 1e-9), job.gpus)
        return placement is not None


def _plan_places(view: View, memory: Limits, now: float, place: Rule, kind: Reserving, later: Later) -> Plan:
    """The same where it matters which machines are free."""
    fits = {demand for demand in view.waiting.buckets if place(view.free, demand) is not None}
    plan: Plan = []
    started: dict[Demand, int] = {}
    first: dict[str | None, Demand] = {}  # by where it may be, of the first that did not fit
    failed: dict[Demand, float] = {}  # what did not fit for so long does not fit for longer, nor later in this plan
    left = sum(len(view.waiting.buckets[demand].entries) for demand in fits)
    with view.free.trial() as free:
        places = Places(now, free, _ends(view, memory) if left else (), place, later)
        for job in _in_order(view):
            if not left:
                break
            demand = job.demand
            left -= demand in fits
            reserves = kind == "conservative" or demand.among not in first
            if not reserves and (demand not in fits or failed.get(demand, math.inf) <= limit(view, job)):
                continue
            span = limit(view, job)
            placement = places.start(demand, span) if demand in fits else None
            if placement is not None:
                plan.append(Start(job.id, placement))
                memory.ends[job.id] = now + span
                started[demand] = started.get(demand, 0) + 1
                continue
            failed[demand] = min(span, failed.get(demand, math.inf))
            if reserves:
                first.setdefault(demand.among, demand)
                found = places.earliest(demand, span)
                if found is not None:
                    places.take(found.gpus, found.begin, max(span, 1e-9))
        waiting = [d for d, bucket in view.waiting.buckets.items() if len(bucket.entries) > started.get(d, 0)]
    heads = set(first.values())
    plan += [waits_for_gpus(d) if d in heads or d not in fits else waits_its_turn(d) for d in waiting]
    return plan


def _ends(view: View, memory: Limits) -> Iterator[tuple[float, Held]]:
    for job_id, end in memory.ends.items():
        placement = view.job(job_id).placement
        if placement is not None:
            yield end, tuple(each for each in held_by(placement) if each[0] not in view.down)


def _in_order(view: View) -> Iterator[ActiveJob]:
    for entry in heapq.merge(*(bucket.entries for bucket in view.waiting.buckets.values())):
        yield entry[4]


def _profiles(view: View, memory: Limits, now: float) -> dict[str, Profile]:
    ends: dict[str, list[tuple[float, int]]] = {kind: [] for kind in view.free.pools}
    for job_id, end in memory.ends.items():
        job = view.job(job_id)
        for machine, mask in () if job.placement is None else job.placement.slices:
            if machine not in view.down:
                ends[view.topology.machines[machine].gpu_type].append((end, mask.bit_count()))
    return {kind: Profile(now, pool.total, ends[kind]) for kind, pool in view.free.pools.items()}
