"""Waiting jobs of one demand in the order of offers, sorted by how many of their timers have expired.

All jobs of a demand see the same free GPUs and have the same timers; they differ in their place in the order and in
how long they have starved. A lane therefore answers "who is first in the order among those who would take an offer
of this tier" from sorted lists, however many wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sortedcontainers import SortedList

from dally.core.active import ActiveJob
from dally.core.plan import Demand
from dally.core.ranking import Rank

Key = tuple[float, float, tuple[float, ...], int]  # as in `core.ranking`, for ranks that do not move with time


class Lane:
    """Stage s holds the jobs that have starved for at least s of the thresholds."""

    __slots__ = ("_age", "_order", "_stage", "demand", "told")

    def __init__(self, demand: Demand, stages: int) -> None:
        self.demand = demand
        self.told: dict[str, tuple[object, ...]] = {}  # jobs with a reason of their own, and what it was
        self._order: list[SortedList] = [SortedList() for _ in range(stages)]  # (key, job)
        self._age: list[SortedList] = [SortedList() for _ in range(stages)]  # (last change, key, job)
        self._stage: dict[str, tuple[int, Key]] = {}

    def __len__(self) -> int:
        return len(self._stage)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._stage

    def __iter__(self) -> Iterator[ActiveJob]:
        for ages in self._age:
            for entry in ages:
                yield entry[2]

    def job(self, job_id: str) -> ActiveJob:
        stage, key = self._stage[job_id]
        order = self._order[stage]
        found: ActiveJob = order[order.bisect_left(key)][4]
        return found

    def add(self, job: ActiveJob, key: Key) -> None:
        self._put(job, key, 0)

    def _put(self, job: ActiveJob, key: Key, stage: int) -> None:
        self._stage[job.id] = (stage, key)
        self._order[stage].add((*key, job))
        self._age[stage].add((job.last_change, key, job))

    def drop(self, job: ActiveJob) -> None:
        stage, key = self._stage.pop(job.id)
        self._order[stage].remove((*key, job))
        self._age[stage].remove((job.last_change, key, job))

    def ripen(self, now: float, thresholds: Sequence[float]) -> None:
        """Sort by the thresholds as they are now: jobs that starved on go up, those whose timer was raised go down.

        `thresholds[s]` seconds of starvation lead from stage s to s + 1; they never fall with s.
        """
        for stage, threshold in enumerate(thresholds):
            ages = self._age[stage]
            while ages and ages[0][0] + threshold <= now:
                self._move(ages[0], stage + 1)
        for stage in range(len(thresholds), 0, -1):
            ages = self._age[stage]
            while ages and ages[-1][0] + thresholds[stage - 1] > now:
                self._move(ages[-1], stage - 1)

    def _move(self, entry: tuple[float, Key, ActiveJob], stage: int) -> None:
        _, key, job = entry
        self.drop(job)
        self._put(job, key, stage)

    def first(self, stage: int) -> tuple[Key, ActiveJob] | None:
        """First in the order among the jobs of this stage and later ones."""
        heads = [order[0] for order in self._order[stage:] if order]
        if not heads:
            return None
        head = min(heads)
        return head[:4], head[4]

    def oldest(self) -> float:
        """When the job that has starved longest last got or lost GPUs."""
        return float(min(ages[0][0] for ages in self._age if ages))


def key_of(job: ActiveJob, rank: Rank) -> Key:
    return (rank.base, rank.then, rank.tie, job.number)
