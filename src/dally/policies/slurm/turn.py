"""One plan in the making: jobs are given GPUs, others lose theirs, and what the main scheduler does in its turn."""

from __future__ import annotations

from typing import Final

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.inner import place_of
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Entry
from dally.core.reasons import Reason, Token
from dally.core.units import show_time
from dally.policies.slurm.ends import Ends
from dally.policies.slurm.memory import SlurmMemory
from dally.policies.slurm.nodes import Nodes, counted, nodes_of
from dally.policies.slurm.room import Chosen, Room, RoomLater, RoomNow
from dally.policies.slurm.rules import SlurmRules
from dally.policies.slurm.settings import Partition

_LONG: Final = 4000  # waiting jobs: of more, only those that may be looked at are

_FIRST = Reason(Token.WAITING_FOR_GPUS, "the first of its partition does not fit now")
_BEHIND = Reason(Token.PRIORITY, "jobs before it in the order come first, and backfill has found no gap for it")


def unlooked(view: View) -> Plan:
    """Where it is nobody's turn to look at the queue: a reason for those who have none yet."""
    return [Wait(demand, _BEHIND) for demand in view.waiting.buckets if demand not in view.reasons]


class _Said:
    """What a waiting job was last told of its start, and what that was made of."""

    __slots__ = ("chosen", "first", "reason", "start")

    def __init__(self, start: float, chosen: Chosen, first: bool, reason: Reason) -> None:
        self.start, self.chosen, self.first, self.reason = start, chosen, first, reason


class Line:
    """Waiting jobs of all demands in one order; follows the ranking."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.said: dict[str, _Said] = {}  # of those who wait: most are told the same again and again
        self.throttled = 0  # tasks of arrays of which only so many may run at a time

    def added(self, job: ActiveJob, entry: Entry) -> None:
        self.entries.insert(place_of(self.entries, entry), entry)
        self.throttled += job.job.throttle is not None

    def removed(self, job: ActiveJob, entry: Entry) -> None:
        self.entries.pop(place_of(self.entries, entry))
        self.throttled -= job.job.throttle is not None
        self.said.pop(job.id, None)


class Turn:
    """Tries starts on the free GPUs and collects them; changes the draft of the memory and nothing else."""

    def __init__(self, rules: SlurmRules, nodes: Nodes, line: Line, ends: Ends, view: View, memory: SlurmMemory,
                 free: FreeGpus, now: float) -> None:  # fmt: skip
        self.rules, self.settings, self.nodes = rules, rules.settings, nodes
        self.view, self.memory, self.free, self.now = view, memory, free, now
        self.room = RoomNow(free)
        self.up = nodes.all
        for machine in view.down:
            self.up &= ~(1 << machine)
        self.starts: Plan = []
        self.started: dict[str, Placement] = {}
        self.evicted: dict[str, ActiveJob] = {}
        self.reasons: dict[str, Reason] = {}  # of single jobs
        self.blocked: set[Demand] = set()  # of the first of each partition that did not fit
        self.looked = False  # whether the main scheduler has been through the queue
        self._line, self._ends = line, ends
        self._starts_seen = self._evicted_seen = -1  # those that they reflect

    def queue(self, most: int) -> list[Entry]:
        """Waiting jobs in order, but for those that have been started since: so many, and one more where there is."""
        entries, started = self._line.entries, self.started
        if not started:
            return entries
        ahead = 0
        while ahead < len(entries) and entries[ahead][4].id in started:
            ahead += 1
        if ahead == len(started):  # as a rule the first are
            return entries[ahead : ahead + most + 1]
        return [entry for entry in entries[: most + 1 + len(started)] if entry[4].id not in started]

    def enough(self, demand: Demand) -> bool:
        """Whether as many GPUs are free as it asks for, wherever they are: less than that it fits."""
        for pool in self.free.pools.values():  # noqa: SIM110 - asked for everybody who waits, and a generator costs
            if pool.total >= demand.gpus:
                return True
        return False

    def throttles(self) -> bool:
        """Whether limits of those who share them, or of an array, may keep anybody who waits from starting."""
        return self.rules.limiter.any or self._line.throttled > 0

    # --- a job is started -------------------------------------------------------------------------------------

    def start_now(self, job: ActiveJob, partition: Partition, allowed: int, room: Room | None = None) -> bool:
        """Give it GPUs that are free, or that it may take from others; whether it got them. `room`: what of the free
        ones it may have, where that is not all."""
        near = self.near(job)
        if self.nodes.reserved:
            allowed &= self.nodes.unreserved(job.job, self.now, self.rules.limit(self.view, job))
        chosen = self.nodes.find(room or self.room, job.demand, partition, allowed & self.up, near)
        if chosen is None and room is None and self.settings.preempt != "off":
            chosen = self._make_room(job, partition, allowed & self.up, near)
        if chosen is None:
            if near is not None and self.nodes.find(self.room, job.demand, partition, allowed & self.up, None):
                self._waits_for_switch(job, near)
            return False
        placement = self.nodes.place(self.free, job.demand, chosen)
        self.free.take(placement)
        self.starts.append(Start(job.id, placement))
        self.started[job.id] = placement
        self._ends.touched[job.id] = None
        self.rules.began(self.memory, self.view, job, placement, self.now, self.now)
        self.memory.told.pop(job.id, None)
        self.memory.stopped.pop(job.id, None)
        self.reasons.pop(job.id, None)
        return True

    def stopped(self, job: ActiveJob) -> bool:
        """Whether a limit of those it shares it with keeps it from starting; it is told which."""
        if not self.rules.limiter.any and job.job.throttle is None:
            return False
        reason = self.rules.stopped(self.memory, self.view, job, self.now)
        if reason is None:
            if self.memory.stopped.pop(job.id, None) and job.id not in self.reasons:
                self.reasons[job.id] = _BEHIND
            return False
        if job.id not in self.memory.stopped:
            self.memory.stopped[job.id] = True
            self.reasons[job.id] = reason
        return True

    def near(self, job: ActiveJob) -> str | None:
        """The level it still waits for (`--switches=1@time`), counted from when it began to wait."""
        if job.demand.where is None or job.demand.prefers is None:
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
        behind = self.rules.lesser(self.view, self.memory, job, self.evicted, self.now)
        if not behind or self.nodes.in_island(job.demand):  # which GPUs they would leave is not looked at
            return None
        room = RoomLater([gpus_in(mask) for mask in self.free.masks])
        taken: list[ActiveJob] = []
        chosen: Chosen | None = None
        for victim in behind:
            assert victim.placement is not None
            room.give(counted(victim.placement))
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
            parts = {m: gpus_in(mask) for m, mask in victim.placement.slices if m in need}
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
        self._ends.touched[victim.id] = None

    # --- the main scheduler ----------------------------------------------------------------------------------

    def main_pass(self, full: bool) -> None:
        """In order of priority; the first of a partition that cannot start ends its turn, and its nodes are for
        nobody else until the next pass."""
        self.looked = True
        shut: set[str] = set()
        deep: dict[str, int] = {}  # by partition, jobs that were tested
        settings = self.settings
        most, depth = settings.partition_job_depth, settings.default_queue_depth
        allowed, tested = self.nodes.all, 0
        entries = self._line.entries
        deepest = len(entries)
        if deepest > _LONG:
            deepest = max(settings.bf_max_job_test, depth) + _LONG
        for place in range(min(deepest, len(entries))):
            job: ActiveJob = entries[place][4]
            for partition in self.rules.partitions(job):
                if not full and tested > depth:
                    return
                tested += 1
                if partition.name in shut or job.id in self.started:
                    continue
                if most:
                    deep[partition.name] = deep.get(partition.name, 0) + 1
                    if deep[partition.name] > most:
                        continue
                if self.stopped(job):
                    if settings.limits_stop:
                        shut.add(partition.name)
                    continue
                if self.start_now(job, partition, allowed):
                    continue
                self.blocked.add(job.demand)
                shut.add(partition.name)
                allowed &= ~self.nodes.of(partition)
                if not allowed:
                    return

    # --- what backfill asks -----------------------------------------------------------------------------------

    def ends(self) -> Ends:
        """Who runs, by the ends of their limits, and what is free; as this plan has it so far."""
        ends = self._ends
        starts, evicted = len(self.starts), len(self.evicted)
        if starts != self._starts_seen or evicted != self._evicted_seen:
            self._starts_seen, self._evicted_seen = starts, evicted
            touched, ends.touched = ends.touched, {}
            for job_id in touched:
                limit = self.memory.limits.get(job_id)
                if job_id in self.started or job_id in self.evicted:
                    ends.touched[job_id] = None  # nobody knows yet whether the plan will be kept
                    ends.put(job_id, limit, self.started.get(job_id))
                elif limit is None:
                    ends.put(job_id, None, None)
                else:
                    job = self.view.job(job_id)
                    ends.put(job_id, limit, job.placement if job.placement is not None else job.leaving)
            ends.free_are(self.free.masks)
        return ends

    def after_preemption(self, job: ActiveJob, partition: Partition, allowed: int, near: str | None) -> Chosen | None:
        """Nodes for it if everybody it may preempt were gone."""
        behind = self.rules.lesser(self.view, self.memory, job, self.evicted, self.now)
        if not behind or self.nodes.in_island(job.demand):
            return None
        room = RoomLater([gpus_in(mask) for mask in self.free.masks])
        for victim in behind:
            assert victim.placement is not None
            room.give(counted(victim.placement))
        return self.nodes.find(room, job.demand, partition, allowed, near)

    # --- what is said -----------------------------------------------------------------------------------------

    def tell(self, job: ActiveJob, start: float, chosen: Chosen, first: bool) -> None:
        told, job_id = self.memory.told, job.id
        if job_id not in told:
            told[job_id] = True
        reason = self.reasons.get(job_id)
        if reason is not None and reason.token is Token.WAITING_FOR_LOCALITY:
            return
        said = self._line.said.get(job_id)
        if said is None or said.start != start or said.first != first or said.chosen != chosen:
            said = self._line.said[job_id] = _Said(start, chosen, first, self._planned(start, chosen, first))
        self.reasons[job_id] = said.reason

    def _planned(self, start: float, chosen: Chosen, first: bool) -> Reason:
        machines = self.view.topology.machines
        where = ", ".join([machines[machine].name or "cluster" for machine, _ in chosen[:4]])
        where += ", …" if len(chosen) > 4 else ""
        token = Token.WAITING_FOR_GPUS if first else Token.PRIORITY
        return Reason(token, f"backfill plans its start on {where}, as limits have it", start)

    def untell(self, told: set[str]) -> None:
        """Who was told a start before and is not now waits behind others."""
        for job_id in [each for each in self.memory.told if each not in told]:
            if job_id in self.view.waiting and job_id not in self.started and job_id not in self.reasons:
                self.reasons[job_id] = _BEHIND
            self.memory.told.pop(job_id)

    def plan(self) -> Plan:
        """What was decided, and why the others wait."""
        plan: Plan = [Preempt(job_id) for job_id in self.evicted]
        plan += self.starts
        gone: dict[Demand, int] = {}  # who waits no more
        for job_id in self.started:
            demand = self.view.job(job_id).demand
            gone[demand] = gone.get(demand, 0) + 1
        back = dict.fromkeys([victim.demand for victim in self.evicted.values()])
        buckets, said = self.view.waiting.buckets, self.view.reasons
        for demand, bucket in buckets.items():
            if not gone or len(bucket.entries) > gone.get(demand, 0) or demand in back:
                self._explain(plan, demand)
        for demand in back:
            if demand not in buckets:
                self._explain(plan, demand)
        for job_id, reason in self.reasons.items():
            if said.get(job_id) != reason:  # what was said holds
                plan.append(Wait(job_id, reason))
        return plan

    def _explain(self, plan: Plan, demand: Demand) -> None:
        said = self.view.reasons.get(demand)
        if said is None or self.looked:
            reason = _FIRST if demand in self.blocked else _BEHIND
            if said != reason:
                plan.append(Wait(demand, reason))
