"""Who runs behind a place in the order, and which GPUs could be had from them: kept as jobs come and go, so that a look
costs the same however many run.

A place in the order is an entry of the rankings (`core.ranking`). For the places that were last asked about, a `Reach`
holds the GPUs of all jobs behind it, by machine; it follows when a job starts, ends or is demoted, and moves to
another place by the jobs in between. Heads of lanes mostly share one: who has never run stands behind everybody of
queue 0 and before everybody of queue 1. Ranks that change with time (no queues) cannot be kept: there those who ask for
more than the jobs behind could have are turned away by a count, and else the jobs are looked at anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from operator import itemgetter
from typing import Final

from dally.core.active import ActiveJob
from dally.core.inner import heappop, heappush, place_of
from dally.core.placement import Placement
from dally.core.policy import View
from dally.core.ranking import Bucket
from dally.core.ranking import Entry as Place
from dally.policies.room import needed
from dally.policies.tiresias.reach import Held, Reach

_REACHES: Final = 4  # places that are followed at a time
_NEAR: Final = 8  # jobs in between up to which a reach is moved rather than another one made


class Behind:
    """Preemptible jobs in the policy's order and by machine: follows the view's index (`Ranking.watch`)."""

    def __init__(self, view: View) -> None:
        self._running = view.preemptible
        self.evicted: dict[str, ActiveJob] = {}  # by the plan in the making
        self.changes = 0  # so far, of who could lose GPUs
        self._now = 0.0
        self._machines = len(view.topology.machines)
        self._largest = max(machine.gpus for machine in view.topology.machines)
        self.pools = list(view.free.pools.values())  # free GPUs by type; a type's number is its place here
        number = {kind: at for at, kind in enumerate(view.free.pools)}
        self._kinds = [number[machine.gpu_type] for machine in view.topology.machines]
        self._clear()
        view.preemptible.watch(self)

    def _clear(self) -> None:
        self._order: list[Place] = []
        self._held: list[Held] = []  # theirs, in the same order
        self._on: list[dict[str, Held]] = [{} for _ in range(self._machines)]  # who has GPUs on a machine
        self._there: dict[str, Held] = {}  # everybody in `_order`
        self._loading: list[tuple[float, int, ActiveJob]] = []  # a heap: do not use their GPUs before that time
        self._sloped: set[str] = set()  # whose rank changes with time
        self._resized: set[str] = set()  # of these, who has other than the GPUs it asked for
        self._reaches: list[Reach] = []
        self._seen: list[tuple[Place, ActiveJob]] = []  # of ranks that change with time: keys now, hindmost first
        self._more: Iterator[tuple[Place, ActiveJob]] | None = None

    # --- following the index --------------------------------------------------------------------------------

    def added(self, job: ActiveJob, entry: Place) -> None:
        self.changes += 1
        bucket = self._running.buckets[job.demand]
        if bucket.slope or bucket.then_slope:
            self._sloped.add(job.id)
            if job.placement is not None and job.placement.gpus != job.gpus:
                self._resized.add(job.id)
        elif job.progress_from == job.last_change:
            self._enter(job, entry)
        else:
            heappush(self._loading, (job.progress_from, job.number, job))

    def removed(self, job: ActiveJob, entry: Place) -> None:
        self.changes += 1
        held = self._there.get(job.id)
        if held is None:  # still loading, which is found out when that is over; or sloped
            self._sloped.discard(job.id)
            self._resized.discard(job.id)
            return
        del self._there[job.id]
        at = place_of(self._order, held.place)
        self._order.pop(at)
        self._held.pop(at)
        for machine, _ in held.slices:
            del self._on[machine][job.id]
        for reach in self._reaches:
            if at >= reach.at:
                reach.remove(held)
            else:
                reach.at -= 1

    def _enter(self, job: ActiveJob, place: Place) -> None:
        assert job.placement is not None
        self.changes += 1
        held = self._there[job.id] = Held(job, place, self.kind(job.placement))
        at = place_of(self._order, place)
        self._order.insert(at, place)
        self._held.insert(at, held)
        for machine, _ in held.slices:
            self._on[machine][job.id] = held
        for reach in self._reaches:
            if at > reach.at or (at == reach.at and reach.before(held)):
                reach.add(held)
            else:
                reach.at += 1

    def kind(self, placement: Placement) -> int:
        """The type of its GPUs."""
        return self._kinds[placement.slices[0][0]]

    # --- one plan -------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Another plan. GPUs a job has not begun to use yet are left to it: see `greedy`."""
        if now < self._now:  # asked of an earlier time: who had begun by the later one may not have
            self._clear()
            self.changes += 1
            for job in self._running:
                self.added(job, self._running.entry(job.id))
        self._now = now
        while self._loading and self._loading[0][0] < now:
            job = heappop(self._loading)[2]
            if job.id in self._running and job.id not in self._there and _uses(job, now):
                self._enter(job, self._running.entry(job.id))

    def end(self) -> None:
        """The plan is made: what it tried is undone."""
        if self.evicted:
            for job_id in reversed(self.evicted):
                held = self._there.get(job_id)
                if held is not None:
                    held.evicted = False
                    for reach in self._reaches:
                        if reach.before(held):
                            reach.add(held)
            self.evicted.clear()
        if self._more is not None:
            self._seen.clear()
            self._more = None

    def evict(self, job: ActiveJob) -> None:
        self.evicted[job.id] = job
        held = self._there.get(job.id)
        if held is not None:
            held.evicted = True
            for reach in self._reaches:
                if reach.before(held):
                    reach.remove(held)

    @property
    def lasts(self) -> bool:
        """Whether nothing changes as long as nobody comes or goes."""
        return not self._sloped

    # --- looking --------------------------------------------------------------------------------------------

    def total(self, place: Place, kind: int) -> int:
        """GPUs of a type that everybody behind the place has who is not evicted; where ranks change with time, no
        fewer than that."""
        return self._at_most(place) if self._sloped else self._reach(place).totals[kind]

    def _at_most(self, place: Place) -> int:
        """Of all types, in use yet or not: enough to turn most away without a look at the jobs."""
        if self._resized:
            return 1 << 62
        first: float = place[0]
        gpus, now = 0, self._now
        for bucket in self._running.buckets.values():
            entries = bucket.entries
            low, high = 0, len(entries)
            while low < high:
                middle = (low + high) // 2
                base: float = entries[middle][0]
                if base + bucket.slope * now < first:
                    low = middle + 1
                else:
                    high = middle
            gpus += (len(entries) - low) * bucket.demand.gpus
        return gpus

    def hindmost(self, place: Place, kind: int, need: int) -> list[ActiveJob] | None:
        """Of the jobs behind the place, the hindmost that have so many GPUs of a type together; None where all of them
        have fewer."""
        if self._sloped:
            return self._hindmost_sloped(place, kind, need)
        reach = self._reach(place)
        if reach.totals[kind] < need:
            return None
        taken: list[ActiveJob] = []
        held = self._held
        at = len(held) - 1
        while need > 0 and at >= reach.at:
            each = held[at]
            if each.kind == kind and not each.evicted:
                taken.append(each.job)
                need -= each.job.gpus
            at -= 1
        return None if need > 0 else needed(taken, need)

    def _hindmost_sloped(self, place: Place, kind: int, need: int) -> list[ActiveJob] | None:
        if self._at_most(place) < need or (self._resized and self._counted(place).totals[kind] < need):
            return None
        taken: list[ActiveJob] = []
        for job in self._all_sloped(place):
            if need <= 0:
                break
            assert job.placement is not None
            if self.kind(job.placement) == kind:
                taken.append(job)
                need -= job.gpus
        return None if need > 0 else needed(taken, need)

    def reach(self, place: Place) -> Reach:
        """GPUs of everybody behind the place who is not evicted, by machine."""
        if self._sloped:
            return self._counted(place)
        reach = self._reach(place)
        if not reach.settle(None, 0, 0):
            held = [each for each in self._held[reach.at :] if not each.evicted]
            reach.settle(held, self._machines, self._largest)
        return reach

    def _reach(self, place: Place) -> Reach:
        """The one at the place: mostly one is there already, else one is moved there."""
        held = self._held
        value: float = place[0]
        then: float = place[1]
        for reach in self._reaches:
            if reach.place is place:  # objects
                return reach
            at = reach.at
            if at < len(held) and not held[at].behind(place, value, then):
                continue
            if at == 0 or not held[at - 1].behind(place, value, then):
                reach.stand(place, at)
                return reach
        at = place_of(self._order, place)
        nearest, distance = None, 0
        for reach in self._reaches:
            away = reach.at - at if reach.at > at else at - reach.at
            if nearest is None or away < distance:
                nearest, distance = reach, away
        if nearest is None:
            nearest = Reach(place, len(held), [0] * len(self.pools))
            self._reaches.append(nearest)
        elif distance > _NEAR and len(self._reaches) < _REACHES:
            nearest = nearest.copy()
            self._reaches.append(nearest)
        self._move(nearest, at)
        nearest.stand(place, at)
        return nearest

    def _move(self, reach: Reach, at: int) -> None:
        """So that everybody from there on is in it."""
        was = reach.at
        for position in range(min(was, at), max(was, at)):
            held = self._held[position]
            if not held.evicted:
                if at < was:
                    reach.add(held)
                else:
                    reach.remove(held)

    def _counted(self, place: Place) -> Reach:
        found = []
        reach = Reach(place, 0, [0] * len(self.pools))
        for job in self._all_sloped(place):
            assert job.placement is not None
            held = Held(job, place, self.kind(job.placement))
            reach.add(held)
            found.append(held)
        reach.settle(found, self._machines, self._largest)
        return reach

    def all(self, place: Place) -> Iterator[ActiveJob]:
        """Everybody behind the place who is not evicted, hindmost first."""
        if self._sloped:
            yield from self._all_sloped(place)
            return
        for entry in reversed(self._order):
            if entry < place:
                return
            if entry[4].id not in self.evicted:
                yield entry[4]

    def on(self, machines: Collection[int], place: Place) -> Iterator[ActiveJob]:
        """Of everybody behind the place at least those who have GPUs on these machines, hindmost first."""
        if self._sloped:
            yield from self._all_sloped(place)
            return
        found = {job_id: held.place for machine in machines for job_id, held in self._on[machine].items()}
        for entry in sorted(found.values(), reverse=True):
            if entry < place:
                return
            if entry[4].id not in self.evicted:
                yield entry[4]

    def _all_sloped(self, place: Place) -> Iterator[ActiveJob]:
        """Merged over the demands only as far as somebody needs to look."""
        key, now = place[:4], self._now
        if self._more is None:
            buckets = self._running.buckets.values()
            self._more = merge(*(_backwards(each, now) for each in buckets), key=itemgetter(0), reverse=True)
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
            if _uses(job, now) and job.id not in self.evicted:
                yield job


def _uses(job: ActiveJob, now: float) -> bool:
    return now > job.progress_from or job.progress_from == job.last_change


def _backwards(bucket: Bucket, now: float) -> Iterator[tuple[Place, ActiveJob]]:
    for base, then, tie, number, job in reversed(bucket.entries):
        yield (base + bucket.slope * now, then + bucket.then_slope * now, tie, number), job
