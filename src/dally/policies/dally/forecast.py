"""What waiting by value has to know: how much work is left, how fast it goes where, when nearer GPUs come free.

Work and speeds come from the view's estimates. Where nobody declares any, a job is expected to run for as long again
as it has run, or as long as jobs of its demand ran before it; where speeds are unknown, every place counts as equal.
"""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, lowest_gpus
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.topology import Topology
from dally.policies.dally.beliefs import Beliefs
from dally.policies.dally.ends import Ends
from dally.policies.dally.poles import LongPoles
from dally.policies.dally.tiers import Tiers
from dally.policies.placing import place_within

_RECENT = 0.1  # weight of the latest wait in what is learned of them
_WORST = 10.0  # no single wait counts as more than so many times longer or shorter than expected


class Forecast:
    """Knows who holds which GPUs; learns run times of ended jobs per demand, and per demand and tier how much
    longer than expected an opening takes (others are faster, jobs run longer than declared)."""

    def __init__(self, tiers: Tiers) -> None:
        self.tiers = tiers
        self.ends = Ends()
        self.apart: dict[str, ActiveJob] = {}  # running jobs that could be nearer together
        self.beliefs = Beliefs()
        self.poles = LongPoles()
        self._examples: dict[tuple[int, str, int], Placement | None] = {}
        self._empty: FreeGpus | None = None
        self._late: dict[tuple[Demand, int], float] = {}  # how much longer openings took than expected
        self._expecting: dict[str, tuple[int, float, float]] = {}  # tier waited for, since when, expected wait
        self._openings: dict[tuple[Demand, int], list[float]] = {}
        self._now = 0.0

    # --- what happens -------------------------------------------------------------------------------------

    def queued(self, view: View, job: ActiveJob, now: float) -> None:
        """The job waits from now on."""
        self.left_gpus(job)
        if view.estimates.work(job.job) is not None:
            self.poles.queued(job, self.run_time_at(view, job, self.tiers.smallest(job.demand), now))

    def got_gpus(self, view: View, job: ActiveJob, placement: Placement) -> None:
        self.ends.expect(job, placement, self._now + self.run_time(view, job, placement, self._now))
        self.poles.left_queue(job.id)
        if self.tiers.could_be_nearer(job.gpus, placement):
            self.apart[job.id] = job
        else:
            self.apart.pop(job.id, None)
        waited = self._expecting.pop(job.id, None)
        if waited is not None:
            # who gave in and took something further out has waited at least so long
            tier, since, expected = waited
            key = (job.demand, tier)
            took = min(_WORST, max(1.0 / _WORST, (self._now - since) / max(expected, 1.0)))
            self._late[key] = (1.0 - _RECENT) * self._late.get(key, 1.0) + _RECENT * took

    def expects(self, job: ActiveJob, tier: int, opening: float) -> None:
        """The job begins to wait for an opening."""
        if job.id not in self._expecting:
            late = self._late.get((job.demand, tier), 1.0)
            self._expecting[job.id] = (tier, self._now, (opening - self._now) / late)

    def runs(self, view: View, job: ActiveJob, now: float) -> None:
        """The job runs at its present speed from now on."""
        if job.id in self.ends and job.placement is not None:
            self.ends.expect(job, job.placement, now + self.run_time_now(view, job, now))

    def left_gpus(self, job: ActiveJob) -> None:
        self.ends.forget(job)
        self.apart.pop(job.id, None)

    def ended(self, view: View, job: ActiveJob, *, finished: bool) -> None:
        self.left_gpus(job)
        self.poles.left_queue(job.id)
        self._expecting.pop(job.id, None)
        if finished:
            self.beliefs.learn(job.demand, view.estimates.work(job.job), job.work_done)

    def begin(self, view: View, now: float) -> None:
        self._openings.clear()
        self._now = now
        for job, placement in self.ends.overdue(now):
            self.ends.expect(job, placement, now + max(1.0, self.run_time_now(view, job, now)))
        self.poles.begin(self.ends, now, view.topology.gpus,
                         lambda job: view.estimates.work(job.job) is not None)  # fmt: skip

    def run_time_now(self, view: View, job: ActiveJob, now: float) -> float:
        """Where it runs."""
        return max(0.0, job.progress_from - now) + self.left(view, job, now) / (job.speed or 1.0)

    # --- work and speed -----------------------------------------------------------------------------------

    def size(self, view: View, job: ActiveJob, now: float) -> float:
        """What orders jobs: the work left, or the time it has run where nobody declares any."""
        return self.beliefs.left(job.demand, view.estimates.work(job.job), job.work_at(now)).size

    def left(self, view: View, job: ActiveJob, now: float) -> float:
        """Work expected to be left."""
        return self.beliefs.left(job.demand, view.estimates.work(job.job), job.work_at(now)).mean

    def run_time(self, view: View, job: ActiveJob, placement: Placement, now: float) -> float:
        speed = view.estimates.speed(job.job, placement)
        return self.left(view, job, now) / (1.0 if speed is None else speed)

    def run_time_at(self, view: View, job: ActiveJob, tier: int, now: float) -> float:
        """The same on typical GPUs of one domain of a tier."""
        kinds = (job.demand.gpu_type,) if job.demand.gpu_type else view.topology.gpu_types
        times = [self.run_time(view, job, example, now) for kind in kinds
                 if (example := self._example(view.topology, job.gpus, kind, tier)) is not None]  # fmt: skip
        return min(times, default=self.left(view, job, now))

    def _example(self, topology: Topology, gpus: int, kind: str, tier: int) -> Placement | None:
        key = (gpus, kind, tier)
        if key not in self._examples:
            if self._empty is None:
                self._empty = FreeGpus(topology)
            self._examples[key] = self._make_example(self._empty, gpus, kind, tier)
        return self._examples[key]

    def _make_example(self, empty: FreeGpus, gpus: int, kind: str, tier: int) -> Placement | None:
        """On the fewest machines; halved between two domains below where it would not need the tier."""
        level = self.tiers.own + tier
        found = place_within(empty, empty.pools[kind], gpus, level, tight=False)
        if found is None or gpus == 1 or self.tiers.of(found) == tier:
            return found
        topology = empty.topology
        for domain in topology.domains[level]:
            halves: dict[int, int] = {}
            left = [gpus - gpus // 2, gpus // 2]
            below: list[int] = []
            for index in domain.machines:
                machine = topology.machines[index]
                part = topology.domain_of(index, level - 1).index
                if machine.gpu_type != kind or (part not in below and len(below) == 2):
                    continue
                if part not in below:
                    below.append(part)
                side = below.index(part)
                count = min(left[side], machine.gpus)
                if count:
                    halves[index] = lowest_gpus(machine.full_mask, count)
                    left[side] -= count
            if not any(left):
                return Placement.of(halves.items())
        return found

    # --- openings -----------------------------------------------------------------------------------------

    def opening(self, view: View, demand: Demand, tier: int, ahead: int) -> float:
        """When the domain of a tier after the `ahead` soonest ones is expected to have room for the gang."""
        key = (demand, tier)
        if key not in self._openings:
            self._openings[key] = self._find_openings(view, demand, tier)
        times = self._openings[key]
        if ahead >= len(times):
            return float("inf")
        return self._now + self._late.get(key, 1.0) * (times[ahead] - self._now)

    def _find_openings(self, view: View, demand: Demand, tier: int) -> list[float]:
        topology, level = view.topology, self.tiers.own + tier
        kinds = (demand.gpu_type,) if demand.gpu_type else topology.gpu_types
        free: dict[tuple[str, int], int] = {}
        for machine in topology.machines:
            if machine.gpu_type in kinds:
                key = (machine.gpu_type, topology.domain_of(machine.index, level).index)
                free[key] = free.get(key, 0) + view.free.masks[machine.index].bit_count()
        times = [self._now for count in free.values() if count >= demand.gpus]
        for end, placement in self.ends.soonest():
            for index, mask in placement.slices:
                machine = topology.machines[index]
                if machine.gpu_type in kinds:
                    key = (machine.gpu_type, topology.domain_of(index, level).index)
                    before = free[key]
                    free[key] += mask.bit_count()
                    if before < demand.gpus <= free[key]:
                        times.append(end)
        return times
