"""Who runs behind a place in the order, and which GPUs could be had from them: kept as jobs come and go, so that a look
costs the same however many run.

A place in the order is an entry of the rankings (`core.ranking`). For the places that were last asked about, a `Reach`
holds the GPUs of all jobs behind it, by machine; it follows when a job starts, ends or is demoted, and moves to
another place by the jobs in between. Heads of lanes mostly share one: who has never run stands behind everybody of
queue 0 and before everybody of queue 1. Ranks that change with time (no queues) cannot be kept: there the jobs behind
are counted anew at every look.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator
from heapq import heappop, heappush, merge
from operator import itemgetter
from typing import Any

from dally.core.active import ActiveJob
from dally.core.free import Pool
from dally.core.placement import Slice
from dally.core.policy import View
from dally.core.ranking import Bucket, Entry

Place = Any  # an `Entry`: as a tuple of its own type, compiled code would take it apart and build it again at each step

_REACHES = 4  # places that are followed at a time
_NEAR = 8  # jobs in between up to which a reach is moved rather than another one made


class Reach:
    """GPUs of the jobs behind a place, by machine: "how many" of each, and "at least so many" as sets of machines."""

    __slots__ = ("at_least", "held", "place", "totals")

    def __init__(self, place: Place, machines: int, largest: int) -> None:
        self.place = place
        self.held = [0] * machines
        self.at_least = [0] * (largest + 1)  # bit m of d, from 1 on: machine m has d or more
        self.at_least[0] = (1 << machines) - 1
        self.totals: dict[str, int] = {}  # by GPU type

    def copy(self) -> Reach:
        other = Reach(self.place, 0, 0)
        other.held, other.at_least, other.totals = self.held.copy(), self.at_least.copy(), self.totals.copy()
        return other

    def add(self, slices: tuple[Slice, ...], kind: str) -> None:
        held, at_least, gained = self.held, self.at_least, 0
        for machine, mask in slices:
            before, gpus, bit = held[machine], mask.bit_count(), 1 << machine
            held[machine] = before + gpus
            gained += gpus
            for count in range(before + 1, before + gpus + 1):
                at_least[count] |= bit
        self.totals[kind] = self.totals.get(kind, 0) + gained

    def remove(self, slices: tuple[Slice, ...], kind: str) -> None:
        held, at_least, lost = self.held, self.at_least, 0
        for machine, mask in slices:
            before, gpus, bit = held[machine], mask.bit_count(), 1 << machine
            held[machine] = before - gpus
            lost += gpus
            for count in range(before - gpus + 1, before + 1):
                at_least[count] ^= bit
        self.totals[kind] -= lost

    def one_machine(self, pool: Pool, level: int, up: int, gpus: int) -> int | None:
        """Of the machines `up` where so many GPUs are free or behind, the first of those with most of them free."""
        at_least = self.at_least
        for idle in range(gpus, max(0, gpus - len(at_least) + 1) - 1, -1):
            found = at_least[gpus - idle] & up
            if found:
                found &= pool.domains_with(level, idle)
                if found:  # nobody here has more free: it would have been found before
                    return (found & -found).bit_length() - 1
        return None

    def machines(self, pool: Pool, level: int, up: int, gpus: int, most: int) -> set[int] | None:
        """As many machines (`most`) with the most GPUs free or behind, and of equal ones with most free, the first
        first; None where they have fewer than asked for."""
        at_least = self.at_least
        chosen: set[int] = set()
        left, before = gpus, 0  # machines with more than `total`
        for total in range(len(at_least) - 1, 0, -1):
            if (most - len(chosen)) * total < left:
                return None
            having = 0
            for idle in range(total, -1, -1):
                having |= at_least[total - idle] & pool.domains_with(level, idle)
            having &= up & ~before
            before |= having
            for idle in range(total, -1, -1):
                some = having & pool.domains_with(level, idle) if having else 0
                having &= ~some
                while some:
                    low = some & -some
                    some ^= low
                    chosen.add(low.bit_length() - 1)
                    left -= total
                    if len(chosen) == most:
                        return chosen if left <= 0 else None
        return None


class Behind:
    """Preemptible jobs in the policy's order and by machine: follows the view's index (`Ranking.watch`)."""

    def __init__(self, view: View) -> None:
        self._running, self._topology = view.preemptible, view.topology
        self.evicted: dict[str, ActiveJob] = {}  # by the plan in the making
        self.changes = 0  # so far, of who could lose GPUs
        self._now = 0.0
        self._machines = len(view.topology.machines)
        self._largest = max(machine.gpus for machine in view.topology.machines)
        self._clear()
        view.preemptible.watch(self)

    def _clear(self) -> None:
        self._order: list[Place] = []
        self._on: dict[int, dict[str, Place]] = {}  # machine → entries of those that have GPUs there
        self._there: dict[str, tuple[Place, tuple[Slice, ...], str]] = {}  # everybody in `_order`: entry, GPUs, type
        self._loading: list[tuple[float, int, ActiveJob]] = []  # a heap: do not use their GPUs before that time
        self._sloped: set[str] = set()  # whose rank changes with time
        self._reaches: list[Reach] = []
        self._seen: list[tuple[Place, ActiveJob]] = []  # of ranks that change with time: keys now, hindmost first
        self._more: Iterator[tuple[Place, ActiveJob]] | None = None

    # --- following the index --------------------------------------------------------------------------------

    def added(self, job: ActiveJob, entry: Entry) -> None:
        self.changes += 1
        bucket = self._running.buckets[job.demand]
        if bucket.slope or bucket.then_slope:
            self._sloped.add(job.id)
        elif job.progress_from == job.last_change:
            self._enter(job, entry)
        else:
            heappush(self._loading, (job.progress_from, job.number, job))

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        self.changes += 1
        there = self._there.pop(job.id, None)
        if there is None:  # still loading, which is found out when that is over; or sloped
            self._sloped.discard(job.id)
            return
        place, slices, kind = there
        del self._order[bisect_left(self._order, place)]
        for machine, _ in slices:
            del self._on[machine][job.id]
        for reach in self._reaches:
            if place > reach.place:
                reach.remove(slices, kind)

    def _enter(self, job: ActiveJob, place: Place) -> None:
        assert job.placement is not None
        self.changes += 1
        slices = job.placement.slices
        kind = self._topology.machines[slices[0][0]].gpu_type
        self._there[job.id] = (place, slices, kind)
        insort(self._order, place)
        for machine, _ in slices:
            self._on.setdefault(machine, {})[job.id] = place
        for reach in self._reaches:
            if place > reach.place:
                reach.add(slices, kind)

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
        for job_id in self.evicted:
            there = self._there.get(job_id)
            if there is not None:
                for reach in self._reaches:
                    if there[0] > reach.place:
                        reach.add(there[1], there[2])
        self.evicted.clear()
        self._seen.clear()
        self._more = None

    def evict(self, job: ActiveJob) -> None:
        self.evicted[job.id] = job
        there = self._there.get(job.id)
        if there is not None:
            for reach in self._reaches:
                if there[0] > reach.place:
                    reach.remove(there[1], there[2])

    @property
    def lasts(self) -> bool:
        """Whether nothing changes as long as nobody comes or goes."""
        return not self._sloped

    # --- looking --------------------------------------------------------------------------------------------

    def reach(self, place: Place) -> Reach:
        """GPUs of everybody behind the place who is not evicted."""
        if self._sloped:
            return self._counted(place)
        order = self._order
        at = bisect_right(order, place)
        nearest, distance = None, 0
        for reach in self._reaches:
            away = abs(bisect_right(order, reach.place) - at)
            if nearest is None or away < distance:
                nearest, distance = reach, away
                if not away:
                    break
        if nearest is None:
            nearest = self._counted(place)
            self._reaches.append(nearest)
            return nearest
        if distance > _NEAR and len(self._reaches) < _REACHES:
            nearest = nearest.copy()
            self._reaches.append(nearest)
        if distance:
            self._move(nearest, at)
        nearest.place = place
        return nearest

    def _move(self, reach: Reach, at: int) -> None:
        """So that everybody from there on is in it."""
        was = bisect_right(self._order, reach.place)  # who stood there may run by now: it is not behind itself
        for place in self._order[min(was, at) : max(was, at)]:
            job_id = place[4].id
            if job_id not in self.evicted:
                _, slices, kind = self._there[job_id]
                if at < was:
                    reach.add(slices, kind)
                else:
                    reach.remove(slices, kind)

    def _counted(self, place: Place) -> Reach:
        reach = Reach(place, self._machines, self._largest)
        machines = self._topology.machines
        for job in self.all(place):
            assert job.placement is not None
            reach.add(job.placement.slices, machines[job.placement.slices[0][0]].gpu_type)
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
        found = {job_id: entry for machine in machines for job_id, entry in self._on.get(machine, {}).items()}
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
