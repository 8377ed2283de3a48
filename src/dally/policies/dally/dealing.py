"""One plan of waiting by value in the making: GPUs are handed out in order (`order`), taken where somebody gains, and
kept for who has starved; running jobs move nearer; everybody who still waits is told why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start, Wait, WakeAt
from dally.core.policy import View
from dally.core.ranking import Bucket
from dally.core.reasons import Reason, Token
from dally.policies.dally import order
from dally.policies.dally.behind import Hindmost, settled
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.keeping import Kept
from dally.policies.dally.taking import Best, fewest_lost, fewest_lost_of
from dally.policies.dally.telling import tell
from dally.policies.dally.waiting import Declined, Waiting
from dally.policies.greedy import waits_for_gpus
from dally.policies.room import make_room

if TYPE_CHECKING:
    from dally.policies.dally.value import Value

MARGIN = 2.0  # GPUs are taken from jobs with so many times the remaining GPU time: no two jobs swap for ever
OVERHEAD = 60.0  # seconds a move must save at least, whatever it costs
LOOKAHEAD = 8  # jobs of one demand asked per plan; those behind them have more work left and wait with them

# what makes GPUs free, or jobs that may lose theirs
FREES = (ev.Finished, ev.Failed, ev.Cancelled, ev.Yielded, ev.StartFailed, ev.Interrupted, ev.MachineUp,
         ev.MachinesChanged, ev.LeaseEnded)  # fmt: skip
Head = tuple[float, float, tuple[float, ...], int, int, Bucket]  # its key; where it is in which bucket


@lru_cache(maxsize=4096)
def _waits_for_nearer(demand: Demand) -> Wait:
    sentence = f"{demand.gpus} GPUs are free, but nearer ones are expected soon enough to be worth it"
    return Wait(demand, Reason(Token.WAITING_FOR_LOCALITY, sentence))


class Dealing:
    """One plan in the making."""

    def __init__(self, rules: Value, view: View, forecast: Forecast, now: float) -> None:
        self.rules, self.view, self.forecast, self.now = rules, view, forecast, now
        self.tiers = rules.tiers
        self.weights: dict[int, float] = {}  # by GPUs, as many wait when the plan begins
        self.evicted: dict[str, ActiveJob] = {}
        self.passed: list[tuple[ActiveJob, float, int]] = []  # who got nobody's GPUs, before anybody lost any
        self.waits: list[tuple[ActiveJob, Declined]] = []
        self.waiting = Waiting(rules.waits, forecast, self.waits, lasting=rules.preempt == "never")
        self.poles = forecast.begin()
        self.kept: Kept | None = None  # for the first that has waited out of all proportion
        self._behind: Hindmost | None = None

    def plan(self) -> Plan:
        with self.view.free.trial() as free:
            starts = self._start_poles(free)
            started = {start.job for start in starts}
            starves = self._hand_out(free, starts, started)
            self.forecast.settle()
            if starves != self.forecast.memory.starves:
                self.forecast.memory.starves = starves
            moves = self._moves(free)
            reasons = self._reasons(free, started)
        plan: Plan = [Preempt(job_id) for job_id in self.evicted]
        plan += [*moves, *starts, *reasons.values()]
        untold = self.rules.untell(self.view, started.union(job.id for job, _ in self.waits), reasons)
        plan += self._own_reasons()
        plan += untold
        for action in (*moves, *starts):
            if isinstance(action, (Start, Migrate)):
                self.forecast.got_gpus(self.view.job(action.job), action.placement)
        wake = min((said.until for _, said in self.waits), default=math.inf)
        if self.now < wake < math.inf:
            plan.append(WakeAt(wake))
        return plan

    def _hand_out(self, free: FreeGpus, starts: list[Start], started: set[str]) -> str:
        """To who waits, in order; returns for whom GPUs are kept. The head of each demand is one of a heap."""
        starves = ""
        heads = [self._head(bucket, 0) for bucket in self.view.waiting.buckets.values()]
        heapify(heads)
        asked: dict[Demand, int] = {}
        while heads:
            _, _, _, _, at, bucket = heappop(heads)
            job, demand = bucket.job(at), bucket.demand
            if job.id not in started:
                answer = self._answer(free, job)
                if answer is None:
                    if self.kept is None and self._starved(job):
                        self.kept, starves = self._keep_for(job), job.id
                        if self.kept is None:
                            break  # nobody can say when it fits
                    continue
                if isinstance(answer, Declined):
                    self.waits.append((job, answer))
                    if answer.expected is not None and answer.expected < math.inf:
                        self.forecast.expects(job, answer.tier, answer.expected)
                    asked[demand] = asked.get(demand, 0) + 1
                    if asked[demand] == LOOKAHEAD:
                        continue
                else:
                    free.take(answer)
                    starts.append(Start(job.id, answer, self.rules.lease))
                    started.add(job.id)
                    if self.kept is not None:
                        self.kept.take(job.gpus, self.now + self.forecast.run_time(job, answer))
            if at + 1 < len(bucket):
                heappush(heads, self._head(bucket, at + 1))
        return starves

    def _head(self, bucket: Bucket, at: int) -> Head:
        """A waiting job with its place in the order, as so many wait."""
        first, then, tie, number = bucket.key(at, self.now)
        job, gpus = bucket.job(at), bucket.demand.gpus
        if self.view.estimates.work(job.job) is None:
            first = self._aged(job)
        else:
            first *= self._weight(gpus)
        return (first, then, tie, number, at, bucket)

    def _weight(self, gpus: int) -> float:
        found = self.weights.get(gpus)
        if found is None:
            found = self.weights[gpus] = order.weight(gpus, len(self.view.waiting), self.rules.breadth)
        return found

    def _start_poles(self, free: FreeGpus) -> list[Start]:
        """Waiting jobs that would outlast all others take what is free before anybody else. Where it could not be taken
        from them again, they leave what is kept for somebody."""
        starts: list[Start] = []
        starves = self.forecast.memory.starves
        kept = None
        if self.rules.preempt == "never" and starves in self.view.waiting and self._starved(self.view.job(starves)):
            kept = self._keep_for(self.view.job(starves))
        for job_id in self.poles.waiting():
            job = self.view.job(job_id)
            placement = self._accepts(free, job, self.tiers.nearest(free, job.demand))
            if isinstance(placement, Placement):
                if kept is not None:
                    end = self.now + self.forecast.run_time(job, placement)
                    if job.id != starves and not kept.leaves(job.gpus, end):
                        continue
                    kept.take(job.gpus, end)
                self.poles.started(job)
                free.take(placement)
                starts.append(Start(job.id, placement, self.rules.lease))
        return starts

    @property
    def behind(self) -> Hindmost:
        """Running jobs that no lease protects and that are not loading, the hindmost of the order first, as they were
        when somebody first asked."""
        if self._behind is None:
            self._behind = self.rules.behind.in_order(self.forecast, self._weight)
        return self._behind

    def _answer(self, free: FreeGpus, job: ActiveJob) -> Placement | Declined | None:
        """GPUs it takes, what it would rather wait for, or None where it can have none."""
        room, smallest = self.tiers.nearest(free, job.demand), self.tiers.wanted(job.demand)
        if room is None or room > smallest:
            taken = self._take_from_others(free, job, smallest)
            if taken is not None:
                return taken
        return self._accepts(free, job, room)

    def _accepts(self, free: FreeGpus, job: ActiveJob, room: int | None) -> Placement | Declined | None:
        """The same of GPUs that are free, the nearest of them at tier `room`."""
        if room is None:
            return None
        placement = self.tiers.place(free, job.demand, room)
        assert placement is not None
        if self.kept is not None and not self.kept.leaves(job.gpus, self.now + self.forecast.run_time(job, placement)):
            return None
        return self.waiting.rather(job, placement, self.tiers.wanted(job.demand), room) or placement

    def _starved(self, job: ActiveJob) -> bool:
        """Whether it has waited out of all proportion: what comes free is kept together for it."""
        waited = job.starvation(self.now)
        if not order.starved(waited, 0.0, self.rules.lease):
            return False  # most, and what is left takes long to say
        return order.starved(waited, self._left(job) / self.forecast.pace(job), self.rules.lease)

    def _keep_for(self, job: ActiveJob) -> Kept | None:
        """None where nobody can say when it fits."""
        found = self.forecast.room_for(job.demand)
        return None if found is None else Kept(*found)

    def _price(self, job: ActiveJob) -> float:
        """Seconds that taking its GPUs away costs, where that is to count."""
        return self.view.price(job) if self.rules.preempt == "costly" else 0.0

    def _left(self, job: ActiveJob) -> float:
        return self.forecast.left(job)

    def _aged(self, job: ActiveJob) -> float:
        return order.aged(self.forecast.size(job), job.starvation(self.now), job.gpus, self._weight(job.gpus),
                          self.rules.breadth, self.view.estimates.work(job.job) is not None)  # fmt: skip

    def _take_from_others(self, free: FreeGpus, job: ActiveJob, tier: int) -> Placement | None:
        """The gang in the nearest tier there is for it, where jobs with far more GPU time left make room."""
        least = MARGIN * max(0.0, self._aged(job))
        if self.behind.most <= least:
            return None
        where, kinds = job.demand.where, (job.demand.gpu_type,) if job.demand.gpu_type else tuple(free.pools)
        if where is not None and job.demand.bound and self.tiers.nearest(free, job.demand) is None:
            room = make_room(free, job.demand, self._victims(job, least, tier))
            return None if room is None else self._evict_for(free, job, room, None)
        if where is not None and job.demand.shaped:
            return None  # there is room for it: nobody is sent away to have it nearer
        level, behind = self.tiers.own + tier, self.rules.behind
        best = Best()
        for kind in kinds:
            if not behind.may_open(free, job.gpus, kind, level, least):
                continue
            holders = behind.holders(free, job.gpus, kind, level, least, self.forecast)
            if holders is None:
                fewest_lost(best, free, behind.held, job.gpus, kind, level, self._victims(job, least, tier))
            else:
                fewest_lost_of(best, free, job.gpus, kind, level, holders, self._losers(job, least, tier))
        if best.chosen is not None:
            return self._evict_for(free, job, best.chosen, tier)
        if not self.evicted:
            self.passed.append((job, least, tier))
        return None

    def _victims(self, job: ActiveJob, least: float, tier: int) -> Iterator[ActiveJob]:
        """Who has more than so much GPU time left, besides what taking it costs, the most first."""
        may_lose = self._losers(job, least, tier)
        return (victim for size, victim in self.behind.beyond(least) if may_lose(victim, size))

    def _losers(self, job: ActiveJob, least: float, tier: int) -> Callable[[ActiveJob, float], bool]:
        """Whether somebody with so much left may lose its GPUs to the job."""
        starved: bool | None = None  # then not even a pole keeps its GPUs from it
        need = 0.0
        costly = self.rules.preempt == "costly"

        def may_lose(victim: ActiveJob, size: float) -> bool:
            nonlocal starved, need
            if victim.id in self.evicted:
                return False
            if costly and size <= least + self._weight(victim.gpus) * self._price(victim):
                return False
            if starved is None:
                starved, need = self._starved(job), self.forecast.run_time_at(job, tier)
            return starved or self.poles.may_lose_gpus(victim, job, need)

        return may_lose

    def _evict_for(self, free: FreeGpus, job: ActiveJob, victims: Sequence[ActiveJob],
                   tier: int | None) -> Placement | None:  # fmt: skip
        """Their GPUs are free, and the gang gets its own at a tier; None: at the nearest there is."""
        for before in self.passed:  # poles are what they are when the first asks who may lose GPUs
            next(self._victims(*before), None)
        self.passed.clear()
        for victim in victims:
            assert victim.placement is not None
            free.give(victim.placement)
            self.evicted[victim.id] = victim
            self.forecast.leaves(victim)
        found = self.tiers.nearest(free, job.demand) if tier is None else tier
        return None if found is None else self.tiers.place(free, job.demand, found)

    def _moves(self, free: FreeGpus) -> Plan:
        """Running jobs that free GPUs would bring nearer together, where that saves more than it costs."""
        moves: Plan = []
        if not self.evicted and not any(isinstance(event, FREES) for event in self.view.news):
            return moves
        done: tuple[float, int] | None = None  # the place in the order of who moved last
        while True:
            found = self._nearer(free, done)
            if found is None:
                return moves
            done, job, placement = found
            free.take(placement)
            moves.append(Migrate(job.id, placement, self.rules.lease))

    def _nearer(self, free: FreeGpus,
                after: tuple[float, int] | None) -> tuple[tuple[float, int], ActiveJob, Placement] | None:  # fmt: skip
        """The first running job after a place in the order that saves more than it costs by being nearer. All of a
        class are offered the same GPUs."""
        if not self.forecast.memory.apart:
            return None
        best: tuple[tuple[float, int], ActiveJob, Placement] | None = None
        for (demand, tier, machines), jobs in self.rules.behind.could_be_nearer(self.forecast).items():
            room = self.tiers.nearest(free, demand)
            if room is None or room > tier:
                continue
            placement = self.tiers.place(free, demand, room)
            if placement is None or (self.tiers.of(placement), len(placement.slices)) >= (tier, machines):
                continue
            for job in jobs.values():
                if job.id in self.evicted or not settled(job, self.now) or not self._saves(job, placement):
                    continue
                place = (self._weight(job.gpus) * self.forecast.size(job), job.number)
                if (after is None or place > after) and (best is None or place < best[0]):
                    best = place, job, placement
        return best

    def _saves(self, job: ActiveJob, placement: Placement) -> bool:
        """Whether a running job gains more there than moving costs."""
        now_left = self._left(job) / (job.speed or 1.0)
        return now_left > OVERHEAD and (
            now_left - self.forecast.run_time(job, placement) > max(OVERHEAD, self._price(job)))  # fmt: skip

    def _own_reasons(self) -> list[Wait]:
        """Of those who decline."""
        memory, reasons = self.forecast.memory, self.view.reasons
        told = [tell(self.tiers, memory, job, said, reasons.get(job.id), self.now) for job, said in self.waits]
        own = [wait for wait in told if wait is not None]
        self.rules.told.update(str(wait.who) for wait in own)
        return own

    def _reasons(self, free: FreeGpus, started: set[str]) -> dict[Demand, Wait]:
        """One per demand of which somebody still waits."""
        reasons: dict[Demand, Wait] = {}
        declined = {job.demand for job, _ in self.waits}
        for demand in (*self.view.waiting.buckets, *(job.demand for job in self.evicted.values())):
            reasons[demand] = _waits_for_nearer(demand) if demand in declined else waits_for_gpus(demand)
        gone = {job.demand for job in self.evicted.values()}
        for demand, bucket in self.view.waiting.buckets.items() if started else ():
            if len(bucket) <= len(started) and demand not in gone and all(
                    entry[4].id in started for entry in bucket.entries):  # fmt: skip
                del reasons[demand]
        return reasons
