"""One plan in the making: what the main scheduler and the backfill scheduler of Slurm do when their time has come."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.reasons import Reason, Token
from dally.core.units import show_time
from dally.policies.slurm.ends import Answer, End, will_run
from dally.policies.slurm.memory import SlurmMemory
from dally.policies.slurm.nodes import Chosen, Nodes, RoomLater, RoomNow, nodes_of
from dally.policies.slurm.rules import SlurmRules
from dally.policies.slurm.settings import EVERYWHERE, Partition
from dally.policies.slurm.space import Space

TOLD = 10  # so many jobs at the head of the queue are told when and where they are planned to start

_FIRST = Reason(Token.WAITING_FOR_GPUS, "the first of its partition does not fit now")
_BEHIND = Reason(Token.PRIORITY, "jobs before it in the order come first, and backfill has found no gap for it")


class Turn:
    """Tries starts on the free GPUs and collects them; changes the draft of the memory and nothing else."""

    def __init__(self, rules: SlurmRules, nodes: Nodes, view: View, memory: SlurmMemory, free: FreeGpus,
                 now: float) -> None:  # fmt: skip
        self.rules, self.settings, self.nodes = rules, rules.settings, nodes
        self.view, self.memory, self.free, self.now = view, memory, free, now
        self.room = RoomNow(free)
        self.up = nodes.all
        for machine in view.down:
            self.up &= ~(1 << machine)
        self.starts: Plan = []
        self.started: set[str] = set()
        self.evicted: dict[str, ActiveJob] = {}
        self.reasons: dict[str, Reason] = {}  # of single jobs
        self.blocked: set[Demand] = set()  # of the first of each partition that did not fit
        self.looked = False  # whether the main scheduler has been through the queue
        self._ends: list[End] | None = None
        self._counts: list[int] = []
        self._counted: tuple[int, int] | None = None

    def queue(self) -> Iterator[ActiveJob]:
        """Waiting jobs in order, one by one; nobody has to sort them all."""
        for entry in heapq.merge(*(bucket.entries for bucket in self.view.waiting.buckets.values())):
            if entry[4].id not in self.started:
                yield entry[4]

    # --- a job is started -------------------------------------------------------------------------------------

    def start_now(self, job: ActiveJob, partition: Partition, allowed: int) -> bool:
        """Give it GPUs that are free, or that it may take from others; whether it got them."""
        near = self.near(job)
        chosen = self.nodes.find(self.room, job.demand, partition, allowed & self.up, near)
        if chosen is None and self.settings.preempt != "off":
            chosen = self._make_room(job, partition, allowed & self.up, near)
        if chosen is None:
            if near is not None and self.nodes.find(self.room, job.demand, partition, allowed & self.up, None):
                self._waits_for_switch(job, near)
            return False
        placement = self.nodes.place(self.free, job.demand, chosen)
        self.free.take(placement)
        self.starts.append(Start(job.id, placement))
        self.started.add(job.id)
        self.rules.began(self.memory, self.view, job, self.now, self.now)
        self.memory.told.pop(job.id, None)
        self.reasons.pop(job.id, None)
        if self._ends is not None:
            self._ends.append(End(self.memory.limits[job.id], job.id, placement, nodes_of(chosen)))
            self._ends.sort(key=lambda end: end[:2])
        return True

    def near(self, job: ActiveJob) -> str | None:
        """The level it still waits for (`--switches=1@time`), counted from when it began to wait."""
        if job.demand.prefers is None:
            return None
        until = job.last_change + self.rules.switch_wait(job.demand)
        if until <= self.now:
            return None
        self.memory.timer = min(self.memory.timer, until)
        return job.demand.prefers

    def _waits_for_switch(self, job: ActiveJob, near: str) -> None:
        until = job.last_change + self.rules.switch_wait(job.demand)
        self.reasons[job.id] = Reason(Token.WAITING_FOR_LOCALITY, f"GPUs are free for it, and not inside one {near}; "
                                      f"it waits {show_time(self.rules.switch_wait(job.demand))} for that at most",
                                      until)  # fmt: skip
        self.memory.told[job.id] = True  # it is told something else once that is over

    def _make_room(self, job: ActiveJob, partition: Partition, allowed: int, near: str | None) -> Chosen | None:
        """Lesser jobs are taken off one by one, the least first, until it fits; who was not needed stays."""
        behind = self.rules.lesser(self.view, self.memory, job, self.evicted)
        if not behind or self.nodes.in_island(job.demand):  # which GPUs they would leave is not looked at
            return None
        room = RoomLater([mask.bit_count() for mask in self.free.masks])
        taken: list[ActiveJob] = []
        chosen: Chosen | None = None
        for victim in behind:
            assert victim.placement is not None
            room.give(victim.placement)
            taken.append(victim)
            chosen = self.nodes.find(room, job.demand, partition, allowed, near)
            if chosen is not None:
                break
        if chosen is None:
            return None
        need = dict(chosen)
        spare = {m: room.free_on(m) - gpus for m, gpus in need.items()}
        for victim in reversed(taken):  # the greatest is spared first
            assert victim.placement is not None
            parts = {m: mask.bit_count() for m, mask in victim.placement.slices if m in need}
            if all(spare[m] >= gpus for m, gpus in parts.items()):
                for machine, gpus in parts.items():
                    spare[machine] -= gpus
            else:
                self._evict(victim, victim.placement)
        found = self.nodes.find(self.room, job.demand, partition, allowed & nodes_of(chosen), near)
        assert found is not None, "it fits where the jobs that were taken off made room for it"
        return found

    def _evict(self, victim: ActiveJob, placement: Placement) -> None:
        self.evicted[victim.id] = victim
        self.free.give(placement)
        self.memory.limits[victim.id] = self.now  # what nobody is given it leaves when it has saved its checkpoint
        if self._ends is not None:
            self._ends = [end for end in self._ends if end.job != victim.id]

    # --- the main scheduler ----------------------------------------------------------------------------------

    def main_pass(self, full: bool) -> None:
        """In order of priority; the first of a partition that cannot start ends its turn, and its nodes are for
        nobody else until the next pass."""
        self.looked = True
        shut: set[str] = set()
        allowed, tested = self.nodes.all, 0
        for job in self.queue():
            if not full and tested > self.settings.default_queue_depth:
                break
            tested += 1
            partition = self.rules.partition(job)
            if partition.name in shut:
                continue
            if self.start_now(job, partition, allowed):
                continue
            self.blocked.add(job.demand)
            shut.add(partition.name)
            allowed &= ~self.nodes.of(partition)
            if not allowed:
                break

    # --- backfill ---------------------------------------------------------------------------------------------

    def backfill_pass(self) -> bool:
        """Every job in order gets a reservation, and starts now where that delays none of those before it. Whether
        there was somebody left to test, and some started."""
        settings = self.settings
        space = Space(self.now, settings.bf_window, settings.bf_resolution, self.up)
        before, more = len(self.starts), False
        last, shortest = self._last_that_fits()
        final = max(last.values(), default=-1)
        wanted: dict[str, int] = {}  # by partition, up to where in the order its jobs are worth a test
        seen: set[str] = set()
        reserved: dict[str, int] = {}  # by partition, jobs that a reservation was made for
        for place, job in enumerate(self.queue()):
            if place > final and place >= TOLD:
                break  # nobody further back fits even into all that is free: whatever is reserved, nobody starts
            if place >= TOLD and not self._gap(space, shortest):
                break  # every node with a free GPU is reserved too soon for the shortest of them
            if place >= settings.bf_max_job_test:
                more = True
                break
            if settings.bf_max_job_start and len(self.starts) - before >= settings.bf_max_job_start:
                more = True
                break
            if place >= TOLD and place > self._until(job, last, wanted):
                continue  # nor does anybody whose nodes it could reserve
            planned = self._test(job, space, reserved)
            if planned is not None and place < TOLD:
                seen.add(job.id)
                self._tell(job, planned, first=place == 0)
        for job_id in [each for each in self.memory.told if each not in seen]:
            if job_id in self.view.waiting and job_id not in self.started and job_id not in self.reasons:
                self.reasons[job_id] = _BEHIND
            self.memory.told.pop(job_id)
        return more and len(self.starts) > before

    def _gap(self, space: Space, shortest: float) -> bool:
        """Whether a job as short as that could start now on some node, were it small enough."""
        if self.settings.preempt != "off":
            return True
        return space.opening(self.now, self.now + shortest, self.room.at_least(1) & self.up)[0] != 0

    def _until(self, job: ActiveJob, last: dict[str, int], known: dict[str, int]) -> int:
        """The place of the last job that could start on nodes of its partition."""
        partition = self.rules.partition(job)
        if partition.name not in known:
            mine = self.nodes.of(partition)
            known[partition.name] = max((place for name, place in last.items()
                                         if self.nodes.of(self.settings.partition(name)) & mine), default=-1)
        return known[partition.name]

    def _last_that_fits(self) -> tuple[dict[str, int], float]:
        """By partition, the place in the order of its last job that free GPUs would hold if nothing were reserved;
        and the shortest limit of such jobs."""
        if self.settings.preempt != "off":
            return {name: len(self.view.waiting) for name in (*self.settings.partitions, EVERYWHERE)}, 0.0
        shortest = math.inf
        fits: dict[tuple[Demand, str], bool] = {}
        last: dict[str, int] = {}
        for place, job in enumerate(self.queue()):
            if place >= self.settings.bf_max_job_test:
                break
            partition = self.rules.partition(job)
            key = (job.demand, partition.name)
            found = fits.get(key)
            if found is None:
                found = fits[key] = self.nodes.find(self.room, job.demand, partition, self.up, None) is not None
            if found:
                last[partition.name] = place
                shortest = min(shortest, self.rules.limit(self.view, job))
        return last, shortest

    def _test(self, job: ActiveJob, space: Space, reserved: dict[str, int]) -> Answer | None:
        """Start it, or reserve nodes for it; the plan made for it, where there is one."""
        partition, limit = self.rules.partition(job), self.rules.limit(self.view, job)
        mine = self.nodes.of(partition) & self.up
        near = self.near(job)
        most = self.settings.bf_job_part_count_reserve
        if most and reserved.get(partition.name, 0) >= most:  # it starts now or is not planned at all
            allowed, _ = space.opening(self.now, self.now + limit, mine)
            if allowed:
                self.start_now(job, partition, allowed)
            return None
        later: float | None = self.now
        while later is not None:
            begin = later
            allowed, later = space.opening(begin, begin + limit, mine)
            answer = self._try(job, partition, allowed, near) if allowed else None
            if answer is None:
                continue
            start = max(answer.start, begin)
            if start <= self.now:
                if self.start_now(job, partition, allowed):
                    return None
                start = self.now + 1.0  # not reached: what was found a moment ago is still there
            if later is not None and start > later:
                continue
            if start > self.now + self.settings.bf_window:
                return Answer(start, answer.chosen)
            taken = nodes_of(answer.chosen)
            if space.overlaps(taken, space.grid(start), space.grid(start + limit)):
                later = start
                if start <= begin:
                    return None
                continue
            space.reserve(taken, start, start + limit)
            reserved[partition.name] = reserved.get(partition.name, 0) + 1
            return Answer(start, answer.chosen)
        return None

    def _try(self, job: ActiveJob, partition: Partition, allowed: int, near: str | None) -> Answer | None:
        chosen = self.nodes.find(self.room, job.demand, partition, allowed, near)
        if chosen is not None:
            return Answer(self.now, chosen)
        if self.settings.preempt != "off" and (found := self._with_preemption(job, partition, allowed, near)):
            return Answer(self.now, found)
        room = RoomLater(list(self._free_counts()))
        return will_run(self.nodes, room, self.ends(), job.demand, partition, allowed, near, self.now,
                        self.settings.one_by_one)  # fmt: skip

    def _free_counts(self) -> list[int]:
        """Free GPUs by machine; counted again once somebody has started or left."""
        key = len(self.starts), len(self.evicted)
        if self._counted != key:
            self._counts, self._counted = [mask.bit_count() for mask in self.free.masks], key
        return self._counts

    def _with_preemption(self, job: ActiveJob, partition: Partition, allowed: int, near: str | None) -> Chosen | None:
        behind = self.rules.lesser(self.view, self.memory, job, self.evicted)
        if not behind or self.nodes.in_island(job.demand):
            return None
        room = RoomLater([mask.bit_count() for mask in self.free.masks])
        for victim in behind:
            assert victim.placement is not None
            room.give(victim.placement)
        return self.nodes.find(room, job.demand, partition, allowed, near)

    def ends(self) -> list[End]:
        """Who runs, by the ends of their limits."""
        if self._ends is None:
            found = []
            for job_id, limit in self.memory.limits.items():
                job = self.view.job(job_id)
                placement = job.placement if job.placement is not None else job.leaving
                if placement is not None and job_id not in self.evicted and job_id not in self.started:
                    found.append(End(limit, job_id, placement, nodes_of(placement.slices)))
            for start in self.starts:
                if isinstance(start, Start):
                    end = self.memory.limits[start.job]
                    found.append(End(end, start.job, start.placement, nodes_of(start.placement.slices)))
            self._ends = sorted(found, key=lambda end: end[:2])
        return self._ends

    # --- what is said -----------------------------------------------------------------------------------------

    def _tell(self, job: ActiveJob, planned: Answer, first: bool) -> None:
        names = [self.view.topology.machines[machine].name or "cluster" for machine, _ in planned.chosen]
        where = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        token = Token.WAITING_FOR_GPUS if first else Token.PRIORITY
        self.memory.told[job.id] = True
        if job.id in self.reasons and self.reasons[job.id].token is Token.WAITING_FOR_LOCALITY:
            return
        self.reasons[job.id] = Reason(token, f"backfill plans its start on {where}, as limits have it", planned.start)

    def plan(self) -> Plan:
        """What was decided, and why the others wait."""
        plan: Plan = [Preempt(job_id) for job_id in self.evicted]
        plan += self.starts
        left: dict[Demand, int] = {demand: len(bucket.entries) for demand, bucket in self.view.waiting.buckets.items()}
        for job_id in self.started:
            demand = self.view.job(job_id).demand
            left[demand] -= 1
        for victim in self.evicted.values():
            left[victim.demand] = left.get(victim.demand, 0) + 1
        for demand, count in left.items():
            if count and (self.looked or demand not in self.view.reasons):
                plan.append(Wait(demand, _FIRST if demand in self.blocked else _BEHIND))
        plan += [Wait(job_id, reason) for job_id, reason in self.reasons.items()]
        return plan

