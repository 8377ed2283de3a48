"""A pass of Slurm's backfill scheduler: jobs in order get reservations, or start where that delays none before them."""

from __future__ import annotations

import math
from typing import Final

from dally.core.active import ActiveJob
from dally.core.inner import place_of
from dally.core.plan import Demand
from dally.core.ranking import Bucket, Entry, before
from dally.policies.slurm.counts import CountedSpace
from dally.policies.slurm.ends import UNKNOWN, Answer, begins, will_run
from dally.policies.slurm.nodes import nodes_of
from dally.policies.slurm.rules import MINUTE
from dally.policies.slurm.settings import EVERYWHERE, YEAR, Partition
from dally.policies.slurm.space import Space
from dally.policies.slurm.turn import Turn

TOLD: Final = 10  # so many jobs at the head of the queue are told when and where they are planned to start


class _Tested:
    """How many jobs a pass has looked at: bf_max_job_user and its like."""

    __slots__ = ("arrays", "both", "partitions", "users")

    def __init__(self) -> None:
        self.users: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        self.both: dict[tuple[str, str], int] = {}
        self.arrays: dict[str, int] = {}  # tasks that got reservations


class Backfill:
    def __init__(self, turn: Turn) -> None:
        self.turn, self.rules, self.settings, self.nodes = turn, turn.rules, turn.settings, turn.nodes
        self.view, self.now = turn.view, turn.now
        settings = turn.settings
        self.space = Space(self.now, settings.bf_window, settings.bf_resolution, turn.up)
        self._most: float = {"easy": 1, "any": 0}.get(settings.textbook, settings.bf_job_part_count_reserve or math.inf)
        self.counted = None if settings.whole_nodes else CountedSpace(turn)
        self.reserved: dict[str, int] = {}  # by partition, jobs that a reservation was made for
        self.partitions: dict[str, Partition] = {}  # of jobs that would fit
        self.tested = _Tested()
        self._queue: list[Entry] = []  # who may be tested
        self._fitting: dict[str, dict[Demand, bool]] = {}  # by partition, who fits into what was free at first
        self._shortest: float | None = None  # limit of those who do
        # What was found not to fit: free GPUs become fewer in a pass, so that it does not fit later in it either.
        self.failed: set[tuple[Demand, str, int]] = set()
        self.monotone = settings.preempt == "off" and not self.nodes.reserved
        self._only = self._only_partition()
        self._fit: list[Bucket] = []  # where there is but one: waiting jobs that free GPUs would hold, by demand
        # Until somebody starts or reserves: what is foreseen past the window for a demand is so for all who ask for it.
        self._beyond: dict[Demand, Answer] = {}
        self._first_end: float | None = None  # of limits, once nobody needs to be told his start

    def run(self) -> bool:
        """Whether there was somebody left to test, and some started."""
        settings, turn = self.settings, self.turn
        already, more = len(turn.starts), False
        most_tests, most_starts = settings.bf_max_job_test, settings.bf_max_job_start
        queue = self._queue = turn.queue(most_tests)
        last = self._last_that_fits()
        final = max(last.values(), default=-1)
        until: dict[str, int] = {}  # by partition, up to where in the order its jobs are worth a test
        told: set[str] = set()
        place = -1
        while place + 1 < len(queue):
            place += 1
            if place >= TOLD:
                if place > final:
                    break  # nobody further back fits even into all that is free: whatever is reserved, nobody starts
                if self._only is not None and self._past_the_window():
                    place = self._next_that_fits(place)
                    if place > final:
                        break
                    self._start(queue[place][4], self._only)
                    continue
                if not self._gap():
                    break  # every node with a free GPU is reserved too soon for the shortest of them
            if place >= most_tests or (most_starts and len(turn.starts) - already >= most_starts):
                more = True
                break
            job: ActiveJob = queue[place][4]
            if place >= TOLD and place > self._until(job, last, until):
                continue  # nor does anybody whose nodes it could reserve
            if self._only is not None and not self.reserved:
                planned = self._test_alike(job, self._only)
                if planned is not None and place < TOLD:
                    told.add(job.id)
                    turn.tell(job, planned.start, planned.chosen, first=place == 0)
                continue
            if self._too_many(job) or turn.stopped(job):
                continue
            planned = None
            for partition in self.rules.partitions(job):
                planned = self._test(job, partition) or planned
                if job.id in turn.started:
                    planned = None
                    break
            if planned is not None and place < TOLD:
                told.add(job.id)
                turn.tell(job, planned.start, planned.chosen, first=place == 0)
        turn.untell(told)
        return more and len(turn.starts) > already

    def _too_many(self, job: ActiveJob) -> bool:
        """Whether as many jobs like it were tested as may be in one pass."""
        settings, tested = self.settings, self.tested
        if not (settings.bf_max_job_user or settings.bf_max_job_part or settings.bf_max_job_user_part):
            return False
        user, partition = job.job.user or "", self.rules.partition(job).name
        tested.users[user] = tested.users.get(user, 0) + 1
        tested.partitions[partition] = tested.partitions.get(partition, 0) + 1
        tested.both[user, partition] = tested.both.get((user, partition), 0) + 1
        return (0 < settings.bf_max_job_user < tested.users[user]
                or 0 < settings.bf_max_job_part < tested.partitions[partition]
                or 0 < settings.bf_max_job_user_part < tested.both[user, partition])  # fmt: skip

    # --- who need not be tested -------------------------------------------------------------------------------

    def _only_partition(self) -> Partition | None:
        """Where all there is is one partition, and what becomes of a job in it is a matter of its demand and its limit
        alone: that one."""
        if len(self.rules.submitted_to) != 1 or not self.rules.alike or self.nodes.reserved or self.turn.throttles():
            return None
        for demand in self.view.waiting.buckets:
            where = demand.where
            if where is not None and where.prefers is not None:
                return None
        (only,) = self.rules.submitted_to.values()
        return None if "," in only.name else only

    def _past_the_window(self) -> bool:
        """Whether nothing is reserved, and no limit ends so soon that anything could be."""
        if self.reserved:
            return False
        if self._first_end is None:
            ends = self.turn.ends().all
            self._first_end = ends[0].time if ends else math.inf
        return self._first_end > self.now + self.settings.bf_window

    def _next_that_fits(self, place: int) -> int:
        """The place of the next job, from this one on, that free GPUs would hold."""
        queue, started = self._queue, self.turn.started
        here = queue[place]
        first: Entry | None = None
        for bucket in self._fit:
            entries = bucket.entries
            at = place_of(entries, here)
            while at < len(entries) and entries[at][4].id in started:
                at += 1
            if at < len(entries) and (first is None or before(entries[at], first)):
                first = entries[at]
        return len(queue) if first is None else place_of(queue, first)

    def _start(self, job: ActiveJob, partition: Partition) -> None:
        """All that a test could come to where nothing can be reserved. Of those who ask for the same nobody fits once
        one does not: they are not looked at."""
        turn = self.turn
        if turn.start_now(job, partition, self.nodes.of(partition) & turn.up):
            assert self._first_end is not None
            self._first_end = min(self._first_end, turn.memory.limits[job.id])
        else:
            self._fit.remove(self.view.waiting.buckets[job.demand])

    def _gap(self) -> bool:
        """Whether the shortest job that would fit could start now on some node, were it small enough."""
        if self.settings.preempt != "off" or self.counted is not None:
            return True
        turn, now = self.turn, self.now
        roomy = turn.room.at_least(1) & turn.up
        if not self.space.opening(now, now + MINUTE, roomy)[0]:
            return False
        if self.space.opening(now, now + YEAR, roomy)[0]:
            return True  # however long it takes: it need not be known who is the shortest
        if self._shortest is None:
            limits = []
            for entry in self._queue[: self.settings.bf_max_job_test]:
                job: ActiveJob = entry[4]
                fitting = self._fitting.get(self.rules.partition(job).name)
                if fitting is not None and fitting.get(job.demand):
                    limits.append(self.rules.limit(self.view, job))
            self._shortest = min(limits)
        return self.space.opening(now, now + self._shortest, roomy)[0] != 0

    def _until(self, job: ActiveJob, last: dict[str, int], known: dict[str, int]) -> int:
        """The place of the last job that could start on nodes of its partition."""
        partition = self.rules.partition(job)
        if partition.name not in known:
            mine = self.nodes.of(partition)
            known[partition.name] = max((place for name, place in last.items()
                                         if self.nodes.of(self.partitions[name]) & mine), default=-1)
        return known[partition.name]

    def _last_that_fits(self) -> dict[str, int]:
        """By partition, the place in the order of its last job that free GPUs would hold if nothing were reserved."""
        if self.settings.preempt != "off":
            self.partitions = {EVERYWHERE: Partition(EVERYWHERE)}
            return {EVERYWHERE: len(self.view.waiting)}
        if len(self.rules.submitted_to) == 1:
            (partition,) = self.rules.submitted_to.values()
            return self._last_of_one(partition)
        last: dict[str, int] = {}
        queue = self._queue
        for place in range(min(len(queue), self.settings.bf_max_job_test) - 1, -1, -1):
            job: ActiveJob = queue[place][4]
            partition = self.rules.partition(job)
            if self._fits(job.demand, partition) and partition.name not in last:
                last[partition.name] = place
                self.partitions[partition.name] = partition
        return last

    def _last_of_one(self, partition: Partition) -> dict[str, int]:
        """The same where all there is is one partition: the last of those who ask for the same says it for all."""
        queue, started = self._queue, self.turn.started
        most = self.settings.bf_max_job_test
        final: Entry | None = None
        for bucket in self.view.waiting.buckets.values():
            if not self._fits(bucket.demand, partition):
                continue
            self._fit.append(bucket)
            entries = bucket.entries
            at = (place_of(entries, queue[most]) if len(queue) > most else len(entries)) - 1
            while at >= 0 and entries[at][4].id in started:
                at -= 1
            if at >= 0 and (final is None or before(final, entries[at])):
                final = entries[at]
        if final is None:
            return {}
        self.partitions[partition.name] = partition
        return {partition.name: place_of(queue, final)}

    def _fits(self, demand: Demand, partition: Partition) -> bool:
        """Into what was free at first."""
        known = self._fitting.get(partition.name)
        if known is None:
            known = self._fitting[partition.name] = {}
        found = known.get(demand)
        if found is None:
            turn = self.turn
            found = known[demand] = turn.enough(demand) and self.nodes.holds(turn.room, demand, partition, turn.up)
        return found

    # --- one job ----------------------------------------------------------------------------------------------

    def _test(self, job: ActiveJob, partition: Partition) -> Answer | None:
        """Start it, or reserve nodes for it; the plan made for it, where there is one."""
        turn, now = self.turn, self.now
        limit = self.rules.limit(self.view, job)
        mine = self.nodes.of(partition) & turn.up
        most = self._most
        if self.reserved.get(partition.name, 0) >= most or not self._may_reserve(job):
            self._fill(job, partition, limit, mine)
            return None
        if self.counted is not None:
            return self._test_counted(job, partition, limit, mine, self.counted)
        near = turn.near(job)
        later: float | None = now
        while later is not None:
            begin = later
            allowed, later = self.space.opening(begin, begin + limit, mine)
            if self.nodes.reserved:
                allowed &= self.nodes.unreserved(job.job, begin, limit)
                change = self.nodes.next_change(begin)
                later = change if later is None else later if change is None else min(later, change)
                if later is not None and later > now + self.settings.bf_window:
                    later = None
            answer = self._try(job, partition, allowed, near) if allowed else None
            if answer is None:
                continue
            start = max(answer.start, begin)
            if start <= now:
                if turn.start_now(job, partition, allowed):
                    return None
                start = now + 1.0  # not reached: what was found a moment ago is still there
            if later is not None and start > later:
                continue
            if start > now + self.settings.bf_window:
                return Answer(start, answer.chosen)
            taken = nodes_of(answer.chosen)
            if self.space.overlaps(taken, self.space.grid(start), self.space.grid(start + limit)):
                later = start
                if start <= begin:
                    return None
                continue
            if self.nodes.reserved and taken & ~self.nodes.unreserved(job.job, start, limit):
                continue
            self.space.reserve(taken, start, start + limit)
            self._count(job, partition)
            return Answer(start, answer.chosen)
        return None

    def _test_alike(self, job: ActiveJob, partition: Partition) -> Answer | None:
        """The same while nothing is reserved, and jobs differ in nothing but demand and limit."""
        known = self._beyond.get(job.demand)
        if known is not None:
            return known
        turn = self.turn
        allowed = self.nodes.of(partition) & turn.up
        answer = self._try(job, partition, allowed, None) if allowed else None
        if answer is None:
            return None
        if answer.start <= self.now:
            self._beyond.clear()
        elif answer.start > self.now + self.settings.bf_window:
            self._beyond[job.demand] = answer
            return answer
        return self._test(job, partition)

    def _count(self, job: ActiveJob, partition: Partition) -> None:
        self.reserved[partition.name] = self.reserved.get(partition.name, 0) + 1
        if "_" not in job.id:
            return
        array, task, _ = job.id.partition("_")
        if task:
            self.tested.arrays[array] = self.tested.arrays.get(array, 0) + 1

    def _may_reserve(self, job: ActiveJob) -> bool:
        if "_" in job.id:
            array, task, _ = job.id.partition("_")
            if task and self.tested.arrays.get(array, 0) >= self.settings.bf_max_job_array_resv:
                return False
        return self.rules.reserves(job, self.view, self.turn.memory, self.now)

    def _fill(self, job: ActiveJob, partition: Partition, limit: float, mine: int) -> None:
        """It starts now, beside what is reserved, or is not planned at all."""
        if self.counted is not None:
            room = self.counted.room(self.now, limit)
            if not self.turn.start_now(job, partition, mine, room) and self.settings.preempt != "off":
                self.turn.start_now(job, partition, self.counted.untouched(self.now, limit) & mine)
            return
        allowed, _ = self.space.opening(self.now, self.now + limit, mine)
        key = (job.demand, partition.name, allowed)
        if not allowed or (self.monotone and key in self.failed):
            return
        if not self.turn.start_now(job, partition, allowed):
            self.failed.add(key)

    def _try(self, job: ActiveJob, partition: Partition, allowed: int, near: str | None) -> Answer | None:
        turn, ends = self.turn, self.turn.ends()
        if self.settings.preempt == "off":
            known = ends.foreseen.get((job.demand, partition.name, allowed, near), UNKNOWN)
            if known is not UNKNOWN:
                return begins(known, self.now)  # nothing fits now
        chosen = self.nodes.find(turn.room, job.demand, partition, allowed, near)
        if chosen is not None:
            return Answer(self.now, chosen)
        if self.settings.preempt != "off" and (found := turn.after_preemption(job, partition, allowed, near)):
            return Answer(self.now, found)
        return will_run(self.nodes, ends, job.demand, partition, allowed, near, self.now,
                        self.settings.one_by_one)  # fmt: skip

    def _test_counted(self, job: ActiveJob, partition: Partition, limit: float, mine: int,
                      space: CountedSpace) -> Answer | None:  # fmt: skip
        """The same with reservations that take GPUs, not nodes."""
        near = self.turn.near(job)
        wanted = self.nodes.wanted(job.demand, partition, mine)
        for start in space.moments(wanted, limit):
            if start > self.now + self.settings.bf_window:
                return None
            allowed = mine & self.nodes.unreserved(job.job, start, limit) if self.nodes.reserved else mine
            room = space.room(start, limit)
            chosen = self.nodes.find(room, job.demand, partition, allowed, near)
            if chosen is None:
                continue
            if start <= self.now and self.turn.start_now(job, partition, allowed, room):
                return None
            space.reserve(chosen, start, start + limit)
            self._count(job, partition)
            return Answer(start, chosen)
        return None
