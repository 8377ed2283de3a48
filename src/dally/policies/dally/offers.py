"""Delay scheduling: free GPUs are offered in the order of network sensitivity; who can wait declines what is far.

The rule for a job of d GPUs (arXiv 2401.16492, delay scheduling), with starvation the time since it last got or
lost GPUs and T the timer of a tier:

1. some machine has d free: accept, and note the starvation in the machine history of demand d
2. retune the timers of demand d
3. starvation ≥ T of the machine, or d larger than a machine: some rack has d free: accept, note it for the rack
4. starvation ≥ T of the rack, or d larger than a rack: accept any d (with more tiers: one timer each, the same way)
5. otherwise decline; the offer goes on to the next job

A job whose lease has ended gives up its GPUs and stands in the same order, offered the same GPUs, its own among
them, by the same rule, with the time since its last assignment as its starvation. If what it accepts is no nearer
(tier, then number of machines) than what it held, it wins that back: an extension, at no cost. Nearer or other GPUs
are a migration. If it declines,
it is preempted: that is how a job gets away from a far placement that its timer once made it take. Offers accepted
in this way are not noted in the histories, since nobody waited for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.plan import Demand, Extend, Migrate, Plan, Preempt, Start, Wait, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.reasons import Reason, Token
from dally.core.states import State
from dally.core.units import show_time
from dally.policies.dally.lanes import Key, Lane, key_of
from dally.policies.dally.tiers import Tiers
from dally.policies.dally.timers import Timers
from dally.policies.greedy import waits_for_gpus


def network_sensitivity(view: View, job: ActiveJob, now: float) -> float:
    """Nw_sens = work done fraction / (run time / ideal JCT): achieved over ideal progress while running.

    Work is counted in seconds at reference speed, so the ideal JCT is the total work, which cancels out. Who
    declares no work may count progress in any unit: then it is the share of its last step that was not
    communication. Rounded, so that jobs that ran equally well tie.
    """
    executed = job.executed_at(now)
    if executed <= 0:
        return 0.0
    if view.estimates.work(job.job) is None:
        return round(1.0 - job.exposed, 9)
    return round(job.work_at(now) / executed, 9)


class Offers:
    """The paper's scheduler: an order, timers per demand and tier, leases."""

    def __init__(self, tiers: Tiers, timers: Timers, lease: float) -> None:
        self.tiers, self.timers, self.lease = tiers, timers, lease
        self._lanes: dict[Demand, Lane] = {}

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        """Lower Nw_sens first; then fewest GPUs held, longest starving, order of arrival."""
        held = float(job.gpus) if job.state is State.RUNNING else 0.0
        rank = Rank(network_sensitivity(view, job, now), then=held, tie=(job.last_change,))
        if job.state is State.WAITING:
            lane = self._lanes.get(job.demand)
            if lane is None:
                lane = self._lanes[job.demand] = Lane(job.demand, self.tiers.count)
            lane.add(job, key_of(job, rank))
        return rank

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        self.tiers.follow(view.news)
        for event in view.news:
            if isinstance(event, (ev.Cancelled, ev.Failed, ev.Finished)):
                job = view.job(event.job)
                if job.demand in self._lanes and job.id in self._lanes[job.demand]:
                    self._drop(job)
        return ()

    def _drop(self, job: ActiveJob) -> None:
        lane = self._lanes[job.demand]
        lane.drop(job)
        lane.told.pop(job.id, None)
        if not len(lane):
            del self._lanes[job.demand]

    # --- offers -------------------------------------------------------------------------------------------

    def plan(self, view: View, now: float) -> Plan:
        plan: Plan = []
        ended = view.preemptible.ordered(now)  # leases that ended now: each is extended, moved or lost below
        preempted: list[ActiveJob] = []
        if not ended and not self._lanes:
            return plan
        with view.free.trial() as free:
            for job in ended:
                assert job.placement is not None
                free.give(job.placement)
            turns = [(key_of(job, self.rank(view, job, now)), job) for job in reversed(ended)]
            while True:
                taker = self._first_taker(free, now)
                if turns and (taker is None or turns[-1][0] < taker[0]):
                    _, job = turns.pop()
                    action = self._lease_ended(free, job, now)
                    plan.append(action)
                    if isinstance(action, Preempt):
                        preempted.append(job)
                elif taker is not None:
                    _, job, tier = taker
                    placement = self.tiers.place(free, job.demand, tier)
                    assert placement is not None
                    free.take(placement)
                    self.timers.accepted(job.demand, tier, job.starvation(now), now)
                    self._drop(job)
                    plan.append(Start(job.id, placement, self.lease))
                else:
                    break
            plan += self._reasons(free, preempted, now)
            wake = self._next_expiry(free, preempted, now)
        if wake < math.inf:
            plan.append(WakeAt(wake))
        return plan

    def _first_taker(self, free: FreeGpus, now: float) -> tuple[Key, ActiveJob, int] | None:
        """First in the order among the waiting jobs that accept an offer of what is free, and the tier it takes."""
        best: tuple[Key, ActiveJob, int] | None = None
        for lane in self._lanes.values():
            room = self.tiers.nearest(free, lane.demand)
            if room is None:
                continue
            waits = self._waits(lane.demand, now)
            if room > 0:
                lane.ripen(now, _least_from(waits))
            found = lane.first(room)
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, _tier_taken(found[1], room, waits, now))
        return best

    def _waits(self, demand: Demand, now: float) -> tuple[float, ...]:
        """The timers, 0 at tiers too small for the gang."""
        waits = self.timers.waits(demand, now)
        small = self.tiers.smallest(demand)
        return (0.0,) * small + waits[small:] if small else waits

    def _lease_ended(self, free: FreeGpus, job: ActiveJob, now: float) -> Extend | Migrate | Preempt:
        held = job.placement
        assert held is not None
        demand = Demand(job.gpus, self.tiers.topology.machines[held.slices[0][0]].gpu_type)
        keeps = all(free.has(machine, mask) for machine, mask in held.slices)
        room = self.tiers.nearest(free, demand)
        waits = self._waits(job.demand, now)
        tier: int | None = None
        if room == 0 or (room is not None and job.last_change + _least_from(waits)[room - 1] <= now):
            tier = _tier_taken(job, room, waits, now)
        placement = None if tier is None else self.tiers.place(free, demand, tier)
        # One that has not made a step yet (a lease shorter than its loading) would pay again for nothing.
        idle = job.progress_from > job.last_change and now <= job.progress_from
        if keeps and (idle or (placement is not None and not self.tiers.nearer(placement, held))):
            free.take(held)
            return Extend(job.id, self.lease)
        if placement is None:
            return Preempt(job.id)
        free.take(placement)
        return Migrate(job.id, placement, self.lease)

    # --- reasons and timers -------------------------------------------------------------------------------

    def _reasons(self, free: FreeGpus, preempted: list[ActiveJob], now: float) -> list[Wait]:
        """One per demand; the first of each demand to decline, and who was told before, get their own."""
        said: list[Wait] = []
        for job in preempted:
            if job.demand not in self._lanes:
                room = self.tiers.nearest(free, job.demand)
                said.append(waits_for_gpus(job.demand) if room is None else self._declined(job.demand, now))
        for lane in self._lanes.values():
            room = self.tiers.nearest(free, lane.demand)
            if room is None:
                wait = waits_for_gpus(lane.demand)
                said.append(wait)
                for job_id, told in lane.told.items():
                    if told:
                        lane.told[job_id] = ()
                        said.append(Wait(job_id, wait.reason))
                continue
            said.append(self._declined(lane.demand, now))
            first = lane.first(0)
            assert first is not None and room > 0
            lane.told.setdefault(first[1].id, ())
            threshold = _least_from(self._waits(lane.demand, now))[room - 1]
            for job_id, told in lane.told.items():
                job = lane.job(job_id)
                signature = (room, threshold)
                if told != signature:
                    lane.told[job_id] = signature
                    said.append(Wait(job_id, self._waits_for(free, job, room, threshold, now)))
        return said

    def _declined(self, demand: Demand, now: float) -> Wait:
        smallest = self.tiers.smallest(demand)
        waits = self._waits(demand, now)
        named = list(zip(self.tiers.names, waits, strict=False))[smallest:]
        steps = ", ".join(f"{_limit(wait)} for one {name}" for name, wait in named)
        sentence = f"{demand.gpus} GPUs are free, but not near enough to each other; it waits {steps}"
        return Wait(demand, Reason(Token.WAITING_FOR_LOCALITY, sentence))

    def _waits_for(self, free: FreeGpus, job: ActiveJob, room: int, threshold: float, now: float) -> Reason:
        """The tier waited for, what is free there, the timer, the time left and when it ends."""
        names = self.tiers.names
        most = self.tiers.most_free(free, job.demand, room - 1)
        expiry = job.last_change + threshold
        left = f" with {show_time(expiry - now)} left" if expiry < math.inf else ""
        sentence = (f"offered {job.gpus} GPUs of one {names[room]}, it waits for one {names[room - 1]} "
                    f"({most} free at most there); its timer is {_limit(threshold)}{left}")  # fmt: skip
        return Reason(Token.WAITING_FOR_LOCALITY, sentence, expiry if expiry < math.inf else None)

    def _next_expiry(self, free: FreeGpus, preempted: list[ActiveJob], now: float) -> float:
        """The first moment at which somebody would take what is free now, if nothing else happens.

        Where nothing is free at any tier a timer changes nothing; where something is, all who would take it have.
        """
        oldest = {job.demand: now for job in preempted}
        oldest.update((lane.demand, lane.oldest()) for lane in self._lanes.values())
        wake = math.inf
        for demand, since in oldest.items():
            room = self.tiers.nearest(free, demand)
            if room is None or room == 0:
                continue
            expiry = since + _least_from(self._waits(demand, now))[room - 1]
            # the timer itself may be shortened on the way, when a long wait leaves the window
            wake = min(wake, expiry, self.timers.changes_at(demand))
        return wake


def _least_from(waits: tuple[float, ...]) -> list[float]:
    """Starvation from which on something at tier 1, 2, … or further out is accepted: tuned timers may cross."""
    least: list[float] = []
    for wait in reversed(waits):
        least.append(min(wait, least[-1]) if least else wait)
    return least[::-1]


def _tier_taken(job: ActiveJob, room: int, waits: tuple[float, ...], now: float) -> int:
    """The innermost tier with room that the job's starvation allows."""
    if room == 0:
        return 0
    return next(k for k in range(room, len(waits) + 1) if job.last_change + waits[k - 1] <= now)


def _limit(wait: float) -> str:
    return "without limit" if wait == math.inf else show_time(wait)
