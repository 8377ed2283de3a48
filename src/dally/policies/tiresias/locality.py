"""Plans in which some jobs must be consolidated or wait: the order decides who, the profile decides where.

The cluster is handed out from the top of the order, as in `greedy`, but with concrete GPUs. A job that need not be
consolidated takes what there is, as tightly as it goes. One that must be takes the fewest machines that could ever
hold it (`compact`), free or held by jobs behind it; if there are none it waits and others pass. GPUs are taken from the
fewest jobs, the hindmost first. Who waits is kept in `lanes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool, Trial
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import before
from dally.policies.greedy import waits_for_gpus
from dally.policies.placing import place_best_fit, place_tight
from dally.policies.room import enough, make_room
from dally.policies.tiresias.behind import Behind
from dally.policies.tiresias.compact import Fewest, place_compact
from dally.policies.tiresias.lanes import Heads, Lane, Lanes, Reasons, enter
from dally.policies.tiresias.reach import Reach


def plan_with_locality(view: View, now: float, lanes: Lanes, unexplained: Sequence[ActiveJob],
                       lease: float | None = None) -> Plan:  # fmt: skip
    """Order of rank, skipping what does not fit or has no place near enough; GPUs of jobs behind may be taken. Those
    who stay are told why: the first of each lane, and who has not been told yet."""
    heads = lanes.heads
    if not heads:
        return []
    least, behind = lanes.least(view), lanes.behind(view)
    behind.begin(now)
    as_of = lanes.as_of(view, behind)
    served = _Served(view.free, behind)
    try:
        turn = _first_to_try(heads, served, as_of)
        if turn < len(heads):
            served.stay = heads[:turn]
            _serve(heads.copy(), turn, served, least, as_of, lease)
            served.evicted = list(behind.evicted.values())
        else:
            served.stay = heads
        plan: Plan = [Preempt(job.id) for job in served.evicted]
        plan += served.starts
        _explain(view, lanes, least.largest, served, unexplained, plan)
        return plan
    finally:
        served.undo()
        behind.end()
        for job in served.started.values():
            lanes.lane(job).stand(0)


class _Served:
    """Who starts by the plan in the making, whose GPUs are taken for that, which lanes stay, and what is left.

    Free GPUs are changed on trial, and no sooner than somebody else has to be placed: most plans start one job, and
    nobody is placed after it.
    """

    __slots__ = ("_exchanged", "_last", "_most", "_trial", "behind", "evicted", "free", "started", "starts", "stay")

    def __init__(self, free: FreeGpus, behind: Behind) -> None:
        self.free, self.behind = free, behind
        self.starts: Plan = []
        self.started: dict[str, ActiveJob] = {}
        self.evicted: list[ActiveJob] = []
        self.stay: list[Lane] = []
        self._last: Placement | None = None  # of the last start: has not been taken yet
        self._exchanged = False  # whether those who start next have just taken the GPUs of others, no more and no less
        self._trial: Trial | None = None
        # GPUs by type that nobody whose turn is still to come finds more of, free or held by somebody behind: further
        # back in the order there are only fewer
        self._most = [1 << 60] * len(behind.pools)

    def hopeless(self, lane: Lane) -> bool:
        """Whether it is known that there are too few GPUs for a lane, wherever it would have to be."""
        for kind, pool in enumerate(self.behind.pools):
            if self._most[kind] >= lane.gpus and (lane.kind is None or lane.kind == pool.gpu_type):
                return False
        return True

    def enough(self, lane: Lane) -> bool:
        """Whether as many GPUs of a type are free, or held by somebody behind."""
        for kind, pool in enumerate(self.behind.pools):
            if lane.kind is None or lane.kind == pool.gpu_type:
                free = self.left(kind)
                if free >= lane.gpus:
                    return True
                free += self.behind.total(lane.place, kind)
                if free < self._most[kind]:
                    self._most[kind] = free
                if free >= lane.gpus:
                    return True
        return False

    def left(self, kind: int) -> int:
        """GPUs of a type that are free after what has been started."""
        total = self.behind.pools[kind].total
        if self._last is not None and self.behind.kind(self._last) == kind:
            total -= self._last.gpus
        return total

    def most_free(self) -> int:
        """GPUs of one type that are free then."""
        most = 0
        for kind in range(len(self.behind.pools)):
            most = max(most, self.left(kind))
        return most

    def start(self, lane: Lane, placement: Placement, lease: float | None) -> None:
        job: ActiveJob = lane.place[4]
        self.starts.append(Start(job.id, placement, lease))
        self.started[job.id] = job
        if self._exchanged:
            self._exchanged = False
        else:
            self._last = placement
        self._most[self.behind.kind(placement)] -= placement.gpus

    def placing(self) -> FreeGpus:
        """What is free, for somebody who is to be placed."""
        if self._last is not None:
            self._try().take(self._last)
            self._last = None
        return self.free

    def evict(self, victims: list[ActiveJob]) -> None:
        free = self._try()
        for job in victims:
            assert job.placement is not None
            free.give(job.placement)
            self.behind.evict(job)

    def exchange(self, victims: list[ActiveJob], gpus: int) -> Placement | None:
        """The GPUs of the victims for somebody who asks for just as many, where none are free: so it stays."""
        if len(victims) == 1:
            found = victims[0].placement
        else:
            masks: dict[int, int] = {}
            for job in victims:
                assert job.placement is not None
                for machine, mask in job.placement.slices:
                    masks[machine] = masks.get(machine, 0) | mask
            found = Placement.of(masks.items())
        if found is None or found.gpus != gpus:
            return None
        for job in victims:
            self.behind.evict(job)
        self._exchanged = True
        return found

    def _try(self) -> FreeGpus:
        if self._trial is None:
            self._trial = self.free.trial()
            self._trial.__enter__()
        return self.free

    def undo(self) -> None:
        if self._trial is not None:
            self._trial.__exit__()


def _first_to_try(heads: Heads, served: _Served, as_of: int) -> int:
    """The first lane that a count of GPUs does not turn away; nobody before it is served. In half of all plans there is
    none, and nothing has to be tried."""
    for turn, lane in enumerate(heads):
        known = lane.failed(as_of)
        if known is not None and not before(lane.place, known):
            continue
        if not served.hopeless(lane) and (lane.bound or served.enough(lane)):
            return turn
        lane.fails(as_of)
    return len(heads)


def _serve(heads: Heads, turn: int, served: _Served, least: Fewest, as_of: int, lease: float | None) -> None:
    """From this turn on, whoever can be served. `heads` are used up."""
    behind, stay = served.behind, served.stay
    while turn < len(heads):
        lane = heads[turn]
        turn += 1
        placement = None
        known = lane.failed(as_of)
        # whose GPUs are taken may leave some to others who could not have taken them
        if ((known is None or behind.evicted or before(lane.place, known)) and not served.hopeless(lane)
                and (lane.bound or served.enough(lane))):  # fmt: skip
            placement = _compact(served, lane, least) if lane.picky else _whatever(served, lane)
        if placement is None:  # what can be had only gets less: nobody else of this lane is served either
            stay.append(lane)
            if not served.starts and (known is None or before(lane.place, known)):  # the plan may come to nothing
                lane.fails(as_of)
            continue
        served.start(lane, placement, lease)
        if lane.at + 1 < len(lane.entries):
            lane.stand(lane.at + 1)
            enter(heads, lane, turn)


def _explain(view: View, lanes: Lanes, largest: int, served: _Served, unexplained: Sequence[ActiveJob],
             plan: Plan) -> None:  # fmt: skip
    """Why those wait who stay, as far as that has not been said; `largest`: GPUs of a machine."""
    reasons = cast(Reasons, view.reasons)
    most = served.most_free()
    if not _told(served.stay, served.evicted, reasons):
        for demand in _still_waiting(view, served.started, served.evicted):
            wait = waits_for_gpus(demand)
            if reasons.get(demand) != wait.reason:  # what was said holds
                plan.append(wait)
    told: set[str] = set()
    for lane in served.stay:
        job: ActiveJob = lane.place[4]
        if not lanes.holds(lane, job, most, largest, reasons):
            lane.told = lanes.explain(job, most, largest)
            _tell(job, lane.told.wait, reasons, told, plan)
    for job in unexplained:
        if job.id not in served.started:
            _tell(job, lanes.explain(job, most, largest).wait, reasons, told, plan)


def _told(stay: list[Lane], evicted: list[ActiveJob], reasons: Reasons) -> bool:
    """Whether all demands of which somebody waits after the plan have been given their reason."""
    for lane in stay:
        if not lane.said:
            if reasons.get(lane.demand) is not lane.reason:  # objects
                return False
            lane.said = True  # and nobody says anything else of a demand
    for job in evicted:  # noqa: SIM110 - a generator costs
        if reasons.get(job.demand) != waits_for_gpus(job.demand).reason:
            return False
    return True


def _tell(job: ActiveJob, wait: Wait, reasons: Reasons, told: set[str], plan: Plan) -> None:
    """Unless that has been said."""
    if job.id not in told:
        told.add(job.id)
        if reasons.get(job.id) != wait.reason:
            plan.append(wait)


def _still_waiting(view: View, started: dict[str, ActiveJob], evicted: list[ActiveJob]) -> Iterable[Demand]:
    """Demands of which somebody waits after the plan. Whose GPUs come back at no cost waits from this instant on, and
    needs a reason as well."""
    buckets = view.waiting.buckets
    if not started and not evicted:
        return buckets
    gone: dict[Demand, int] = {}
    for job in started.values():
        gone[job.demand] = gone.get(job.demand, 0) + 1
    waiting = {demand: True for demand, bucket in buckets.items() if len(bucket.entries) > gone.get(demand, 0)}
    for job in evicted:
        waiting[job.demand] = True
    return waiting


def _whatever(served: _Served, lane: Lane) -> Placement | None:
    """Any GPUs of one type, best fit: it costs nothing and leaves whole machines to those who need them."""
    free, behind, demand = served.placing(), served.behind, lane.demand
    found = place_best_fit(free, demand)
    if found is not None:
        return found
    if lane.bound:
        room = make_room(free, demand, behind.all(lane.place))
        served.evict(room or [])
        return None if room is None else place_best_fit(free, demand)
    best: list[ActiveJob] | None = None
    of: Pool | None = None
    for kind, pool in enumerate(behind.pools):
        if lane.kind is None or lane.kind == pool.gpu_type:
            victims = behind.hindmost(lane.place, kind, lane.gpus - pool.total)
            if victims is not None and (best is None or len(victims) < len(best)):
                best, of = victims, pool
    if best is None or of is None:
        return None
    if of.total == 0:
        found = served.exchange(best, lane.gpus)
        if found is not None:
            return found
    served.evict(best)
    return place_tight(free, of, lane.gpus) if of.total >= lane.gpus else None


def _compact(served: _Served, lane: Lane, least: Fewest) -> Placement | None:
    """The fewest machines that could ever hold the gang: first free ones, then the machines where the most is free
    and the rest is held by jobs further back; then the victims inside them."""
    free, behind, gpus = served.placing(), served.behind, lane.gpus
    found = place_compact(free, lane.demand, least)
    if found is not None:
        return found
    level = free.topology.machine_level
    reach: Reach | None = None
    for number, pool in enumerate(behind.pools):
        kind = pool.gpu_type
        if (lane.kind is not None and lane.kind != kind) or pool.total + behind.total(lane.place, number) < gpus:
            continue
        fewest = least.machines(kind, gpus)
        if fewest is None:
            continue
        if reach is None:
            reach = behind.reach(lane.place)
        up = least.up(kind)
        if fewest == 1:  # few victims first
            one = reach.one_machine(pool, level, up, gpus)
            chosen = None if one is None else {one}
        else:  # those with most to give
            chosen = reach.machines(pool, level, up, gpus, fewest)
        if chosen is None:
            continue
        need = gpus - sum(gpus_in(free.masks[machine]) for machine in chosen)
        victims = enough(need, ((job, _inside(job, chosen)) for job in behind.on(chosen, lane.place)))
        if victims is not None:
            served.evict(victims)
            return place_compact(free, Demand(gpus, kind), least)
    return None


def _inside(job: ActiveJob, machines: set[int]) -> int:
    assert job.placement is not None
    return sum(mask.bit_count() for machine, mask in job.placement.slices if machine in machines)
