"""Ordered indexes of jobs by a policy's rank, in buckets of equal demand.

A rank is a line over time, base + slope × now, and a second one where the first are equal. Within a bucket
of equal demand all slopes are equal (jobs of one size age alike), so the order inside a bucket never changes
by itself and can be kept sorted; across buckets a handful of heads or tails is compared at the
moment of asking. That is what keeps the cost of an event independent of the queue's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from dally.core.active import ActiveJob
from dally.core.inner import place_of
from dally.core.plan import Demand


class Rank(NamedTuple):
    """Smaller is served first. At equal value the second line decides, then `tie`, then the order of arrival."""

    base: float
    slope: float = 0.0
    then: float = 0.0
    then_slope: float = 0.0
    tie: tuple[float, ...] = ()


class BadRankError(ValueError):
    """A rank that nothing can be ordered by."""


# Tuples. Where their types said of what, compiled code would take them apart and put others together whenever they are
# handed on; where they did not say that they are tuples, it would look for a way to index them at every look.
Key = tuple[Any, ...]  # value now, second value now, tie, order of arrival
Entry = tuple[Any, ...]  # base, second base, tie, order of arrival, the job


def before(one: Key, other: Key) -> bool:
    """`one < other` of keys or entries. The first two values decide nearly always, and are numbers."""
    value: float = one[0]
    than: float = other[0]
    if value == than:
        value, than = one[1], other[1]
        if value == than:
            return one < other
    return value < than


class Bucket:
    """Jobs of one demand in the policy's order."""

    __slots__ = ("demand", "entries", "slope", "then_slope")

    def __init__(self, demand: Demand, rank: Rank) -> None:
        self.demand = demand
        self.slope = rank.slope
        self.then_slope = rank.then_slope
        # Ascending. A plain list: to move the 8 bytes of each of 10,000 jobs takes less than to look for a piece of it.
        self.entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        self.entries.insert(place_of(self.entries, entry), entry)

    def remove(self, entry: Entry) -> None:
        """One that was added; no two are equal."""
        entries = self.entries
        if entries[-1] is entry:  # objects; most buckets of who may lose GPUs hold one
            entries.pop()
        else:
            entries.pop(place_of(entries, entry))

    def key(self, position: int, now: float) -> Key:
        entry = self.entries[position]
        if self.slope or self.then_slope:
            base: float = entry[0]
            then: float = entry[1]
            return (base + self.slope * now, then + self.then_slope * now, entry[2], entry[3])
        return (entry[0], entry[1], entry[2], entry[3])

    def job(self, position: int) -> ActiveJob:
        job: ActiveJob = self.entries[position][4]
        return job

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)


class Watcher(Protocol):
    """An index of a policy's own over the same jobs: hears of every change, and of nothing else."""

    def added(self, job: ActiveJob, entry: Entry) -> None: ...

    def removed(self, job: ActiveJob, entry: Entry) -> None: ...


class Ranking:
    """Jobs by rank inside buckets of equal demand."""

    __slots__ = ("_entry", "_watchers", "buckets", "inside")

    def __init__(self) -> None:
        self.buckets: dict[Demand, Bucket] = {}  # only those that are not empty
        self.inside = 0  # how many of them are of gangs that must be in certain places (`Demand.bound`)
        self._entry: dict[str, Entry] = {}
        self._watchers: tuple[Watcher, ...] = ()

    def watch(self, watcher: Watcher) -> None:
        """Tell the watcher who is here, then whoever comes and goes."""
        for job in self:
            watcher.added(job, self._entry[job.id])
        self._watchers = (*self._watchers, watcher)

    def unwatch(self) -> None:
        """Another policy is in charge: what the one before watched for is void."""
        self._watchers = ()

    def __len__(self) -> int:
        return len(self._entry)

    def __bool__(self) -> bool:
        return bool(self._entry)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._entry

    def __iter__(self) -> Iterator[ActiveJob]:
        """All jobs, bucket by bucket. For reports and round boundaries, not for every event."""
        for bucket in self.buckets.values():
            for entry in bucket.entries:
                yield entry[4]

    def entry(self, job_id: str) -> Entry:
        """The job's place in its bucket: base, second base, tie, order of arrival, the job."""
        return self._entry[job_id]

    def stays(self, job: ActiveJob, rank: Rank) -> bool:
        """Whether it is here, and just there."""
        entry = self._entry.get(job.id)
        if entry is None or type(rank) is not Rank or entry[0] != rank.base:
            return False
        bucket = self.buckets[job.demand]
        return (entry[1] == rank.then and entry[2] == rank.tie and bucket.slope == rank.slope
                and bucket.then_slope == rank.then_slope)  # fmt: skip

    def add(self, job: ActiveJob, rank: Rank) -> None:
        if type(rank) is not Rank:
            raise BadRankError(f"its rank is {rank!r}, and must be a Rank")
        base: float = rank.base
        slope: float = rank.slope
        then: float = rank.then
        tie = rank.tie
        if not (base == base and then == then and slope == slope) or (tie and _nan_in(tie)):
            raise BadRankError("its rank is not a number (NaN), and nothing can be ordered by that")
        bucket = self.buckets.get(job.demand)
        if bucket is None:
            bucket = self.buckets[job.demand] = Bucket(job.demand, rank)
            self.inside += job.demand.where is not None and job.demand.bound
        elif bucket.slope != slope or bucket.then_slope != rank.then_slope:
            raise BadRankError(f"its rank has slope {rank.slope!r}, and others of its demand {job.demand.short} have "
                               f"{bucket.slope!r}: jobs of one demand must age alike")  # fmt: skip
        entry: Entry = (base, then, tie, job.number, job)
        bucket.add(entry)
        self._entry[job.id] = entry
        for watcher in self._watchers:
            watcher.added(job, entry)

    def discard(self, job: ActiveJob) -> None:
        entry = self._entry.get(job.id)
        if entry is None:
            return
        del self._entry[job.id]
        bucket = self.buckets[job.demand]
        bucket.remove(entry)
        if not bucket.entries:
            del self.buckets[job.demand]
            self.inside -= job.demand.where is not None and job.demand.bound
        for watcher in self._watchers:
            watcher.removed(job, entry)

    def ordered(self, now: float) -> list[ActiveJob]:
        """Everything in order: O(n log n), for round boundaries and reports."""
        if len(self._entry) == 1:
            return [entry[4] for entry in self._entry.values()]
        keyed = [
            (bucket.key(position, now), bucket.job(position))
            for bucket in self.buckets.values()
            for position in range(len(bucket))
        ]
        keyed.sort(key=lambda pair: pair[0])
        return [job for _, job in keyed]


def _nan_in(tie: tuple[float, ...]) -> bool:
    for each in tie:  # noqa: SIM110 - whoever is ranked comes by here, and a generator costs
        if each != each:
            return True
    return False
