"""Beyond the paper: wait for nearer GPUs as long as the wait is worth it (`waiting`; derived in docs/dally.md).

Least remaining GPU time first, with ageing; GPUs are taken only where somebody gains, and kept for who has waited out
of all proportion.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.journal import Entry
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Resize, Start, Wait, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.reasons import Reason, Token
from dally.core.states import State
from dally.policies.dally.examples import Examples
from dally.policies.dally.forecast import Forecast, ValueMemory
from dally.policies.dally.keeping import Kept
from dally.policies.dally.telling import tell
from dally.policies.dally.tiers import Tiers
from dally.policies.dally.waiting import Declined, Waiting, Waits
from dally.policies.greedy import waits_for_gpus
from dally.policies.preempting import Preempting
from dally.policies.room import make_room

AGEING = 0.1  # a job waits at most ten times what it still needs before nothing newer passes it
MARGIN = 2.0  # GPUs are taken from jobs with so many times the remaining GPU time: no two jobs swap for ever
OVERHEAD = 60.0  # seconds a move must save at least, whatever it costs
LOOKAHEAD = 8  # jobs of one demand asked per plan; those behind them have more work left and wait with them

_RUNS = (ev.Started, ev.Measured, ev.LeaseEnded, ev.ContactRestored)
_ENDS = (ev.Finished, ev.Failed, ev.Cancelled)
_WAITS = (ev.Yielded, ev.StartFailed, ev.Interrupted)
_QUEUES = (*_WAITS, ev.Arrived, ev.Released)
_PLACES = (Start, Migrate, Resize)
_FREES = (*_ENDS, *_WAITS, ev.MachineUp, ev.MachinesChanged, ev.LeaseEnded)


class Value:
    """Least remaining GPU time first, with ageing; waiting by its value; GPUs taken only where somebody gains."""

    def __init__(self, tiers: Tiers, lease: float, view: View, waits: Waits = "value",
                 preempt: Preempting = "free") -> None:  # fmt: skip
        self.tiers, self.lease, self.waits, self.preempt = tiers, lease, waits, preempt
        self._examples = Examples(view.topology, tiers)
        # jobs that may have been told that they decline; the view knows who was
        self.told = {who for who, reason in view.reasons.items() if isinstance(who, str) and reason.evidence}

    def forecast(self, view: View, memory: ValueMemory, now: float) -> Forecast:
        return Forecast(self.tiers, self._examples, view, memory, now)

    def rank(self, view: View, memory: ValueMemory, job: ActiveJob, now: float) -> Rank:
        if job.state is not State.WAITING:
            return Rank(0.0)  # victims are compared when somebody asks
        waits = memory.waits.get(job.id)
        size = self.forecast(view, memory, now).size(job) if waits is None else waits.size
        return Rank(job.gpus * (size + AGEING * job.last_change), -AGEING * job.gpus)

    def hear(self, view: View, memory: ValueMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        self.tiers.follow(view)
        forecast = self.forecast(view, memory, now)
        ended: list[ev.Finished | ev.Failed | ev.Cancelled] = []
        for entry in entries:
            if isinstance(entry, _RUNS):
                forecast.runs(view.job(entry.job))
            elif isinstance(entry, _ENDS):
                ended.append(entry)
            elif isinstance(entry, _QUEUES):
                job = view.job(entry.job.id if isinstance(entry, ev.Arrived) else entry.job)
                if job.state is State.WAITING:
                    forecast.queued(job)
                if isinstance(entry, ev.Arrived):
                    forecast.arrived(job)
            elif isinstance(entry, _PLACES):  # somebody else's decision
                job = view.job(entry.job)
                forecast.got_gpus(job, entry.placement)
                if job.speed > 0:
                    forecast.runs(job)
            elif isinstance(entry, Preempt):
                forecast.left_gpus(view.job(entry.job))
            elif isinstance(entry, ev.Held):
                forecast.held(view.job(entry.job))
        for entry in ended:  # what they teach counts from the next one on
            forecast.ended(view.job(entry.job), finished=isinstance(entry, ev.Finished))
        return ()

    def plan(self, view: View, memory: ValueMemory, now: float) -> Plan:
        if not view.waiting.buckets and not view.preemptible.buckets:
            return []
        self.tiers.follow(view)
        return _Round(self, view, self.forecast(view, memory, now), now).plan()

    def untell(self, view: View, still: Container[str], reasons: Mapping[Demand, Wait]) -> list[Wait]:
        """Jobs whose own reason no longer holds say what their demand says. `still`: who declines or starts."""
        if not self.told:
            return []
        self.told -= {job_id for job_id in self.told if not _declines(view, job_id)}
        jobs = [view.job(job_id) for job_id in self.told if job_id not in still]
        return [Wait(job.id, reasons[job.demand].reason) for job in sorted(jobs, key=lambda job: job.number)
                if job.demand in reasons]  # fmt: skip


def _declines(view: View, job_id: str) -> bool:
    """Whether the job waits, and was last told that it declines."""
    reason = view.reasons.get(job_id)
    return reason is not None and bool(reason.evidence) and job_id in view.waiting


class _Round:
    """One plan in the making."""

    def __init__(self, rules: Value, view: View, forecast: Forecast, now: float) -> None:
        self.rules, self.view, self.forecast, self.now = rules, view, forecast, now
        self.tiers = rules.tiers
        self.evicted: dict[str, ActiveJob] = {}
        self.waits: list[tuple[ActiveJob, Declined]] = []
        self.waiting = Waiting(rules.waits, forecast, self.waits, lasting=rules.preempt == "never")
        self.poles = forecast.begin()
        self.kept: Kept | None = None  # for the first that has waited out of all proportion

    def plan(self) -> Plan:
        with self.view.free.trial() as free:
            starts = self._start_poles(free)
            started = {start.job for start in starts}
            heads = dict.fromkeys(self.view.waiting.buckets, 0)
            asked = dict.fromkeys(heads, 0)
            buckets = self.view.waiting.buckets
            while heads:
                demand = min(heads, key=lambda d: buckets[d].key(heads[d], self.now))
                job = buckets[demand].job(heads[demand])
                heads[demand] += 1
                if job.id in started:
                    if heads[demand] == len(buckets[demand]):
                        del heads[demand]
                    continue
                answer = self._answer(free, job)
                if answer is None:
                    del heads[demand]
                    if self.kept is None and self._starved(job):
                        self.kept = self._keep_for(job)
                        if self.kept is None:
                            break
                    continue
                if isinstance(answer, Declined):
                    self.waits.append((job, answer))
                    if answer.expected is not None and answer.expected < math.inf:
                        self.forecast.expects(job, answer.tier, answer.expected)
                    asked[demand] += 1
                else:
                    free.take(answer)
                    starts.append(Start(job.id, answer, self.rules.lease))
                    started.add(job.id)
                    if self.kept is not None:
                        self.kept.take(job.gpus, self.now + self.forecast.run_time(job, answer))
                if heads[demand] == len(buckets[demand]) or asked[demand] == LOOKAHEAD:
                    del heads[demand]
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

    def _start_poles(self, free: FreeGpus) -> list[Start]:
        """Waiting jobs that would outlast all others take what is free before anybody else."""
        starts = []
        for job_id in self.poles.waiting():
            job = self.view.job(job_id)
            placement = self._accepts(free, job, self.tiers.nearest(free, job.demand))
            if isinstance(placement, Placement):
                self.poles.started(job)
                free.take(placement)
                starts.append(Start(job.id, placement, self.rules.lease))
        return starts

    @cached_property
    def behind(self) -> list[tuple[float, int, ActiveJob]]:
        """Running jobs that no lease protects and that are not loading, by the GPU time they have left."""
        return sorted(((job.gpus * self.forecast.size(job), job.number, job)
                       for job in self.view.preemptible if self._settled(job)), reverse=True)  # fmt: skip

    def _settled(self, job: ActiveJob) -> bool:
        return self.now > job.progress_from or job.progress_from == job.last_change

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
        return AGEING * job.starvation(self.now) > max(self.rules.lease, self._left(job))

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
        """Its remaining GPU time less what its wait has earned it."""
        return job.gpus * (self.forecast.size(job) - AGEING * job.starvation(self.now))

    def _take_from_others(self, free: FreeGpus, job: ActiveJob, tier: int) -> Placement | None:
        """The gang in the nearest tier there is for it, where jobs with far more GPU time left make room."""
        least = MARGIN * max(0.0, self._aged(job))
        need = self.forecast.run_time_at(job, tier)
        starved = self._starved(job)  # then not even a pole keeps its GPUs from it
        victims = [(size, v) for size, _, v in self.behind if size > least + v.gpus * self._price(v)
                   and v.id not in self.evicted
                   and (starved or self.poles.may_lose_gpus(v, job, need))]  # fmt: skip
        if not victims:
            return None
        where = job.demand.where
        if where is not None and job.demand.bound and self.tiers.nearest(free, job.demand) is None:
            room = make_room(free, job.demand, (victim for _, victim in victims))
            return None if room is None else self._evict_for(free, job, room, None)
        if where is not None and job.demand.shaped:
            return None  # there is room for it: nobody is sent away to have it nearer
        best: tuple[int, list[ActiveJob]] | None = None
        level = self.tiers.own + tier
        for kind in ((job.demand.gpu_type,) if job.demand.gpu_type else tuple(free.pools)):
            held: dict[int, list[tuple[ActiveJob, int]]] = {}  # domain → who holds how much of it
            for _, victim in victims:
                assert victim.placement is not None
                for machine, mask in victim.placement.slices:
                    if self.view.topology.machines[machine].gpu_type == kind:
                        domain = self.view.topology.domain_of(machine, level).index
                        held.setdefault(domain, []).append((victim, mask.bit_count()))
            pool = free.pools[kind]
            for domain, holders in held.items():
                top = level == len(self.view.topology.levels) - 1
                need = job.gpus - (pool.total if top else pool.counts[level][domain])
                chosen: dict[str, ActiveJob] = {}
                for victim, gpus in holders:
                    if need <= 0:
                        break
                    chosen[victim.id] = victim
                    need -= gpus
                lost = sum(victim.gpus for victim in chosen.values())
                if need <= 0 and (best is None or lost < best[0]):
                    best = (lost, list(chosen.values()))
        return None if best is None else self._evict_for(free, job, best[1], tier)

    def _evict_for(self, free: FreeGpus, job: ActiveJob, victims: Sequence[ActiveJob],
                   tier: int | None) -> Placement | None:  # fmt: skip
        """Their GPUs are free, and the gang gets its own at a tier; None: at the nearest there is."""
        for victim in victims:
            assert victim.placement is not None
            free.give(victim.placement)
            self.evicted[victim.id] = victim
            self.forecast.left_gpus(victim)
        found = self.tiers.nearest(free, job.demand) if tier is None else tier
        return None if found is None else self.tiers.place(free, job.demand, found)

    def _moves(self, free: FreeGpus) -> Plan:
        """Running jobs that free GPUs would bring nearer together, where that saves more than it costs."""
        moves: Plan = []
        if not self.evicted and not any(isinstance(event, _FREES) for event in self.view.news):
            return moves
        apart = [(self.forecast.size(job) * job.gpus, job.number, job)
                 for job_id in self.forecast.memory.apart
                 if job_id in self.view.preemptible and self._settled(job := self.view.job(job_id))]  # fmt: skip
        for _, _, job in sorted(apart):
            held = job.placement
            if held is None or job.id in self.evicted:
                continue
            kind = self.view.topology.machines[held.slices[0][0]].gpu_type
            demand = Demand(held.gpus, kind, job.demand.where)
            room = self.tiers.nearest(free, demand)
            if room is None or room > self.tiers.of(held):
                continue
            placement = self.tiers.place(free, demand, room)
            if placement is None or not self.tiers.nearer(placement, held):
                continue
            now_left = self._left(job) / (job.speed or 1.0)
            if now_left - self.forecast.run_time(job, placement) > max(OVERHEAD, self._price(job)):
                free.take(placement)
                moves.append(Migrate(job.id, placement, self.rules.lease))
        return moves

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
            if demand in declined:
                sentence = f"{demand.gpus} GPUs are free, but nearer ones are expected soon enough to be worth it"
                reasons[demand] = Wait(demand, Reason(Token.WAITING_FOR_LOCALITY, sentence))
            else:
                reasons[demand] = waits_for_gpus(demand)
        gone = {job.demand for job in self.evicted.values()}
        for demand, bucket in self.view.waiting.buckets.items() if started else ():
            if len(bucket) <= len(started) and demand not in gone and all(
                    entry[4].id in started for entry in bucket.entries):  # fmt: skip
                del reasons[demand]
        return reasons
