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
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.journal import Entry
from dally.core.plan import Demand, Extend, Migrate, Plan, Preempt, Start, Wait, WakeAt
from dally.core.policy import View
from dally.core.ranking import Entry as Place
from dally.core.ranking import Key, Rank, before
from dally.core.reasons import Reason, Token
from dally.core.states import State
from dally.core.units import show_time
from dally.policies.dally.lanes import NO_ROOM, NOT_ASKED, Bid, Lanes
from dally.policies.dally.remembered import Histories
from dally.policies.dally.steady import Known, Steady, as_near_as_can_be
from dally.policies.dally.tiers import Tiers
from dally.policies.dally.timers import NO_LIMIT, Timers
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
        return _to_billionths(1.0 - job.exposed)
    return _to_billionths(job.work_at(now) / executed)


def _to_billionths(value: float) -> float:
    """`round(value, 9)`, which goes by way of decimal digits, without them where there is no doubt which is nearest:
    the quotient of two whole numbers is the number that its digits would be read as."""
    scaled = value * 1e9
    if not 0.0 <= scaled < 1e12:
        return round(value, 9)
    below = float(int(scaled))
    part = scaled - below
    if 0.49 < part < 0.51:
        return round(value, 9)
    return (below + 1.0 if part > 0.5 else below) / 1e9


class Offers:
    """The paper's scheduler: an order, timers per demand and tier, leases."""

    def __init__(self, tiers: Tiers, timers: Timers, lease: float, view: View) -> None:
        self.tiers, self.timers, self.lease = tiers, timers, lease
        self.lanes = Lanes(view, tiers.count)
        self.steady: Steady | None = None  # what the last round led to that gave nobody any GPUs
        view.waiting.watch(self.lanes)

    def rank(self, view: View, memory: Histories, job: ActiveJob, now: float) -> Rank:
        """Lower Nw_sens first; then fewest GPUs held, longest starving, order of arrival."""
        held = float(job.gpus) if job.state is State.RUNNING else 0.0
        return Rank(network_sensitivity(view, job, now), 0.0, held, 0.0, (job.last_change,))

    def key(self, view: View, job: ActiveJob, now: float) -> Key:
        held = float(job.gpus) if job.state is State.RUNNING else 0.0
        return network_sensitivity(view, job, now), held, (job.last_change,), job.number

    def hear(self, view: View, memory: Histories, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        """Offers that somebody else made and that were taken from the queue just now count as well."""
        left = self.lanes.left
        if left:
            for entry in entries:
                if isinstance(entry, Start) and entry.job in left:
                    tier = self.tiers.of(entry.placement)
                    demand = view.job(entry.job).demand
                    self.timers.accepted(memory, demand, tier, now - left[entry.job], now)
                    self.steady = None
            left.clear()
        return ()

    def plan(self, view: View, memory: Histories, now: float) -> Plan:
        if not view.waiting.buckets and not view.preemptible.buckets:
            return []
        self.tiers.follow(view)
        if not view.waiting.buckets:
            extended = self._extended(view, now)
            if extended is not None:
                return extended
        steady = self.steady
        if steady is not None and steady.holds(self.lanes, view, memory, now):
            plan = steady.plan_again(self.tiers, self.lease, view, now)
            if plan is not None:
                return plan
        return _Round(self, view, memory, now).plan()

    def _extended(self, view: View, now: float) -> Plan | None:
        """Nobody waits: whose lease has ended keeps its GPUs, where none could be nearer. On a large cluster that is
        most of what there is to decide."""
        plan: Plan = []
        for job in view.preemptible.ordered(now):
            held = job.placement
            if held is None or (len(held.slices) != 1 and not as_near_as_can_be(self.tiers, view, job, held)):
                return None
            plan.append(Extend(job.id, self.lease))
        return plan


class _Round:
    """One plan in the making: the offer goes round until nobody takes what is left."""

    def __init__(self, rules: Offers, view: View, memory: Histories, now: float) -> None:
        self.rules, self.view, self.memory, self.now = rules, view, memory, now
        self.tiers, self.timers = rules.tiers, rules.timers
        self.changes = view.free.changes
        self.lanes = rules.lanes.in_order()
        self.bids = [Bid(lane) for lane in self.lanes]
        self.open = self.bids  # those with room for somebody: GPUs only get fewer in the course of a round
        self.preempted: list[ActiveJob] = []

    def plan(self) -> Plan:
        # leases that ended: each is extended, moved or lost
        ended = self.view.preemptible.ordered(self.now) if self.view.preemptible.buckets else []
        plan: Plan = []
        with self.view.free.trial() as free:
            for job in ended:
                assert job.placement is not None
                free.give(job.placement)
            turns = list(reversed(ended))
            while True:
                taker = self._first_taker(free)
                first = None if taker is None else taker.place
                if turns and (first is None or self.rules.key(self.view, turns[-1], self.now) < first[:4]):
                    plan.append(self._lease_ended(free, turns.pop()))
                elif taker is not None:
                    plan.append(self._starts(free, taker))
                else:
                    break
            bids = [bid for bid in self.bids if len(bid.lane) > len(bid.taken)]
            changed = _changes_something(plan)
            reasons = self._reasons(free, bids)
            plan += reasons
            wake = self._next_expiry(free, bids)
            if not changed:
                self._note_steady(reasons, wake)
        if wake < math.inf:
            plan.append(WakeAt(wake))
        return plan

    def _note_steady(self, reasons: list[Wait], wake: float) -> None:
        """Nothing is given but what was held: as far as demands are concerned, all is said."""
        self.rules.steady = None
        until, rooms, least = wake, [], []
        for bid in self.bids:
            if bid.demand.where is not None:
                return
            until = min(until, self.timers.changes_at(self.memory, bid.demand, self.now))
            rooms.append(self.tiers.count if bid.room == NO_ROOM else bid.room)
            self._time(bid)
            least.append(bid.least)
        for wait in reasons:
            if type(wait.who) is str:
                return
        known = Known(self.view, self.rules.lanes, self.changes, self.memory, self.now, until)
        self.rules.steady = Steady(known, wake, reasons, self.lanes, rooms, least)

    # --- offers -------------------------------------------------------------------------------------------

    def _first_taker(self, free: FreeGpus) -> Bid | None:
        """That of the first in the order among the waiting jobs that accept an offer of what is free."""
        best: Bid | None = None
        first: Place | None = None
        still: list[Bid] = []
        for bid in self.open:
            room = self.tiers.nearest(free, bid.demand)
            if room is None:
                bid.room = NO_ROOM
                continue
            still.append(bid)
            if bid.room != room:
                bid.room = room
                self._find_taker(bid, room)
            place = bid.place
            if place is not None and (first is None or before(place, first)):  # numbers differ
                best, first = bid, place
        self.open = still
        return best

    def _find_taker(self, bid: Bid, room: int) -> None:
        if room > 0:
            self._time(bid)
            bid.lane.ripen(self.now, bid.least)
        bid.place = first = bid.lane.first(room, bid.taken)
        if first is not None:
            bid.tier = 0 if room == 0 else _tier_taken(first[4], room, bid.waits, self.now)

    def _starts(self, free: FreeGpus, bid: Bid) -> Start:
        assert bid.place is not None
        job: ActiveJob = bid.place[4]
        placement = self.tiers.place(free, bid.demand, bid.tier)
        assert placement is not None
        free.take(placement)
        self.timers.accepted(self.memory, bid.demand, bid.tier, job.starvation(self.now), self.now)
        if not bid.taken:
            bid.taken = set()
        assert isinstance(bid.taken, set)
        bid.taken.add(job.id)
        bid.room, bid.timed = NOT_ASKED, False  # another one is first now, and its timers may be others
        return Start(job.id, placement, self.rules.lease)

    def _time(self, bid: Bid) -> None:
        """With the timers as they are now."""
        if not bid.timed:
            bid.timed, bid.waits = True, self._waits(bid.demand)
            bid.least = _least_from(bid.waits)

    def _waits(self, demand: Demand) -> tuple[float, ...]:
        """The timers, 0 at tiers too small for the gang, or nearer than it asks for."""
        waits = self.timers.waits(self.memory, demand, self.now)
        small = self.tiers.wanted(demand)
        if demand.where is not None and demand.wait is not None:  # its owner's, in the place of ours
            waits = (demand.wait,) * len(waits)
        return (0.0,) * small + waits[small:] if small else waits

    def _lease_ended(self, free: FreeGpus, job: ActiveJob) -> Extend | Migrate | Preempt:
        held = job.placement
        assert held is not None
        demand = Demand(held.gpus, self.view.topology.machines[held.slices[0][0]].gpu_type, job.demand.where)
        keeps = all(free.has(machine, mask) for machine, mask in held.slices)
        room = self.tiers.nearest(free, demand)
        waits = self._waits(job.demand)
        tier: int | None = None
        if room == 0 or (room is not None and job.last_change + _least_from(waits)[room - 1] <= self.now):
            tier = _tier_taken(job, room, waits, self.now)
        placement = None if tier is None else self.tiers.place(free, demand, tier)
        # One that has not made a step yet (a lease shorter than its loading) would pay again for nothing.
        idle = job.progress_from > job.last_change and self.now <= job.progress_from
        if keeps and (idle or (placement is not None and not self.tiers.nearer(placement, held))):
            free.take(held)
            return Extend(job.id, self.rules.lease)
        if placement is None:
            self.preempted.append(job)
            return Preempt(job.id)
        free.take(placement)
        return Migrate(job.id, placement, self.rules.lease)

    # --- reasons and timers -------------------------------------------------------------------------------

    def _reasons(self, free: FreeGpus, bids: Sequence[Bid]) -> list[Wait]:
        """One per demand; the first of each demand to decline, and who was told before, get their own."""
        said: list[Wait] = []
        waiting = {bid.demand for bid in bids} if self.preempted else ()
        for job in self.preempted:
            if job.demand not in waiting:
                room = self.tiers.nearest(free, job.demand)
                said.append(waits_for_gpus(job.demand) if room is None
                            else self._declined(job.demand, self._waits(job.demand)))  # fmt: skip
        for bid in bids:
            if bid.room == NO_ROOM:
                wait = waits_for_gpus(bid.demand)
                said.append(wait)
                if bid.lane.told:
                    said += [Wait(job.id, wait.reason) for job in self._told(bid)
                             if self.view.reasons[job.id] != wait.reason]  # fmt: skip
                continue
            self._time(bid)
            said.append(self._declined(bid.demand, bid.waits))
            said += self._own_reasons(free, bid)
        return said

    def _told(self, bid: Bid) -> list[ActiveJob]:
        """Jobs of a lane that have a reason of their own and still wait, in order of arrival."""
        told, reasons, taken = bid.lane.told, self.view.reasons, bid.taken
        if not told:
            return []
        told.difference_update([job_id for job_id in told if job_id not in reasons])
        found = [self.view.job(job_id) for job_id in told if job_id not in taken]
        if len(found) > 1:
            found.sort(key=_number)
        return found

    def _own_reasons(self, free: FreeGpus, bid: Bid) -> list[Wait]:
        lane, room = bid.lane, bid.room
        first = lane.first(0, bid.taken)
        assert first is not None and room > 0
        told = self._told(bid)
        if first[4].id not in lane.told:
            lane.told.add(first[4].id)
            told = sorted((*told, first[4]), key=_number)
        threshold = bid.least[room - 1]
        evidence = (self.tiers.names[room], _figure(threshold))
        said = []
        for job in told:
            known = self.view.reasons.get(job.id)
            if known is None or known.evidence != evidence:
                said.append(Wait(job.id, self._waits_for(free, job, room, threshold)))
        return said

    def _declined(self, demand: Demand, waits: tuple[float, ...]) -> Wait:
        smallest = min(self.tiers.wanted(demand), self.tiers.count - 1)
        return _declined(demand, tuple(self.tiers.names[smallest:]), waits[smallest:])

    def _waits_for(self, free: FreeGpus, job: ActiveJob, room: int, threshold: float) -> Reason:
        """The tier waited for, what is free there, the timer, the time left and when it ends. The evidence: the tier
        that was declined and the timer. As long as these stay the same, nothing is said anew."""
        names = self.tiers.names
        most = self.tiers.most_free(free, job.demand, room - 1)
        expiry = job.last_change + threshold
        left = f" with {show_time(expiry - self.now)} left" if expiry < math.inf else ""
        sentence = (f"offered {job.gpus} GPUs of one {names[room]}, it waits for one {names[room - 1]} "
                    f"({most} free at most there); its timer is {_limit(threshold)}{left}")  # fmt: skip
        return Reason(Token.WAITING_FOR_LOCALITY, sentence, expiry if expiry < math.inf else None,
                      (names[room], _figure(threshold)))  # fmt: skip

    def _next_expiry(self, free: FreeGpus, bids: Sequence[Bid]) -> float:
        """The first moment at which somebody would take what is free now, if nothing else happens.

        Where nothing is free at any tier a timer changes nothing; where something is, all who would take it have.
        """
        wake = math.inf
        for bid in bids:
            if bid.room > 0:
                self._time(bid)
                wake = min(wake, self._expiry(bid.demand, bid.lane.oldest(bid.taken), bid.least[bid.room - 1]))
        waiting = {bid.demand for bid in bids} if self.preempted else ()
        for job in self.preempted:
            room = None if job.demand in waiting else self.tiers.nearest(free, job.demand)
            if room is not None and room > 0:
                wake = min(wake, self._expiry(job.demand, self.now, _least_from(self._waits(job.demand))[room - 1]))
        return wake

    def _expiry(self, demand: Demand, since: float, timer: float) -> float:
        """When somebody who has starved since then would take what it declines now, or its timer is another one."""
        expiry = since + timer
        if expiry <= self.now:
            return math.inf  # preempted, and would take other GPUs at once: it is asked again when it has yielded
        # the timer itself may be shortened on the way, when a long wait leaves the window
        return min(expiry, self.timers.changes_at(self.memory, demand, self.now))


def _changes_something(plan: Plan) -> bool:
    for action in plan:  # noqa: SIM110 - a generator costs
        if type(action) is not Extend:
            return True
    return False


@lru_cache(maxsize=4096)
def _declined(demand: Demand, tiers: tuple[str, ...], waits: tuple[float, ...]) -> Wait:
    """Of all jobs of a demand. The evidence: each tier that is worth a wait, and its timer."""
    named = list(zip(tiers, waits, strict=False))
    steps = ", ".join(f"{_limit(wait)} for one {name}" for name, wait in named)
    sentence = f"{demand.gpus} GPUs are free, but not near enough to each other; it waits {steps}"
    evidence = tuple(part for name, wait in named for part in (name, _figure(wait)))
    return Wait(demand, Reason(Token.WAITING_FOR_LOCALITY, sentence, None, evidence))


@lru_cache(maxsize=1024)
def _least_from(waits: tuple[float, ...]) -> tuple[float, ...]:
    """Starvation from which on something at tier 1, 2, … or further out is accepted: tuned timers may cross."""
    least: list[float] = []
    for wait in reversed(waits):
        least.append(min(wait, least[-1]) if least else wait)
    return tuple(least[::-1])


def _tier_taken(job: ActiveJob, room: int, waits: tuple[float, ...], now: float) -> int:
    """The innermost tier with room that the job's starvation allows."""
    if room == 0:
        return 0
    return next(k for k in range(room, len(waits) + 1) if job.last_change + waits[k - 1] <= now)


def _number(job: ActiveJob) -> int:
    return job.number


def _limit(wait: float) -> str:
    return NO_LIMIT if wait == math.inf else show_time(wait)


def _figure(wait: float) -> float | str:
    """Of evidence, which is written as JSON: there is no ∞ in it."""
    return NO_LIMIT if wait == math.inf else wait
