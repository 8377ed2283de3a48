"""What waiting by value has to know: how much work is left, how fast it goes where, when nearer GPUs come free.

Work and speeds come from the view's estimates. Where nobody declares any, a job is expected to run for as long again
as it has run, or as long as jobs of its demand ran before it; where speeds are unknown, every place counts as equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from dally.core.active import ActiveJob
from dally.core.memory import Table
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.policy import View
from dally.policies.dally.arrivals import Arrivals
from dally.policies.dally.beliefs import Beliefs
from dally.policies.dally.ends import Ends
from dally.policies.dally.examples import Examples
from dally.policies.dally.poles import LongPoles
from dally.policies.dally.queue import Queue
from dally.policies.dally.tiers import Tiers

_RECENT = 0.1  # weight of the latest wait in what is learned of them
_IN_TIME = 1.25  # times what was expected that a wait may take for the forecast to have come true
_WORST = 10.0  # no single wait counts as more than so many times longer or shorter than expected


class ValueMemory(Arrivals, Beliefs, Ends, Queue):
    """What comes, what is believed of jobs, when running ones end, who waits for what; and, per demand and tier, how
    much longer than expected openings took (others are faster, jobs run longer than declared)."""

    late: Table[tuple[Demand, int], float]
    forecasts: Table[tuple[Demand, int], tuple[int, int]]  # of openings: how many came true, of how many
    apart: Table[str, bool]  # running jobs that could be nearer together when they got their GPUs


class Forecast:
    """Looks ahead from one moment, and notes in the memory what becomes of jobs."""

    def __init__(self, tiers: Tiers, examples: Examples, view: View, memory: ValueMemory, now: float) -> None:
        self.tiers, self.view, self.memory, self.now = tiers, view, memory, now
        self._examples = examples
        self._openings: dict[tuple[Demand, int], tuple[list[float], Iterator[float]]] = {}

    # --- what happens -------------------------------------------------------------------------------------

    def queued(self, job: ActiveJob) -> None:
        """The job waits from now on."""
        self.left_gpus(job)
        declares = self.view.estimates.work(job.job) is not None
        need = self.run_time_at(job, self.tiers.smallest(job.demand)) if declares else None
        self.memory.enqueue(job, self.size(job), need)

    def arrived(self, job: ActiveJob) -> None:
        near = self.run_time_at(job, self.tiers.smallest(job.demand))
        self.memory.arrive(job.job.submit_time, job.gpus * near)

    def got_gpus(self, job: ActiveJob, placement: Placement) -> None:
        memory = self.memory
        memory.expect(job, placement.gpus, self.now + self.run_time(job, placement))
        waited = memory.dequeue(job.id)
        if self.tiers.could_be_nearer(placement.gpus, placement):
            memory.apart[job.id] = True
        else:
            memory.apart.pop(job.id, None)
        if waited is not None and waited.tier is not None:
            # who gave in and took something further out has waited at least so long
            key = (job.demand, waited.tier)
            took = min(_WORST, max(1.0 / _WORST, (self.now - waited.since) / max(waited.expected, 1.0)))
            kept, made = memory.forecasts.get(key, (0, 0))
            in_time = self.now - waited.since <= _IN_TIME * max(waited.expected, 1.0)
            memory.forecasts[key] = (kept + (in_time and self.tiers.of(placement) <= waited.tier), made + 1)
            memory.late[key] = (1.0 - _RECENT) * memory.late.get(key, 1.0) + _RECENT * took

    def expects(self, job: ActiveJob, tier: int, opening: float) -> None:
        """The job begins to wait for an opening."""
        late = self.memory.late.get((job.demand, tier), 1.0)
        self.memory.hope(job.id, tier, self.now, (opening - self.now) / late)

    def runs(self, job: ActiveJob) -> None:
        """The job runs, at its present speed from now on. As long as a lease protects it, what was expected when it got
        its GPUs is good enough."""
        if job.id in self.memory.waits:
            self.memory.forget_waiting(job.id)
        if job.lease_until is None and job.placement is not None and job.id in self.memory.ends:
            self.memory.expect(job, job.placement.gpus, self.now + self.run_time_now(job))

    def left_gpus(self, job: ActiveJob) -> None:
        self.memory.forget_end(job.id)
        self.memory.apart.pop(job.id, None)

    def held(self, job: ActiveJob) -> None:
        """It is out of the queue, and nobody knows until when."""
        self.left_gpus(job)
        self.memory.forget_waiting(job.id)

    def ended(self, job: ActiveJob, *, finished: bool) -> None:
        self.held(job)
        if finished:
            self.memory.learn(job.demand, self.view.estimates.work(job.job), job.work_done)

    def begin(self) -> LongPoles:
        """A new plan: who should have ended is expected later, and who is a long pole follows from all of it."""
        view, memory = self.view, self.memory
        for job_id in memory.overdue(self.now):
            job = view.job(job_id)
            memory.expect(job, memory.ends[job_id].gpus, self.now + max(1.0, self.run_time_now(job)))
        return LongPoles(memory, memory, self.now, self.tiers.gpus, self._declares)

    def _declares(self, job_id: str) -> bool:
        return self.view.estimates.work(self.view.job(job_id).job) is not None

    # --- work and speed -----------------------------------------------------------------------------------

    def size(self, job: ActiveJob) -> float:
        """What orders jobs: the work left, or the time it has run where nobody declares any."""
        return self.memory.size(self.view.estimates.work(job.job), job.work_at(self.now))

    def left(self, job: ActiveJob) -> float:
        """Work expected to be left."""
        return self.memory.left(job.demand, self.view.estimates.work(job.job), job.work_at(self.now)).mean

    def run_time(self, job: ActiveJob, placement: Placement) -> float:
        speed = self.view.estimates.speed(job.job, placement)
        return self.left(job) / (1.0 if speed is None else speed)

    def run_time_now(self, job: ActiveJob) -> float:
        """Where it runs."""
        return max(0.0, job.progress_from - self.now) + self.left(job) / (job.speed or 1.0)

    def run_time_at(self, job: ActiveJob, tier: int) -> float:
        """On typical GPUs of one domain of a tier."""
        kinds = (job.demand.gpu_type,) if job.demand.gpu_type else self.view.topology.gpu_types
        times = [self.run_time(job, example) for kind in kinds
                 if (example := self._examples.of(job.gpus, kind, tier)) is not None]  # fmt: skip
        return min(times, default=self.left(job))

    # --- openings -----------------------------------------------------------------------------------------

    def opening(self, demand: Demand, tier: int, ahead: int) -> float:
        """When the domain of a tier after the `ahead` soonest ones is expected to have room for the gang."""
        key = (demand, tier)
        found = self._openings.get(key)
        if found is None:
            found = self._openings[key] = ([], self._find_openings(demand, tier))
        times, more = found
        while ahead >= len(times):
            time = next(more, None)
            if time is None:
                return float("inf")
            times.append(time)
        return self.now + self.memory.late.get(key, 1.0) * (times[ahead] - self.now)

    def room_for(self, demand: Demand) -> tuple[float, int] | None:
        """When so many GPUs of one type are expected to be free wherever they are, and how many more are then."""
        topology, found = self.view.topology, None
        for kind in (demand.gpu_type,) if demand.gpu_type else topology.gpu_types:
            free = self.view.free.pools[kind].total
            for end, job_id in self.memory.soonest():
                if free >= demand.gpus:
                    break
                placement = self.view.job(job_id).placement
                for index, mask in placement.slices if placement is not None else ():
                    if topology.machines[index].gpu_type == kind:
                        free += mask.bit_count()
                        begin = end
            if free >= demand.gpus and (found is None or begin < found[0]):
                found = begin, free - demand.gpus
        return found

    def _find_openings(self, demand: Demand, tier: int) -> Iterator[float]:
        """The soonest first, as they are when the first of them is asked for; nobody looks further than it must."""
        view, level = self.view, self.tiers.own + tier
        topology = view.topology
        top = level == len(topology.levels) - 1
        kinds = (demand.gpu_type,) if demand.gpu_type else topology.gpu_types
        if demand.where is not None and demand.among is not None:
            yield from self._openings_among(demand, level, topology.among(demand.among))
            return
        pools = {kind: pool for kind in kinds if (pool := view.free.pools.get(kind)) is not None}
        open_now = sum(pool.domains_with(level, demand.gpus).bit_count() for pool in pools.values())
        free = {kind: [pool.total] if top else list(pool.counts[level]) for kind, pool in pools.items()}
        ends = list(self.memory.ends_in_order)
        for _ in range(open_now):
            yield self.now
        for end, _, job_id in ends:
            placement = view.job(job_id).placement
            for index, mask in placement.slices if placement is not None else ():
                machine = topology.machines[index]
                counts = free.get(machine.gpu_type)
                if counts is not None:
                    domain = machine.domains[tier]
                    before = counts[domain]
                    counts[domain] = after = before + mask.bit_count()
                    if before < demand.gpus <= after:
                        yield end

    def _openings_among(self, demand: Demand, level: int, allowed: int) -> Iterator[float]:
        """The same, of the machines it may run on."""
        view = self.view
        topology = view.topology
        kinds = (demand.gpu_type,) if demand.gpu_type else topology.gpu_types
        free: dict[tuple[str, int], int] = {}
        for machine in topology.machines:
            if machine.gpu_type in kinds and allowed >> machine.index & 1:
                key = (machine.gpu_type, topology.domain_of(machine.index, level).index)
                free[key] = free.get(key, 0) + view.free.masks[machine.index].bit_count()
        ends = list(self.memory.soonest())
        yield from [self.now for count in free.values() if count >= demand.gpus]
        for end, job_id in ends:
            placement = view.job(job_id).placement
            for index, mask in placement.slices if placement is not None else ():
                machine = topology.machines[index]
                if machine.gpu_type in kinds and allowed >> index & 1:
                    key = (machine.gpu_type, topology.domain_of(index, level).index)
                    before = free[key]
                    free[key] += mask.bit_count()
                    if before < demand.gpus <= free[key]:
                        yield end
