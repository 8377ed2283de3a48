"""Waiting jobs of one demand in the order of offers, sorted by how many of their timers have expired.

All jobs of a demand see the same free GPUs and have the same timers; they differ in their place in the order and in
how long they have starved. A lane therefore answers "who is first in the order among those who would take an offer
of this tier" from sorted lists, however many wait. Lanes follow the queue of the view. While a plan is made nobody is
taken out of them: who has accepted is passed over by name.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from typing import Final

from dally.core.active import ActiveJob
from dally.core.inner import place_of
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.ranking import Entry

NOT_ASKED: Final = -2  # of the innermost tier with room: not looked for yet
NO_ROOM: Final = -1


class Lane:
    """Stage s holds the jobs that had starved for at least s of the thresholds when it was last ripened."""

    __slots__ = ("_age", "_but", "_order", "_passed", "_stage", "demand", "told")

    def __init__(self, demand: Demand, stages: int) -> None:
        self.demand = demand
        self.told: set[str] = set()  # jobs that may have a reason of their own: the view knows which do
        # ascending; plain lists, as the buckets of the queue are
        self._order: list[list[Entry]] = [[] for _ in range(stages)]
        self._age: list[list[tuple[float, Entry]]] = [[] for _ in range(stages)]  # (last change, entry)
        self._stage: dict[str, tuple[int, float]] = {}  # stage, last change
        # how many at the head of each stage's order are among those who are passed over: they are in no later answer
        self._but: Container[str] = ()
        self._passed = [0] * stages

    def __len__(self) -> int:
        return len(self._stage)

    def __bool__(self) -> bool:
        return bool(self._stage)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._stage

    def add(self, entry: Entry) -> None:
        self._put(entry, entry[4].last_change, 0)

    def _put(self, entry: Entry, since: float, stage: int) -> None:
        self._stage[entry[4].id] = (stage, since)
        self._passed[stage] = 0
        order, ages = self._order[stage], self._age[stage]
        order.insert(place_of(order, entry), entry)
        ages.insert(place_of(ages, (since, entry)), (since, entry))

    def drop(self, entry: Entry) -> float:
        """Take a job out; returns since when it starved."""
        stage, since = self._stage.pop(entry[4].id)
        order, ages = self._order[stage], self._age[stage]
        self._passed[stage] = 0
        order.pop(place_of(order, entry))
        ages.pop(place_of(ages, (since, entry)))
        return since

    def ripen(self, now: float, thresholds: Sequence[float]) -> None:
        """Sort by the thresholds as they are now: jobs that starved on go up, those whose timer was raised go down.

        `thresholds[s]` seconds of starvation lead from stage s to s + 1; they never fall with s. So the stages depend
        on the time and the thresholds of this call alone, not on those before.
        """
        for stage, threshold in enumerate(thresholds):
            ages = self._age[stage]
            while ages and ages[0][0] + threshold <= now:
                self._move(ages[0], stage + 1)
        for stage in range(len(thresholds), 0, -1):
            ages = self._age[stage]
            while ages and ages[-1][0] + thresholds[stage - 1] > now:
                self._move(ages[-1], stage - 1)

    def _move(self, aged: tuple[float, Entry], stage: int) -> None:
        since, entry = aged
        self.drop(entry)
        self._put(entry, since, stage)

    def first(self, stage: int, but: Container[str]) -> Entry | None:
        """First in the order among the jobs of this stage and later ones, without some, who may only become more."""
        if but is not self._but:  # objects: another plan
            self._but, self._passed = but, [0] * len(self._order)
        best: Entry | None = None
        for at in range(stage, len(self._order)):
            head = self._head(at, but)
            if head is not None and (best is None or head < best):
                best = head
        return best

    def _head(self, stage: int, but: Container[str]) -> Entry | None:
        order, at = self._order[stage], self._passed[stage]
        while at < len(order) and order[at][4].id in but:
            at += 1
        self._passed[stage] = at
        return order[at] if at < len(order) else None

    def oldest(self, but: Container[str]) -> float:
        """When the job that has starved longest last got or lost GPUs."""
        best = math.inf
        for ages in self._age:
            since = _oldest(ages, but) if ages else None
            if since is not None and since < best:
                best = since
        return best


def _oldest(ages: list[tuple[float, Entry]], but: Container[str]) -> float | None:
    for since, entry in ages:
        if entry[4].id not in but:
            return since
    return None


class Bid:
    """A lane in a round: its timers, what is free for it, and who of it would take that."""

    __slots__ = ("demand", "lane", "least", "place", "room", "taken", "tier", "timed", "waits")

    def __init__(self, lane: Lane) -> None:
        self.lane, self.demand = lane, lane.demand
        self.taken: set[str] | tuple[()] = ()  # who has accepted, and is still in its lane
        self.timed = False  # whether the timers are those of now
        self.waits: tuple[float, ...] = ()
        # starvation from which on something at tier 1, 2, … or further out is accepted
        self.least: tuple[float, ...] = ()
        self.room = NOT_ASKED  # the innermost tier with room
        self.place: Entry | None = None  # the first taker, and the tier it takes
        self.tier = 0


class Lanes:
    """The queue by demand. Hears of whoever comes and goes (a watcher of the view's `waiting`)."""

    def __init__(self, view: View, stages: int) -> None:
        self._view, self._stages = view, stages
        self._lanes: dict[Demand, Lane] = {}
        self.version = 0  # raised when somebody comes or goes
        self.left: dict[str, float] = {}  # who left the queue since it was last cleared, and since when it had starved

    def added(self, job: ActiveJob, entry: Entry) -> None:
        self.version += 1
        lane = self._lanes.get(job.demand)
        if lane is None:
            lane = self._lanes[job.demand] = Lane(job.demand, self._stages)
        lane.add(entry)
        if job.id in self._view.reasons:
            lane.told.add(job.id)

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        self.version += 1
        lane = self._lanes[job.demand]
        self.left[job.id] = lane.drop(entry)
        lane.told.discard(job.id)
        if not len(lane):
            del self._lanes[job.demand]

    def __getitem__(self, demand: Demand) -> Lane:
        return self._lanes[demand]

    def __contains__(self, demand: Demand) -> bool:
        return demand in self._lanes

    def __iter__(self) -> Iterator[Lane]:
        """In the order of the view, which does not depend on when this index was made."""
        return iter(self.in_order())

    def in_order(self) -> list[Lane]:
        return [self._lanes[demand] for demand in self._view.waiting.buckets]
