"""One plan of waiting by value in the making: GPUs are handed out in order (`order`), taken where somebody gains, and
kept for who has starved; running jobs move nearer; everybody who still waits is told why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heapify
from typing import TYPE_CHECKING, Final

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.inner import heappop, heappush
from dally.core.journal import Happened
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start, Wait, WakeAt
from dally.core.policy import View
from dally.core.ranking import Bucket
from dally.core.reasons import Reason, Token
from dally.policies.dally import order
from dally.policies.dally.behind import settled
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.offered import Offer
from dally.policies.dally.order import Kept
from dally.policies.dally.taking import Best, Machines, fewest_lost
from dally.policies.dally.telling import tell
from dally.policies.dally.waiting import Declined, Waiting
from dally.policies.greedy import waits_for_gpus
from dally.policies.room import make_room

if TYPE_CHECKING:
    from dally.policies.dally.value import Value

MARGIN: Final = 2.0  # GPUs are taken from jobs with so many times the remaining GPU time: no two jobs swap for ever
OVERHEAD: Final = 60.0  # seconds a move must save at least, whatever it costs
LOOKAHEAD: Final = 8  # jobs of one demand asked per plan; those behind them have more work left and wait with them

# what makes GPUs free, or jobs that may lose theirs
_FREES: Final = frozenset({ev.Finished, ev.Failed, ev.Cancelled, ev.Yielded, ev.StartFailed, ev.Interrupted,
                           ev.MachineUp, ev.MachinesChanged, ev.LeaseEnded})  # fmt: skip
Head = tuple[float, int, int, Bucket]  # its place in the order, and its number; where it is in which bucket


@lru_cache(maxsize=4096)
def _waits_for_nearer(demand: Demand) -> Wait:
    sentence = f"{demand.gpus} GPUs are free, but nearer ones are expected soon enough to be worth it"
    return Wait(demand, Reason(Token.WAITING_FOR_LOCALITY, sentence))


def frees(news: Sequence[Happened]) -> bool:
    """Whether running jobs may have something to move to, or may move now."""
    for event in news:  # noqa: SIM110 - asked at every plan, and a generator costs
        if type(event) in _FREES:
            return True
    return False


class Dealing:
    """One plan in the making."""

    def __init__(self, rules: Value, view: View, forecast: Forecast, now: float) -> None:
        self.rules, self.view, self.forecast, self.now = rules, view, forecast, now
        self.tiers, self.offers = rules.tiers, rules.offers
        self.costly = rules.preempt == "costly"
        self.queue = len(view.waiting)  # as many wait when the plan begins
        self.evicted: dict[str, ActiveJob] = {}
        self.passed: list[tuple[ActiveJob, float, int]] = []  # who got nobody's GPUs, before anybody lost any
        self.waits: list[tuple[ActiveJob, Declined]] = []
        self.waiting = Waiting(rules.waits, forecast, self.waits, lasting=rules.preempt == "never")
        self.poles = forecast.begin()
        self.kept: Kept | None = None  # for the first that has waited out of all proportion
        self._most = -1.0  # that anybody behind has left; -1: nobody has asked yet

    def plan(self) -> Plan:
        with self.view.free.trial() as free:
            self.offers.begin(free, self.view.layout)
            starts = self._start_poles(free)
            started = {start.job for start in starts}
            starves = self._hand_out(free, starts, started)
            self.forecast.settle()
            if starves != self.forecast.memory.starves:
                self.forecast.memory.starves = starves
            moves = self._moves(free)
            reasons = self._reasons(started)
        plan: Plan = [Preempt(job_id) for job_id in self.evicted]
        plan += moves
        plan += starts
        plan += reasons
        untold = self.rules.untell(self.view, started, self.waits, reasons)
        plan += self._own_reasons()
        plan += untold
        for move in moves:
            self.forecast.got_gpus(self.view.job(move.job), move.placement)
        for start in starts:
            self.forecast.got_gpus(self.view.job(start.job), start.placement)
        wake = math.inf
        for _, said in self.waits:
            wake = min(wake, said.until)
        if self.now < wake < math.inf:
            plan.append(WakeAt(wake))
        return plan

    def _hand_out(self, free: FreeGpus, starts: list[Start], started: set[str]) -> str:
        """To who waits, in order; returns for whom GPUs are kept. The head of each demand is one of a heap."""
        starves = ""
        heads: list[Head] = []
        for bucket in self.view.waiting.buckets.values():
            heads.append(self._head(bucket, 0))
        heapify(heads)
        asked: dict[Demand, int] = {}
        while heads:
            first, _, at, bucket = heappop(heads)
            job = bucket.job(at)
            if job.id not in started:
                answer = self._answer(free, job, first)
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
                    asked[bucket.demand] = asked.get(bucket.demand, 0) + 1
                    if asked[bucket.demand] == LOOKAHEAD:
                        continue
                else:
                    self._take(free, answer)
                    starts.append(Start(job.id, answer, self.rules.lease))
                    started.add(job.id)
                    if self.kept is not None:
                        self.kept.take(job.gpus, self.now + self.forecast.run_time(job, answer))
            if at + 1 < len(bucket):
                heappush(heads, self._head(bucket, at + 1))
        return starves

    def _take(self, free: FreeGpus, placement: Placement) -> None:
        free.take(placement)
        self.offers.change()

    def _head(self, bucket: Bucket, at: int) -> Head:
        """A waiting job with its place in the order, as so many wait."""
        job, now = bucket.job(at), self.now
        if self.forecast.declares(job):
            base: float = bucket.entries[at][0]
            first = (base + bucket.slope * now) * self.weight(job.gpus)
        else:
            first = self._aged(job, False)
        return (first, job.number, at, bucket)

    def weight(self, gpus: int) -> float:
        return order.weight(gpus, self.queue, self.rules.breadth)

    def _start_poles(self, free: FreeGpus) -> list[Start]:
        """Waiting jobs that would outlast all others take what is free before anybody else. Where it could not be taken
        from them again, they leave what is kept for somebody."""
        starts: list[Start] = []
        if not self.forecast.memory.longest:
            return starts
        starves = self.forecast.memory.starves
        kept = None
        if self.rules.preempt == "never" and starves in self.view.waiting and self._starved(self.view.job(starves)):
            kept = self._keep_for(self.view.job(starves))
        for job_id in self.poles.waiting():
            job = self.view.job(job_id)
            placement = self._accepts(free, job, self.offers.of(free, job.demand))
            if isinstance(placement, Placement):
                if kept is not None:
                    end = self.now + self.forecast.run_time(job, placement)
                    if job.id != starves and not kept.leaves(job.gpus, end):
                        continue
                    kept.take(job.gpus, end)
                self.poles.started(job)
                self._take(free, placement)
                starts.append(Start(job.id, placement, self.rules.lease))
        return starts

    def _most_behind(self) -> float:
        """What no running job that might lose its GPUs has more of left, as they were when somebody first asked."""
        if self._most < 0:
            self._most = self.rules.behind.weigh(self.forecast, self.queue, self.rules.breadth)
        return self._most

    def _answer(self, free: FreeGpus, job: ActiveJob, place: float) -> Placement | Declined | None:
        """GPUs it takes, what it would rather wait for, or None where it can have none."""
        offer = self.offers.of(free, job.demand)
        if offer.room < 0 or offer.room > offer.wanted:
            taken = self._take_from_others(free, job, offer, place)
            if taken is not None:
                return taken
        return self._accepts(free, job, offer)

    def _accepts(self, free: FreeGpus, job: ActiveJob, offer: Offer) -> Placement | Declined | None:
        """The same of GPUs that are free."""
        placement = self.offers.placement(free, offer)
        if placement is None:
            return None
        if self.kept is not None and not self.kept.leaves(job.gpus, self.now + self.forecast.run_time(job, placement)):
            return None
        return self.waiting.rather(job, placement, offer.wanted, offer.room) or placement

    def _starved(self, job: ActiveJob) -> bool:
        """Whether it has waited out of all proportion: what comes free is kept together for it."""
        waited = job.starvation(self.now)
        if not order.starved(waited, 0.0, self.rules.lease):
            return False  # most, and what is left takes long to say
        return order.starved(waited, self.forecast.left(job) / self.forecast.pace(job), self.rules.lease)

    def _keep_for(self, job: ActiveJob) -> Kept | None:
        """None where nobody can say when it fits."""
        found = self.forecast.room_for(job.demand)
        return None if found is None else Kept(*found)

    def price(self, job: ActiveJob) -> float:
        """Seconds that taking its GPUs away costs, where that is to count."""
        return self.view.price(job) if self.costly else 0.0

    def _aged(self, job: ActiveJob, declares: bool) -> float:
        return order.aged(self.forecast.size(job), job.starvation(self.now), job.gpus, self.weight(job.gpus),
                          self.rules.breadth, declares)  # fmt: skip

    def _take_from_others(self, free: FreeGpus, job: ActiveJob, offer: Offer, place: float) -> Placement | None:
        """The gang in the nearest tier there is for it, where jobs with far more GPU time left make room. `place`: in
        the order, as it was asked; of who declares its work, what is believed may have become another since."""
        least = MARGIN * max(0.0, self._aged(job, True) if self.forecast.declares(job) else place)
        if self._most_behind() <= least:
            return None
        tier = offer.wanted
        where, kinds = job.demand.where, (job.demand.gpu_type,) if job.demand.gpu_type else tuple(free.pools)
        if where is not None and job.demand.bound and offer.room < 0:
            room = make_room(free, job.demand, self._victims(job, least, tier))
            return None if room is None else self._evict_for(free, job, room, None)
        if where is not None and job.demand.shaped:
            return None  # there is room for it: nobody is sent away to have it nearer
        level, behind = self.tiers.own + tier, self.rules.behind
        best = Best()
        for kind in kinds:
            able = behind.could_open(free, job.gpus, kind, level, least, self.forecast)
            if not able:
                continue
            losers = Losers(self, job, least, tier)
            if tier:
                victims = behind.hindmost(self.forecast, least, losers)
                fewest_lost(best, free, job.gpus, kind, level, able, victims)
            else:
                Machines(best, behind, self.forecast, least, losers).choose(free, job.gpus, kind, able)
        if best.chosen is not None:
            return self._evict_for(free, job, best.chosen, tier)
        if not self.evicted:
            self.passed.append((job, least, tier))
        return None

    def _victims(self, job: ActiveJob, least: float, tier: int) -> Iterator[ActiveJob]:
        """Who has more than so much GPU time left, besides what taking it costs, the most first."""
        victims = self.rules.behind.hindmost(self.forecast, least, Losers(self, job, least, tier))
        while (victim := victims.next()) is not None:
            yield victim

    def _evict_for(self, free: FreeGpus, job: ActiveJob, victims: Sequence[ActiveJob],
                   tier: int | None) -> Placement | None:  # fmt: skip
        """Their GPUs are free, and the gang gets its own at a tier; None: at the nearest there is."""
        for before in self.passed:  # poles are what they are when the first asks who may lose GPUs
            if self.poles.looked:
                break
            next(self._victims(*before), None)
        self.passed.clear()
        for victim in victims:
            assert victim.placement is not None
            free.give(victim.placement)
            self.evicted[victim.id] = victim
            self.forecast.leaves(victim)
        self.offers.change()
        found = self.tiers.nearest(free, job.demand) if tier is None else tier
        return None if found is None else self.tiers.place(free, job.demand, found)

    def _moves(self, free: FreeGpus) -> list[Migrate]:
        """Running jobs that free GPUs would bring nearer together, where that saves more than it costs."""
        moves: list[Migrate] = []
        if not self.forecast.memory.apart or (not self.evicted and not frees(self.view.news)):
            return moves
        done: Move | None = None  # who moved last
        while True:
            done = self._nearer(free, done)
            if done is None:
                return moves
            self._take(free, done.placement)
            moves.append(Migrate(done.job.id, done.placement, self.rules.lease))

    def _nearer(self, free: FreeGpus, after: Move | None) -> Move | None:
        """The first running job after a place in the order that saves more than it costs by being nearer. All of a
        class are offered the same GPUs."""
        best: Move | None = None
        for apart in self.rules.behind.could_be_nearer(self.forecast).values():
            offer = apart.offer
            if offer is None:
                offer = apart.offer = self.offers.of(free, apart.demand)
            else:
                self.offers.refresh(free, offer)
            if not apart.may_be_nearer(offer, self.tiers, free):
                continue
            placement = self.offers.placement(free, offer)
            if placement is None or not apart.nearer(self.tiers.of(placement), len(placement.slices)):
                continue
            for job in apart.jobs.values():
                if job.id in self.evicted or not settled(job, self.now):
                    continue
                size = self.weight(job.gpus) * self.forecast.size(job)
                if after is not None and not after.before(size, job.number):
                    continue
                if best is not None and best.before(size, job.number):
                    continue
                if self._saves(job, placement):
                    best = Move(size, job, placement)
        return best

    def _saves(self, job: ActiveJob, placement: Placement) -> bool:
        """Whether a running job gains more there than moving costs."""
        now_left = self.forecast.left(job) / (job.speed or 1.0)
        return now_left > OVERHEAD and (
            now_left - self.forecast.run_time(job, placement) > max(OVERHEAD, self.price(job)))  # fmt: skip

    def _own_reasons(self) -> list[Wait]:
        """Of those who decline."""
        memory, reasons = self.forecast.memory, self.view.reasons
        told = [tell(self.tiers, memory, job, said, reasons.get(job.id), self.now) for job, said in self.waits]
        own = [wait for wait in told if wait is not None]
        for wait in own:
            self.rules.told.add(str(wait.who))
        return own

    def _reasons(self, started: set[str]) -> list[Wait]:
        """One per demand of which somebody still waits."""
        reasons: list[Wait] = []
        declined = {job.demand for job, _ in self.waits}
        gone = {job.demand for job in self.evicted.values()}
        for demand, bucket in self.view.waiting.buckets.items():
            if started and len(bucket) <= len(started) and demand not in gone and _all_in(bucket, started):
                continue
            nearer = len(declined) > 0 and demand in declined
            reasons.append(_waits_for_nearer(demand) if nearer else waits_for_gpus(demand))
        if self.evicted:
            told = {wait.who for wait in reasons}
            for job in self.evicted.values():
                if job.demand not in told:
                    told.add(job.demand)
                    reasons.append(waits_for_gpus(job.demand))
        return reasons


def _all_in(bucket: Bucket, started: set[str]) -> bool:
    return all(entry[4].id in started for entry in bucket.entries)


class Move:
    """A running job to be moved, and its place in the order."""

    __slots__ = ("job", "placement", "size")

    def __init__(self, size: float, job: ActiveJob, placement: Placement) -> None:
        self.size, self.job, self.placement = size, job, placement

    def before(self, size: float, number: int) -> bool:
        return self.size < size or (self.size == size and self.job.number < number)


class Losers:
    """Who may lose GPUs to a job that takes them from jobs with more than so much left."""

    __slots__ = ("_dealing", "_job", "_least", "_need", "_starved", "_tier")

    def __init__(self, dealing: Dealing, job: ActiveJob, least: float, tier: int) -> None:
        self._dealing, self._job, self._least, self._tier = dealing, job, least, tier
        self._starved = False  # then not even a pole keeps its GPUs from it
        self._need = -1.0  # seconds it needs; -1: nobody has asked yet

    def may_lose(self, victim: ActiveJob, size: float) -> bool:
        """Whether somebody with so much left may."""
        dealing, job = self._dealing, self._job
        if victim.id in dealing.evicted:
            return False
        if dealing.costly and size <= self._least + dealing.weight(victim.gpus) * dealing.price(victim):
            return False
        return self._starves() or dealing.poles.may_lose_gpus(victim, job, self._need)

    def everybody(self) -> bool:
        """Whether all of them may, whoever they are."""
        dealing = self._dealing
        if dealing.costly or dealing.evicted:
            return False
        return self._starves() or not dealing.poles.runs()

    def _starves(self) -> bool:
        """Whether the job does; how long it needs is worked out beside."""
        if self._need < 0:
            dealing, job = self._dealing, self._job
            self._starved, self._need = dealing._starved(job), dealing.forecast.run_time_at(job, self._tier)
        return self._starved
