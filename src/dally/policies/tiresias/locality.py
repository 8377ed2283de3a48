"""Plans in which some jobs must be consolidated or wait: the order decides who, the profile decides where.

The cluster is handed out from the top of the order, as in `greedy`, but with concrete GPUs. A job that need not be
consolidated takes what there is, as tightly as it goes. One that must be takes the fewest machines that could ever
hold it, free or held by jobs behind it; if there are none it waits and others pass. GPUs are taken from the fewest
jobs, the hindmost first. Waiting jobs are kept in lanes of equal demand and equal need, so that one look at a
lane's head answers for all behind it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import cast

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus, Pool
from dally.core.placement import Placement
from dally.core.plan import Demand, Plan, Preempt, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Entry as Place
from dally.core.reasons import Reason, Token
from dally.core.topology import Topology
from dally.policies.greedy import waits_for_gpus
from dally.policies.placing import place_best_fit, place_tight, place_within, pools_for
from dally.policies.room import enough, make_room
from dally.policies.tiresias.behind import Behind, Reach
from dally.policies.tiresias.profile import Packing, Verdict

_Reasons = dict[str | Demand, Reason]  # of single jobs and of demands, as last said


class Lane:
    """Waiting jobs of one demand, in the policy's order, that must be consolidated or need not be."""

    __slots__ = ("_as_of", "_failed", "at", "bound", "demand", "entries", "gpus", "kind", "picky", "reason", "told")

    def __init__(self, demand: Demand, picky: bool) -> None:
        self.demand, self.picky = demand, picky
        self.gpus, self.kind = demand.gpus, demand.gpu_type
        self.bound = demand.where is not None and demand.bound
        self.reason = waits_for_gpus(demand).reason  # of the demand
        self.told: _Said | None = None  # what its first was last told
        self.entries: list[Place] = []  # waiting ranks do not change with time: an entry is its place in the order
        self.at = 0  # so many of them start by the plan in the making
        self._failed: Place = None  # from there on nobody was served
        self._as_of = -1  # by the state of that number

    def failed(self, as_of: int) -> Place:
        """From which place on nobody was served, if everything is as it was."""
        return self._failed if self._as_of == as_of else None

    def fails(self, place: Place, as_of: int) -> None:
        self._failed, self._as_of = place, as_of


class Lanes:
    """Waiting jobs by demand and need, in the policy's order: follows the view's queue (`Ranking.watch`)."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.heads: list[tuple[Place, Lane]] = []  # the first of every lane, in order
        self._picky: dict[Demand, Lane] = {}  # only those that are not empty
        self._easy: dict[Demand, Lane] = {}
        self._where: dict[str, Lane] = {}
        self._least: Fewest | None = None
        self._behind: Behind | None = None
        self._said: dict[str, _Said] = {}  # what `explain` last made of what it was told
        self._as_of = 0  # raised whenever another state is planned with: the layout, free GPUs and running jobs are
        self._layout, self._free, self._running = -1, -1, -1  # these

    def added(self, job: ActiveJob, place: Place) -> None:
        demand, picky = job.demand, self._must(job)
        lanes = self._picky if picky else self._easy
        lane = lanes.get(demand)
        if lane is None:
            lane = lanes[demand] = Lane(demand, picky)
        self._where[job.id] = lane
        entries = lane.entries
        insort(entries, place)
        if entries[0] is place:  # objects
            if len(entries) > 1:
                self._drop(entries[1], lane)
            insort(self.heads, (place, lane))

    def removed(self, job: ActiveJob, place: Place) -> None:
        lane = self._where.pop(job.id)
        self._said.pop(job.id, None)
        entries = lane.entries
        at = 0 if entries[0] is place else bisect_left(entries, place)  # objects; mostly the first is served
        del entries[at]
        if at == 0:
            self._drop(place, lane)
            if entries:
                insort(self.heads, (entries[0], lane))
            else:
                del (self._picky if lane.picky else self._easy)[lane.demand]

    def lane(self, job: ActiveJob) -> Lane:
        return self._where[job.id]

    def _drop(self, place: Place, lane: Lane) -> None:
        """It is the first of its lane no more; no two places are equal."""
        del self.heads[bisect_left(self.heads, (place, lane))]

    def _must(self, job: ActiveJob) -> bool:
        """Whether it must be consolidated. Who says itself where it must be is not held to anything more."""
        if job.gpus == 1 or not self.packing.verdict(job.job).picky:
            return False
        return job.demand.where is None or not job.demand.bound

    def astray(self, view: View) -> list[ActiveJob]:
        """Whose need is another one than when they came. Looks at everybody: PACKLIMIT seldom moves."""
        return [job for job in view.waiting if self._where[job.id].picky != self._must(job)]

    def least(self, view: View) -> Fewest:
        if self._least is None or self._least.layout != view.layout:
            self._least = Fewest(view.topology, view.down, view.layout)
        return self._least

    def behind(self, view: View) -> Behind:
        """Kept from the first time on that anybody waits."""
        if self._behind is None:
            self._behind = Behind(view)
        return self._behind

    def as_of(self, view: View, behind: Behind) -> int:
        """The number of the state that is planned with: another one where anything is not as it was the last time.
        Others who came in between have only taken."""
        layout, free, running = view.layout, view.free.changes, behind.changes
        if layout != self._layout or free != self._free or running != self._running or not behind.lasts:
            self._layout, self._free, self._running = layout, free, running
            self._as_of += 1
        return self._as_of

    def holds(self, lane: Lane, job: ActiveJob, most: int, machine: int, reasons: _Reasons) -> bool:
        """Whether the first of a lane has been told just what it would be told now."""
        told = lane.told
        if told is None or reasons.get(job.id) is not told.wait.reason:  # objects
            return False
        if lane.gpus == 1 or lane.bound:
            return True  # the profile has no say in it
        if told.there != (most >= lane.gpus) or told.machine != machine:
            return False
        return told.verdict is self.packing.verdict(job.job)  # objects

    def explain(self, job: ActiveJob, most: int, machine: int) -> _Said:
        """The profile's decision and its evidence, and what the job waits for; `most`: free GPUs of one type."""
        verdict = self.packing.verdict(job.job)
        there = most >= job.gpus
        said = self._said.get(job.id)
        if said is None or said.verdict is not verdict or said.there != there or said.machine != machine:  # objects
            said = _Said(verdict, there, machine, _wait(job, verdict.picky, verdict.because, there, machine))
            if job.id in self._where:  # else it has just lost its GPUs: it is not in a lane yet
                self._said[job.id] = said
        return said


class _Said:
    """What a job was told, and what that was made of."""

    __slots__ = ("machine", "there", "verdict", "wait")

    def __init__(self, verdict: Verdict, there: bool, machine: int, wait: Wait) -> None:
        self.verdict, self.there, self.machine, self.wait = verdict, there, machine, wait


def _wait(job: ActiveJob, picky: bool, because: str, there: bool, machine: int) -> Wait:
    need = job.gpus
    if job.demand.where is not None and job.demand.bound:
        return Wait(job.id, waits_for_gpus(job.demand).reason)
    if need == 1 or not picky:
        return Wait(job.id, _waits_for_any(need, "" if need == 1 else because))
    return Wait(job.id, _waits_for_machines(need, because, there, machine))


@lru_cache(maxsize=4096)
def _waits_for_any(need: int, because: str) -> Reason:
    said = f"; {because}, so it takes any GPUs" if because else ""
    return Reason(Token.WAITING_FOR_GPUS, f"fewer than {need} GPUs are free for it{said}")


@lru_cache(maxsize=4096)
def _waits_for_machines(need: int, because: str, there: bool, machine: int) -> Reason:
    where = "one machine" if need <= machine else f"{-(-need // machine)} machines"
    token = Token.WAITING_FOR_LOCALITY if there else Token.WAITING_FOR_GPUS
    return Reason(token, f"{because}: it waits for {need} free GPUs on {where}")


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


def _first_to_try(free: FreeGpus, heads: list[tuple[Place, Lane]], behind: Behind, as_of: int, served: _Served) -> int:
    """The first head that a count of GPUs does not turn away; nobody before it is served. In half of all plans there is
    none, and nothing has to be tried."""
    hopeless = served.hopeless
    for turn in range(len(heads)):
        place, lane = heads[turn]
        known = lane.failed(as_of)
        if known is not None and not place < known:
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


def _serve(free: FreeGpus, heads: list[tuple[Place, Lane]], turn: int, behind: Behind, least: Fewest, as_of: int,
           served: _Served, lease: float | None) -> None:  # fmt: skip
    """From this turn on, whoever can be served. `heads` are used up."""
    hopeless, starts, stay = served.hopeless, served.starts, served.stay
    while turn < len(heads):
        place, lane = heads[turn]
        turn += 1
        placement = None
        known = lane.failed(as_of)
        # whose GPUs are taken may leave some to others who could not have taken them
        if (known is None or behind.evicted or place < known) and not hopeless.at(lane):
            if lane.picky:
                placement = _compact(free, lane, behind, least, place)
            else:
                placement = _whatever(free, lane, behind, place)
                if placement is None:
                    hopeless.found(lane)
        if placement is None:  # what can be had only gets less: nobody else of this lane is served either
            stay.append((place, lane))
            if not starts and (known is None or place < known):  # the plan may come to nothing
                lane.fails(place, as_of)
            continue
        free.take(placement)
        job: ActiveJob = place[4]
        starts.append(Start(job.id, placement, lease))
        served.started[job.id] = job
        lane.at += 1
        if lane.at < len(lane.entries):
            insort(heads, (lane.entries[lane.at], lane), lo=turn)


def _explain(view: View, lanes: Lanes, least: Fewest, served: _Served, unexplained: Sequence[ActiveJob],
             plan: Plan) -> None:  # fmt: skip
    """Why those wait who stay, as far as that has not been said."""
    reasons = cast(_Reasons, view.reasons)
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


def _told(stay: list[tuple[Place, Lane]], evicted: list[ActiveJob], reasons: _Reasons) -> bool:
    """Whether all demands of which somebody waits after the plan have been given their reason."""
    for _, lane in stay:
        if reasons.get(lane.demand) is not lane.reason:  # objects
            return False
    for job in evicted:  # noqa: SIM110 - a generator costs
        if reasons.get(job.demand) != waits_for_gpus(job.demand).reason:
            return False
    return True


def _tell(job: ActiveJob, wait: Wait, reasons: _Reasons, told: set[str], plan: Plan) -> None:
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


def place_compact(free: FreeGpus, demand: Demand, least: Fewest) -> Placement | None:
    """On the fewest machines that could ever hold the gang, in the innermost domain that has them; else None."""
    for pool in pools_for(free, demand):
        fewest = least.machines(pool.gpu_type, demand.gpus)
        if fewest is not None and (found := _on_fewest(free, pool, demand.gpus, fewest)) is not None:
            return found
    return None


def _on_fewest(free: FreeGpus, pool: Pool, gpus: int, fewest: int) -> Placement | None:
    levels = len(free.topology.levels)
    last = free.topology.machine_level + 1 if fewest == 1 else levels
    for level in range(min(last, levels)):
        found = place_within(free, pool, gpus, level, tight=True)
        if found is not None and len(found.slices) <= fewest:
            return found
    return None


class Fewest:
    """How many machines a gang needs at least, of those that are up."""

    def __init__(self, topology: Topology, down: Set[int], layout: int) -> None:
        self.layout = layout  # for which this was counted
        sizes: dict[str, list[int]] = {}
        self._up: dict[str, int] = {}
        for machine in topology.machines:
            if machine.index not in down:
                sizes.setdefault(machine.gpu_type, []).append(machine.gpus)
                self._up[machine.gpu_type] = self._up.get(machine.gpu_type, 0) | 1 << machine.index
        self._sizes = {kind: sorted(found, reverse=True) for kind, found in sizes.items()}
        self.largest = max((found[0] for found in self._sizes.values()), default=1)

    def machines(self, gpu_type: str, gpus: int) -> int | None:
        """None where it does not fit at all."""
        left = gpus
        for count, size in enumerate(self._sizes.get(gpu_type, ()), 1):
            left -= size
            if left <= 0:
                return count
        return None

    def up(self, gpu_type: str) -> int:
        """The machines of a type that are up, as a bit set."""
        return self._up.get(gpu_type, 0)
