"""Rounds of offers that need not be held, since they would end like the last one; leases extended without one."""

from __future__ import annotations

import math

from dally.core.active import ActiveJob
from dally.core.free import Pool
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Extend, Plan, Wait, WakeAt
from dally.core.policy import View
from dally.policies.dally.lanes import Lane, Lanes
from dally.policies.dally.remembered import Histories
from dally.policies.dally.tiers import Tiers


def as_near_as_can_be(tiers: Tiers, view: View, job: ActiveJob, held: Placement) -> bool:
    """Whether a job whose lease has ended accepts its own GPUs if nobody takes them before, seen at once: on one
    machine, or no nearer ones could ever be free. Then all tiers inside are too small for it, and have no timer."""
    if len(held.slices) == 1:
        return True
    plain = job.demand.where is None and len(view.free.pools) == 1 and not view.down
    return plain and not tiers.could_be_nearer(held.gpus, held)


class Known:
    """What a round was held on."""

    __slots__ = ("_begin", "_changes", "_layout", "_memory", "_until", "_version")

    def __init__(self, view: View, lanes: Lanes, changes: int, memory: Histories, begin: float, until: float) -> None:
        self._changes, self._layout, self._version = changes, view.layout, lanes.version
        self._memory, self._begin, self._until = memory, begin, until

    def holds(self, view: View, lanes: Lanes, memory: Histories, now: float) -> bool:
        """The same jobs wait, the same GPUs are free, and no timer has run out or been tuned."""
        return (self._changes == view.free.changes and self._version == lanes.version
                and self._begin <= now < self._until and self._layout == view.layout
                and self._memory is memory)  # objects  # fmt: skip


class Steady:
    """The end of a round that gave nobody any GPUs and told no job anything of its own. As long as what is known stays
    the same, another one ends likewise."""

    __slots__ = ("_known", "_lanes", "_least", "_rooms", "_waits", "_wake")

    def __init__(self, known: Known, wake: float, waits: list[Wait], lanes: list[Lane], rooms: list[int],
                 least: list[tuple[float, ...]]) -> None:  # fmt: skip
        self._known, self._wake, self._waits = known, wake, waits
        self._lanes, self._rooms, self._least = lanes, rooms, least

    def holds(self, lanes: Lanes, view: View, memory: Histories, now: float) -> bool:
        return self._known.holds(view, lanes, memory, now)

    def plan_again(self, tiers: Tiers, lease: float, view: View, now: float) -> Plan | None:
        """The same again, with longer leases for those whose leases have ended; None where that takes a round."""
        plan: Plan = []
        if view.preemptible.buckets:
            ended = view.preemptible.ordered(now)
            if not self._keep(tiers, view, ended, now):
                return None
            for job in ended:
                plan.append(Extend(job.id, lease))
        plan += self._waits
        if self._wake < math.inf:
            plan.append(WakeAt(self._wake))
        return plan

    def _keep(self, tiers: Tiers, view: View, ended: list[ActiveJob], now: float) -> bool:
        """Whether jobs whose leases have ended win their GPUs back, seen at once: nothing is nearer, and nobody who
        waits would take what is free together with them, were all of them in one domain above a machine."""
        if len(view.free.pools) > 1:
            return False
        given: dict[int, int] = {}  # GPUs by machine
        more = 0
        for job in ended:
            held = job.placement
            if held is None or job.demand.where is not None or not as_near_as_can_be(tiers, view, job, held):
                return False
            more += held.gpus
            for machine, mask in held.slices:
                given[machine] = given.get(machine, 0) + gpus_in(mask)
        for pool in view.free.pools.values():
            for at, lane in enumerate(self._lanes):
                room = _room_with(tiers, pool, lane.demand.gpus, self._rooms[at], given, more)
                if room == 0 or (room > 0 and lane.oldest(()) + self._least[at][room - 1] <= now):
                    return False
        return True


def _room_with(tiers: Tiers, pool: Pool, gpus: int, room: int, given: dict[int, int], more: int) -> int:
    """The innermost tier at which so many GPUs may be free once those are given back; none: -1."""
    last = tiers.count - 1
    for tier in range(min(room, last)):
        counts, domains = pool.counts[tiers.own + tier], tiers.domains[tier]
        for machine, part in given.items():
            if counts[domains[machine]] + (more if tier else part) >= gpus:
                return tier
    if room <= last:
        return room
    return last if pool.total + more >= gpus else -1
