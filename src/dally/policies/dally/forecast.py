"""What waiting by value has to know: how much work is left, how fast it goes where, when nearer GPUs come free.

Work and speeds come from the view's estimates. Where nobody declares any, a job is expected to run for as long again
as it has run, or as long as jobs of its demand ran before it; where speeds are unknown, every place counts as equal.
"""

from __future__ import annotations

import math
from typing import Final

from dally.core.active import ActiveJob
from dally.core.estimates import learning
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.policy import View
from dally.policies.dally.arrivals import Arrivals
from dally.policies.dally.beliefs import Beliefs
from dally.policies.dally.ends import Ends
from dally.policies.dally.examples import Examples
from dally.policies.dally.openings import Openings, OpeningsAmong, OpeningsByCount, OpeningsByShape
from dally.policies.dally.poles import LongPoles
from dally.policies.dally.queue import Queue
from dally.policies.dally.remembered import ValueMemory as ValueMemory
from dally.policies.dally.tiers import Tiers
from dally.policies.dally.work_left import FEW, AllEnded, Ended, mean_of_declared, most_of, size_of_declared

_RECENT: Final = 0.1  # weight of the latest wait in what is learned of them
_IN_TIME: Final = 1.25  # times what was expected that a wait may take for the forecast to have come true
_SURELY: Final = 1.0 - 1e-9  # of a time that was worked out another way: rounding
_SLACK: Final = 1.0  # seconds further that openings are looked for: rounding again, of times far from zero
_WORST: Final = 10.0  # no single wait counts as more than so many times longer or shorter than expected


class _Placed:
    """How fast a job is on certain GPUs."""

    __slots__ = ("placement", "speed")

    def __init__(self, placement: Placement, speed: float) -> None:
        self.placement, self.speed = placement, speed


class _AtRest:
    """Work expected to be left of a job that has done so much and does none now."""

    __slots__ = ("done", "left")

    def __init__(self, done: float, left: float) -> None:
        self.done, self.left = done, left


class Forecast:
    """Looks ahead from one moment, and notes in the memory what becomes of jobs."""

    def __init__(self, tiers: Tiers, examples: Examples, view: View, memory: ValueMemory, now: float) -> None:
        self.tiers, self.view, self.memory, self.now = tiers, view, memory, now
        self._examples = examples
        self._work, self._speed = view.estimates.work, view.estimates.speed
        self._paces, self._apart = memory.paces, memory.apart
        self.arrivals, self._beliefs, self._ends, self.queue = (
            Arrivals(memory), Beliefs(memory), Ends(memory), Queue(memory))  # fmt: skip
        self._openings: dict[tuple[Demand, int], Openings] = {}
        self._leaving: dict[str, ActiveJob] = {}  # who loses its GPUs in the plan in the making
        self._left: dict[str, float] = {}  # as asked for at this moment
        # speeds on typical GPUs by job and tier; kept where no measurement makes them others
        self._at: dict[str, dict[int, float]] | None = {} if learning(view.estimates) is None else None
        self._placed: dict[str, _Placed] = {}  # likewise, where it was last offered GPUs
        self._arrived, self._last_came, self._silence = -1, 0.0, 0.0  # when nobody comes any more
        self._ended: dict[Demand, Ended] = {}  # as asked for since a job last ended
        self._all_ended: AllEnded | None = None  # likewise
        self._at_rest: dict[str, _AtRest] = {}  # likewise, what is left of jobs without GPUs
        self._learn()

    def _learn(self) -> None:
        """What ended jobs have taught so far is looked up once: it is asked for of every job, at every turn."""
        beliefs = self._beliefs
        self._finished, self._spread, self.basis = beliefs.finished, beliefs.spread, beliefs.basis
        self._ended.clear()
        self._all_ended = None
        self._at_rest.clear()

    def at(self, now: float) -> Forecast:
        """The same from another moment, or after something has happened."""
        self.now = now
        self._leaving.clear()  # of a plan that came to nothing
        if self._openings:
            self._openings.clear()
        if self._left:
            self._left.clear()
        if self._beliefs.finished != self._finished:
            self._learn()
        return self

    # --- what happens -------------------------------------------------------------------------------------

    def queued(self, job: ActiveJob) -> None:
        """The job waits from now on."""
        self.left_gpus(job)
        self._paces[job.id] = self._near_speed(job)
        declares = self._work(job.job) is not None
        need = self.run_time_at(job, self.tiers.smallest(job.demand)) if declares else None
        self.queue.enqueue(job, self.size(job), need)

    def arrived(self, job: ActiveJob) -> None:
        near = self.run_time_at(job, self.tiers.smallest(job.demand))
        self.arrivals.arrive(job.job.submit_time, job.gpus * near)

    def got_gpus(self, job: ActiveJob, placement: Placement) -> None:
        memory = self.memory
        self._ends.expect(job, placement.gpus, self.now + self.run_time(job, placement))
        waited = self.queue.dequeue(job.id)
        if self.tiers.could_be_nearer(placement.gpus, placement):
            self._apart[job.id] = True
        elif job.id in self._apart:
            del self._apart[job.id]
        if waited is not None and waited.tier is not None:
            # who gave in and took something further out has waited at least so long
            key = (job.demand, waited.tier)
            took = min(_WORST, max(1.0 / _WORST, (self.now - waited.since) / max(waited.expected, 1.0)))
            kept, made = memory.forecasts.get(key, (0, 0))
            in_time = self.now - waited.since <= _IN_TIME * max(waited.expected, 1.0)
            there = self.tiers.of(placement) <= waited.tier and not self.tiers.scattered(placement)
            memory.forecasts[key] = (kept + (in_time and there), made + 1)
            memory.late[key] = (1.0 - _RECENT) * memory.late.get(key, 1.0) + _RECENT * took

    def expects(self, job: ActiveJob, tier: int, opening: float) -> None:
        """The job begins to wait for an opening."""
        late = self.memory.late.get((job.demand, tier), 1.0)
        self.queue.hope(job.id, tier, self.now, (opening - self.now) / late)

    def runs(self, job: ActiveJob) -> None:
        """The job runs, at its present speed from now on. As long as a lease protects it, what was expected when it got
        its GPUs is good enough."""
        self.queue.forget(job.id)
        if job.lease_until is None and job.placement is not None and job.id in self._ends.of:
            self._ends.expect(job, job.placement.gpus, self.now + self.run_time_now(job))

    def left_gpus(self, job: ActiveJob) -> None:
        self._ends.forget(job.id)
        if job.id in self._apart:
            del self._apart[job.id]

    def leaves(self, job: ActiveJob) -> None:
        """It will have left its GPUs once everybody has been asked (`settle`): until then openings that somebody has
        begun to look at stay as they were."""
        self._leaving[job.id] = job

    def settle(self) -> None:
        for job in self._leaving.values():
            self.left_gpus(job)
        self._leaving.clear()

    def held(self, job: ActiveJob) -> None:
        """It is out of the queue, and nobody knows until when."""
        self.left_gpus(job)
        self.queue.forget(job.id)

    def ended(self, job: ActiveJob, *, finished: bool) -> None:
        self.held(job)
        if job.id in self._paces:
            del self._paces[job.id]
        if self._at is not None:
            self._at.pop(job.id, None)
            self._placed.pop(job.id, None)
        if finished:
            self._beliefs.learn(job.demand, self._work(job.job), job.work_done)
            self._learn()

    def begin(self) -> LongPoles:
        """A new plan: who should have ended is expected later, and who is a long pole follows from all of it."""
        self.expect_overdue()
        count = self.arrivals.count
        if self._arrived != count:
            self._arrived, (self._last_came, self._silence) = count, self.arrivals.silence
        return LongPoles(self.queue, self._ends, self.now, self.tiers.gpus, self._declares,
                         nobody_comes=not self.now - self._last_came < self._silence)  # fmt: skip

    def expect_overdue(self) -> None:
        now, jobs = self.now, self.view.job
        late = self._ends.overdue(now)
        if late:
            self._ends.postpone([(job_id, now + max(1.0, self.run_time_now(jobs(job_id)))) for job_id in late])

    def _declares(self, job_id: str) -> bool:
        return job_id not in self._leaving and self._work(self.view.job(job_id).job) is not None

    # --- work and speed -----------------------------------------------------------------------------------

    def declares(self, job: ActiveJob) -> bool:
        """Whether anybody says how much work it is."""
        return self._work(job.job) is not None

    def size(self, job: ActiveJob) -> float:
        """What orders jobs: the seconds left on the nearest GPUs there are for it, or those it has run where nobody
        declares any, as they would have been there. Work does not say how long GPUs are held."""
        return self.size_by(job, self.pace(job))

    def size_by(self, job: ActiveJob, pace: float) -> float:
        """The same of a job whose pace is known: asked for of every job that might lose its GPUs."""
        declared, done = self._work(job.job), job.work_at(self.now)
        return (done if declared is None else size_of_declared(self._spread, declared, done)) / pace

    def pace(self, job: ActiveJob) -> float:
        """Work a second on the nearest GPUs there are for it."""
        found = self._paces.get(job.id)
        return self._near_speed(job) if found is None else found

    def known_pace(self, job: ActiveJob) -> float | None:
        """The same where it stays as it is while the job runs."""
        return self._paces.get(job.id)

    def _near_speed(self, job: ActiveJob) -> float:
        tier, best = self.tiers.smallest(job.demand), 0.0
        kinds = (job.demand.gpu_type,) if job.demand.gpu_type else self.view.topology.gpu_types
        if len(kinds) == 1:  # nothing to choose; who comes is asked for it again
            return self._speed_at(job, tier) or 1.0
        for kind in kinds:
            example = self._examples.of(job.gpus, kind, tier)
            if example is not None and (speed := self._speed(job.job, example)) is not None:
                best = max(best, speed)
        return best or 1.0

    def most(self, job: ActiveJob) -> tuple[float, float]:
        """What `size` is at most while the job runs as it does, and until when that holds."""
        size, seconds = most_of(self._spread, self._work(job.job), job.work_at(self.now), job.speed)
        return size / self.pace(job), self.now + seconds * _SURELY

    def left(self, job: ActiveJob) -> float:
        """Work expected to be left."""
        if job.placement is None and self._at is not None:
            known = self._at_rest.get(job.id)
            if known is None or known.done != job.work_done:
                known = self._at_rest[job.id] = _AtRest(job.work_done, self._mean_left(job))
            return known.left
        found = self._left.get(job.id)
        if found is None:
            found = self._left[job.id] = self._mean_left(job)
        return found

    def _mean_left(self, job: ActiveJob) -> float:
        declared, done = self._work(job.job), job.work_at(self.now)
        if declared is not None:
            return mean_of_declared(self._spread, declared, done)
        if self._finished < FEW:
            return done
        ended = self._ended.get(job.demand)
        if ended is None:
            if self._all_ended is None:
                self._all_ended = self._beliefs.all_ended()
            ended = self._ended[job.demand] = self._beliefs.ended(job.demand, self._all_ended)
        return ended.left(done)

    def run_time(self, job: ActiveJob, placement: Placement) -> float:
        if self._at is None:
            return self.left(job) / self._speed_on(job, placement)
        known = self._placed.get(job.id)
        if known is None or known.placement is not placement:  # objects
            known = self._placed[job.id] = _Placed(placement, self._speed_on(job, placement))
        return self.left(job) / known.speed

    def _speed_on(self, job: ActiveJob, placement: Placement) -> float:
        speed = self._speed(job.job, placement)
        return 1.0 if speed is None else speed

    def run_time_now(self, job: ActiveJob) -> float:
        """Where it runs."""
        return max(0.0, job.progress_from - self.now) + self.left(job) / (job.speed or 1.0)

    def run_time_at(self, job: ActiveJob, tier: int) -> float:
        """On typical GPUs of one domain of a tier."""
        return self.left(job) / self._speed_at(job, tier)

    def _speed_at(self, job: ActiveJob, tier: int) -> float:
        """Of the GPU type it is fastest on; 1 where nobody knows."""
        if self._at is None:
            return self._fastest_at(job, tier)
        known = self._at.get(job.id)
        if known is None:
            known = self._at[job.id] = {}
        found = known.get(tier)
        if found is None:
            found = known[tier] = self._fastest_at(job, tier)
        return found

    def _fastest_at(self, job: ActiveJob, tier: int) -> float:
        kinds = (job.demand.gpu_type,) if job.demand.gpu_type else self.view.topology.gpu_types
        best = -1.0
        for kind in kinds:
            example = self._examples.of(job.gpus, kind, tier)
            if example is not None:
                best = max(best, self._speed_on(job, example))
        return 1.0 if best < 0 else best

    # --- openings -----------------------------------------------------------------------------------------

    def opening(self, demand: Demand, tier: int, ahead: int, within: float = math.inf) -> float:
        """When the domain of a tier after the `ahead` soonest ones is expected to have room for the gang; ∞ where that
        is not so soon as `within` seconds from now: nobody looks further."""
        key = (demand, tier)
        found = self._openings.get(key)
        if found is None:
            found = self._openings[key] = self._find_openings(demand, tier)
        late = self.memory.late.get(key, 1.0)
        last = self.now + (within + _SLACK) / late
        times = found.times
        while ahead >= len(times):
            if found.seen > last:
                return math.inf
            if not found.look():
                return math.inf
        return self.now + late * (times[ahead] - self.now)

    def room_for(self, demand: Demand) -> tuple[float, int] | None:
        """When so many GPUs of one type are expected to be free where the gang may be, and how many more are then; none
        more where it must be inside a domain or among some machines: they may be in the same."""
        topology = self.view.topology
        if demand.where is not None and (demand.within is not None or demand.among is not None):
            widest = len(topology.levels) - 1 if demand.within is None else topology.level_index(demand.within)
            first = self._find_openings(demand, max(0, widest - self.tiers.own)).first()
            return None if first is None else (first, 0)
        found: tuple[float, int] | None = None
        for kind in (demand.gpu_type,) if demand.gpu_type else topology.gpu_types:
            free, begin = self.view.free.pools[kind].total, self.now
            for end, job_id in self._ends.soonest():
                if free >= demand.gpus:
                    break
                if job_id in self._leaving:
                    continue
                placement = self.view.job(job_id).placement
                for index, mask in placement.slices if placement is not None else ():
                    if topology.machines[index].gpu_type == kind:
                        free += gpus_in(mask)
                        begin = end
            if free >= demand.gpus and (found is None or begin < found[0]):
                found = begin, free - demand.gpus
        return found

    def _find_openings(self, demand: Demand, tier: int) -> Openings:
        """As they are now."""
        view, tiers, now = self.view, self.tiers, self.now
        ends, gone = iter(self._ends.in_order), frozenset(self._leaving)
        if demand.where is not None and demand.among is not None:
            return OpeningsAmong(ends, gone, view, now, view.free, tiers, demand, tier,
                                 view.topology.among(demand.among))  # fmt: skip
        kinds = (demand.gpu_type,) if demand.gpu_type else view.topology.gpu_types
        if tier and any(tiers.machines_for(demand.gpus, kind) > 1 for kind in kinds):
            return OpeningsByShape(ends, gone, view, now, view.free, frozenset(view.down), tiers, demand.gpus, tier,
                                   kinds)  # fmt: skip
        return OpeningsByCount(ends, gone, view, now, view.free, tiers, demand, tier)
