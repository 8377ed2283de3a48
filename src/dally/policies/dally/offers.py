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
from dally.core.ranking import Key, Rank
from dally.core.reasons import Reason, Token
from dally.core.states import State
from dally.core.units import show_time
from dally.policies.dally.lanes import Lane, Lanes
from dally.policies.dally.remembered import Histories
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
        return round(1.0 - job.exposed, 9)
    return round(job.work_at(now) / executed, 9)


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
        if not view.waiting.buckets:
            extended = self._extended(view, now)
            if extended is not None:
                return extended
        self.tiers.follow(view)
        steady = self.steady
        if steady is not None and steady.holds(self, view, memory, now):
            plan = steady.plan_again(self, view, now)
            if plan is not None:
                return plan
        return _Round(self, view, memory, now).plan()

    def _extended(self, view: View, now: float) -> Plan | None:
        """Nobody waits: whose lease has ended keeps its GPUs, where nothing is nearer than one machine. On a large
        cluster that is most of what there is to decide."""
        plan: Plan = []
        for job in view.preemptible.ordered(now):
            if job.placement is None or len(job.placement.slices) != 1:
                return None
            plan.append(Extend(job.id, self.lease))
        return plan


class Steady:
    """The end of a round that gave nobody any GPUs and told no job anything of its own. As long as the same jobs wait,
    the same GPUs are free and no timer runs out or is tuned, another one ends likewise."""

    __slots__ = ("_begin", "_changes", "_lanes", "_layout", "_least", "_memory", "_rooms", "_until", "_version",
                 "_waits", "_wake")  # fmt: skip

    def __init__(self, made: _Round, until: float, wake: float, waits: list[Wait], rooms: list[int],
                 least: list[tuple[float, ...]]) -> None:  # fmt: skip
        lanes = made.lanes
        self._memory, self._version = made.memory, made.rules.lanes.version
        self._changes, self._layout = made.changes, made.view.layout
        self._begin, self._until, self._wake = made.now, until, wake
        self._waits, self._lanes, self._rooms, self._least = waits, lanes, rooms, least

    def holds(self, rules: Offers, view: View, memory: Histories, now: float) -> bool:
        return (self._changes == view.free.changes and self._version == rules.lanes.version
                and self._begin <= now < self._until and self._layout == view.layout
                and self._memory is memory)  # objects  # fmt: skip

    def plan_again(self, rules: Offers, view: View, now: float) -> Plan | None:
        """The same again, with a longer lease for whose lease has ended; None where that takes a round."""
        plan: Plan = []
        if view.preemptible.buckets:
            if len(view.preemptible) > 1:
                return None
            for bucket in view.preemptible.buckets.values():
                job = bucket.job(0)
                if not self._keeps(rules.tiers, view.free, job, now):
                    return None
                plan.append(Extend(job.id, rules.lease))
        plan += self._waits
        if self._wake < math.inf:
            plan.append(WakeAt(self._wake))
        return plan

    def _keeps(self, tiers: Tiers, free: FreeGpus, job: ActiveJob, now: float) -> bool:
        """Whether a job whose lease has ended wins its GPUs back, seen at once: they are on one machine, so nothing is
        nearer, and nobody who waits would take what is free together with them."""
        held = job.placement
        if held is None or len(held.slices) > 1 or job.demand.where is not None or len(free.pools) > 1:
            return False
        machine = held.slices[0][0]
        for pool in free.pools.values():
            for at, lane in enumerate(self._lanes):
                room = tiers.nearest_with(pool, lane.demand.gpus, self._rooms[at], machine, held.gpus)
                if room == 0 or (room > 0 and lane.oldest(()) + self._least[at][room - 1] <= now):
                    return False
        return True


class _Round:
    """One plan in the making: the offer goes round until nobody takes what is left."""

    def __init__(self, rules: Offers, view: View, memory: Histories, now: float) -> None:
        self.rules, self.view, self.memory, self.now = rules, view, memory, now
        self.tiers, self.timers = rules.tiers, rules.timers
        self.changes = view.free.changes
        self.lanes = rules.lanes.in_order()
        self.open = self.lanes  # lanes with room for somebody: GPUs only get fewer in the course of a round
        self.found: dict[Demand, tuple[int, Place | None, int]] = {}  # room, first taker and the tier it takes
        self.taken: dict[Demand, set[str]] = {}  # who has accepted, and is still in its lane
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
                if turns and (taker is None or self.rules.key(self.view, turns[-1], self.now) < taker[0][:4]):
                    plan.append(self._lease_ended(free, turns.pop()))
                elif taker is not None:
                    plan.append(self._starts(free, taker[0][4], taker[1]))
                else:
                    break
            lanes = [lane for lane in self.lanes if len(lane) > len(self.taken.get(lane.demand, ()))]
            changed = any(type(action) is not Extend for action in plan)
            reasons = self._reasons(free, lanes)
            plan += reasons
            wake = self._next_expiry(free, lanes)
            if not changed:
                self._note_steady(free, reasons, wake)
        if wake < math.inf:
            plan.append(WakeAt(wake))
        return plan

    def _note_steady(self, free: FreeGpus, reasons: list[Wait], wake: float) -> None:
        """Nothing is given but what was held: as far as demands are concerned, all is said."""
        plain = all(lane.demand.where is None for lane in self.lanes)
        if not plain or any(type(wait.who) is str for wait in reasons):
            self.rules.steady = None
            return
        until, rooms, least = wake, [], []
        for lane in self.lanes:
            until = min(until, self.timers.changes_at(self.memory, lane.demand, self.now))
            room = self.tiers.nearest(free, lane.demand)
            rooms.append(self.tiers.count if room is None else room)
            least.append(_least_from(self._waits(lane.demand)))
        self.rules.steady = Steady(self, until, wake, reasons, rooms, least)

    # --- offers -------------------------------------------------------------------------------------------

    def _first_taker(self, free: FreeGpus) -> tuple[Place, int] | None:
        """First in the order among the waiting jobs that accept an offer of what is free, and the tier it takes."""
        best: tuple[Place, int] | None = None
        still: list[Lane] = []
        for lane in self.open:
            room = self.tiers.nearest(free, lane.demand)
            if room is None:
                continue
            still.append(lane)
            found = self.found.get(lane.demand)
            if found is None or found[0] != room:
                found = self.found[lane.demand] = (room, *self._taker_of(lane, room))
            place = found[1]
            if place is not None and (best is None or place < best[0]):  # numbers differ
                best = (place, found[2])
        self.open = still
        return best

    def _taker_of(self, lane: Lane, room: int) -> tuple[Place | None, int]:
        waits = self._waits(lane.demand)
        if room > 0:
            lane.ripen(self.now, _least_from(waits))
        first = lane.first(room, self.taken.get(lane.demand, ()))
        return first, 0 if first is None else _tier_taken(first[4], room, waits, self.now)

    def _starts(self, free: FreeGpus, job: ActiveJob, tier: int) -> Start:
        placement = self.tiers.place(free, job.demand, tier)
        assert placement is not None
        free.take(placement)
        self.timers.accepted(self.memory, job.demand, tier, job.starvation(self.now), self.now)
        self.taken.setdefault(job.demand, set()).add(job.id)
        del self.found[job.demand]  # another one is first now, and its timers may be others
        return Start(job.id, placement, self.rules.lease)

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

    def _reasons(self, free: FreeGpus, lanes: Sequence[Lane]) -> list[Wait]:
        """One per demand; the first of each demand to decline, and who was told before, get their own."""
        said: list[Wait] = []
        waiting = {lane.demand for lane in lanes} if self.preempted else ()
        for job in self.preempted:
            if job.demand not in waiting:
                room = self.tiers.nearest(free, job.demand)
                said.append(waits_for_gpus(job.demand) if room is None else self._declined(job.demand))
        for lane in lanes:
            room = self.tiers.nearest(free, lane.demand)
            if room is None:
                wait = waits_for_gpus(lane.demand)
                said.append(wait)
                said += [Wait(job.id, wait.reason) for job in self._told(lane)
                         if self.view.reasons[job.id] != wait.reason]  # fmt: skip
                continue
            said.append(self._declined(lane.demand))
            said += self._own_reasons(free, lane, room)
        return said

    def _told(self, lane: Lane) -> list[ActiveJob]:
        """Jobs of a lane that have a reason of their own and still wait, in order of arrival."""
        if not lane.told:
            return []
        reasons, taken = self.view.reasons, self.taken.get(lane.demand, ())
        lane.told.difference_update([job_id for job_id in lane.told if job_id not in reasons])
        return sorted((self.view.job(job_id) for job_id in lane.told if job_id not in taken), key=_number)

    def _own_reasons(self, free: FreeGpus, lane: Lane, room: int) -> list[Wait]:
        first = lane.first(0, self.taken.get(lane.demand, ()))
        assert first is not None and room > 0
        told = self._told(lane)
        if first[4].id not in lane.told:
            lane.told.add(first[4].id)
            told = sorted((*told, first[4]), key=_number)
        threshold = _least_from(self._waits(lane.demand))[room - 1]
        evidence = (self.tiers.names[room], _figure(threshold))
        said = []
        for job in told:
            before = self.view.reasons.get(job.id)
            if before is None or before.evidence != evidence:
                said.append(Wait(job.id, self._waits_for(free, job, room, threshold)))
        return said

    def _declined(self, demand: Demand) -> Wait:
        smallest = min(self.tiers.wanted(demand), self.tiers.count - 1)
        return _declined(demand, tuple(self.tiers.names[smallest:]), self._waits(demand)[smallest:])

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

    def _next_expiry(self, free: FreeGpus, lanes: Sequence[Lane]) -> float:
        """The first moment at which somebody would take what is free now, if nothing else happens.

        Where nothing is free at any tier a timer changes nothing; where something is, all who would take it have.
        """
        oldest = {job.demand: self.now for job in self.preempted}
        for lane in lanes:
            oldest[lane.demand] = lane.oldest(self.taken.get(lane.demand, ()))
        wake = math.inf
        for demand, since in oldest.items():
            room = self.tiers.nearest(free, demand)
            if room is None or room == 0:
                continue
            expiry = since + _least_from(self._waits(demand))[room - 1]
            if expiry <= self.now:
                continue  # preempted, and would take other GPUs at once: it is asked again when it has yielded
            # the timer itself may be shortened on the way, when a long wait leaves the window
            wake = min(min(wake, expiry), self.timers.changes_at(self.memory, demand, self.now))
        return wake


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
