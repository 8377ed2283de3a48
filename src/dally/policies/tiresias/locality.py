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
from dally.core.free import FreeGpus, Pool
from dally.core.placement import Placement
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Entry as Place
from dally.core.ranking import before
from dally.policies.greedy import waits_for_gpus
from dally.policies.placing import place_best_fit, place_tight
from dally.policies.room import enough, make_room
from dally.policies.tiresias.behind import Behind, Reach
from dally.policies.tiresias.compact import Fewest, place_compact
from dally.policies.tiresias.lanes import Heads, Lane, Lanes, Reasons, enter


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
    served = _Served()
    try:
        turn = _first_to_try(view.free, heads, behind, as_of, served)
        if turn < len(heads):
            served.stay = heads[:turn]
            with view.free.trial() as free:
                _serve(free, heads.copy(), turn, behind, least, as_of, served, lease)
                served.most = _most(free)
            served.evicted = list(behind.evicted.values())
        else:
            served.stay = heads
            served.most = _most(view.free)
    finally:
        behind.end()
        for job in served.started.values():
            lanes.lane(job).at = 0
    plan: Plan = [Preempt(job.id) for job in served.evicted]
    plan += served.starts
    _explain(view, lanes, least, served, unexplained, plan)
    return plan


class _Served:
    """Who starts by the plan in the making, whose GPUs are taken for that, and which heads of lanes stay."""

    __slots__ = ("evicted", "hopeless", "most", "started", "starts", "stay")

    def __init__(self) -> None:
        self.starts: Plan = []
        self.started: dict[str, ActiveJob] = {}
        self.evicted: list[ActiveJob] = []
        self.stay: list[tuple[Place, Lane]] = []
        self.hopeless = _Hopeless()
        self.most = 0  # GPUs of one type that are free then


def _most(free: FreeGpus) -> int:
    most = 0
    for pool in free.pools.values():
        most = max(most, pool.total)
    return most


def _first_to_try(free: FreeGpus, heads: Heads, behind: Behind, as_of: int, served: _Served) -> int:
    """The first head that a count of GPUs does not turn away; nobody before it is served. In half of all plans there is
    none, and nothing has to be tried."""
    hopeless = served.hopeless
    for turn in range(len(heads)):
        place, lane = heads[turn]
        known = lane.failed(as_of)
        if known is not None and not before(place, known):
            continue
        if not hopeless.at(lane):
            if lane.bound or _enough(free, lane, behind, place):
                return turn
            hopeless.found(lane)
        lane.fails(place, as_of)
    return len(heads)


def _enough(free: FreeGpus, lane: Lane, behind: Behind, place: Place) -> bool:
    """Whether as many GPUs of a type are free, or held by somebody behind."""
    for kind, pool in free.pools.items():
        if lane.kind is None or lane.kind == kind:
            need = lane.gpus - pool.total
            if need <= 0 or behind.total(place, kind) >= need:
                return True
    return False


def _serve(free: FreeGpus, heads: Heads, turn: int, behind: Behind, least: Fewest, as_of: int,
           served: _Served, lease: float | None) -> None:  # fmt: skip
    """From this turn on, whoever can be served. `heads` are used up."""
    hopeless, starts, stay = served.hopeless, served.starts, served.stay
    while turn < len(heads):
        place, lane = heads[turn]
        turn += 1
        placement = None
        known = lane.failed(as_of)
        # whose GPUs are taken may leave some to others who could not have taken them
        if (known is None or behind.evicted or before(place, known)) and not hopeless.at(lane):
            if lane.picky:
                placement = _compact(free, lane, behind, least, place)
            else:
                placement = _whatever(free, lane, behind, place)
                if placement is None:
                    hopeless.found(lane)
        if placement is None:  # what can be had only gets less: nobody else of this lane is served either
            stay.append((place, lane))
            if not starts and (known is None or before(place, known)):  # the plan may come to nothing
                lane.fails(place, as_of)
            continue
        free.take(placement)
        job: ActiveJob = place[4]
        starts.append(Start(job.id, placement, lease))
        served.started[job.id] = job
        lane.at += 1
        if lane.at < len(lane.entries):
            enter(heads, lane.entries[lane.at], lane, turn)


def _explain(view: View, lanes: Lanes, least: Fewest, served: _Served, unexplained: Sequence[ActiveJob],
             plan: Plan) -> None:  # fmt: skip
    """Why those wait who stay, as far as that has not been said."""
    reasons = cast(Reasons, view.reasons)
    most, largest = served.most, least.largest
    if not _told(served.stay, served.evicted, reasons):
        for demand in _still_waiting(view, served.started, served.evicted):
            wait = waits_for_gpus(demand)
            if reasons.get(demand) != wait.reason:  # what was said holds
                plan.append(wait)
    told: set[str] = set()
    for place, lane in served.stay:
        job: ActiveJob = place[4]
        if not lanes.holds(lane, job, most, largest, reasons):
            lane.told = lanes.explain(job, most, largest)
            _tell(job, lane.told.wait, reasons, told, plan)
    for job in unexplained:
        if job.id not in served.started:
            _tell(job, lanes.explain(job, most, largest).wait, reasons, told, plan)


def _told(stay: list[tuple[Place, Lane]], evicted: list[ActiveJob], reasons: Reasons) -> bool:
    """Whether all demands of which somebody waits after the plan have been given their reason."""
    for _, lane in stay:
        if reasons.get(lane.demand) is not lane.reason:  # objects
            return False
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


class _Hopeless:
    """So many GPUs of a type, or of any, were neither free nor held by somebody behind. Further back in the order there
    are no more: that answers for all who ask for as many, wherever they would have to be."""

    __slots__ = ("_any", "_of")

    def __init__(self) -> None:
        self._any = 1 << 62
        self._of: dict[str, int] = {}

    def at(self, lane: Lane) -> bool:
        if lane.gpus >= self._any:
            return True
        kind = lane.kind
        return kind is not None and kind in self._of and lane.gpus >= self._of[kind]

    def found(self, lane: Lane) -> None:
        if lane.bound:
            return  # there are GPUs perhaps, but not where it must be
        if lane.kind is None:
            self._any = min(self._any, lane.gpus)
        else:
            self._of[lane.kind] = min(self._of.get(lane.kind, lane.gpus), lane.gpus)


def _whatever(free: FreeGpus, lane: Lane, behind: Behind, place: Place) -> Placement | None:
    """Any GPUs of one type, best fit: it costs nothing and leaves whole machines to those who need them."""
    demand = lane.demand
    found = place_best_fit(free, demand)
    if found is not None:
        return found
    if lane.bound:
        victims = make_room(free, demand, behind.all(place))
        _evict(free, behind, victims or [])
        return None if victims is None else place_best_fit(free, demand)
    best: list[ActiveJob] | None = None
    of: Pool | None = None
    for kind, pool in free.pools.items():
        if lane.kind is None or lane.kind == kind:
            victims = behind.hindmost(place, kind, lane.gpus - pool.total)
            if victims is not None and (best is None or len(victims) < len(best)):
                best, of = victims, pool
    if best is None or of is None:
        return None
    _evict(free, behind, best)
    return place_tight(free, of, lane.gpus) if of.total >= lane.gpus else None


def _compact(free: FreeGpus, lane: Lane, behind: Behind, least: Fewest, place: Place) -> Placement | None:
    """The fewest machines that could ever hold the gang: first free ones, then the machines where the most is free
    and the rest is held by jobs further back; then the victims inside them."""
    gpus = lane.gpus
    found = place_compact(free, lane.demand, least)
    if found is not None:
        return found
    level = free.topology.machine_level
    reach: Reach | None = None
    for kind, pool in free.pools.items():
        if (lane.kind is not None and lane.kind != kind) or pool.total + behind.total(place, kind) < gpus:
            continue
        fewest = least.machines(kind, gpus)
        if fewest is None:
            continue
        if reach is None:
            reach = behind.reach(place)
        up = least.up(kind)
        if fewest == 1:  # few victims first
            one = reach.one_machine(pool, level, up, gpus)
            chosen = None if one is None else {one}
        else:  # those with most to give
            chosen = reach.machines(pool, level, up, gpus, fewest)
        if chosen is None:
            continue
        need = gpus - sum(free.masks[m].bit_count() for m in chosen)
        victims = enough(need, ((job, _inside(job, chosen)) for job in behind.on(chosen, place)))
        if victims is not None:
            _evict(free, behind, victims)
            return place_compact(free, Demand(gpus, kind), least)
    return None


def _evict(free: FreeGpus, behind: Behind, victims: list[ActiveJob]) -> None:
    for job in victims:
        assert job.placement is not None
        free.give(job.placement)
        behind.evict(job)


def _inside(job: ActiveJob, machines: set[int]) -> int:
    assert job.placement is not None
    return sum(mask.bit_count() for machine, mask in job.placement.slices if machine in machines)
