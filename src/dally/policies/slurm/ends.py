"""When and where a job could start if nobody else came: running jobs are taken to end at their time limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from dally.core.inner import place_of
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.policies.slurm.nodes import Nodes, counted, nodes_of
from dally.policies.slurm.room import Chosen, Room
from dally.policies.slurm.settings import Partition

FIRST_WINDOW: Final = 30.0  # seconds: jobs that end within it are taken to end together, then within twice as many, …
_REMEMBERED: Final = 1000  # grounds of answers
_BLOCK: Final = 16  # nodes that are compared at once
KILL_WAIT: Final = 30.0  # seconds between the end of a job's limit and its being killed

# Tuples. Where their types said of what, compiled code would take them apart and put others together at every turn.
Moment = tuple[Any, ...]  # a time, and the job whose limit ends then: two jobs never have the same id
Coming = tuple[Any, ...]  # a moment, and the node that comes to have so many GPUs free then
Question = tuple[Demand, str, int, str | None]  # who asks, of which partition, on which nodes, how near
ALREADY: Final = -math.inf  # the time of what is free now
_ALL_THEN: Final = "\U0010ffff"  # after the id of every job


class End(NamedTuple):
    """A job that runs: when its limit ends, and what it then leaves."""

    time: float
    job: str
    gpus: Chosen
    nodes: int


class Answer(NamedTuple):
    start: float
    chosen: Chosen


class Foreseen:
    """With which end it fits, and where."""

    __slots__ = ("chosen", "end")

    def __init__(self, end: float, chosen: Chosen) -> None:
        self.end, self.chosen = end, chosen


UNKNOWN = Foreseen(math.nan, ())  # nobody has asked yet


class _Grounds:
    """What was foreseen for those who find nodes of one type at the first look, and all that it followed from."""

    __slots__ = ("changes", "found", "last", "soonest")

    def __init__(self, soonest: Moment, changes: int, last: End, found: Foreseen) -> None:
        self.soonest, self.changes, self.last, self.found = soonest, changes, last, found


class _Ready:
    """Nodes in the order in which they come to have a certain number of GPUs free."""

    __slots__ = ("bits", "changes", "of", "order", "sets", "stale")

    def __init__(self, bits: list[int]) -> None:
        self.bits = bits
        self.changes = 0  # of the order, so far
        self.of: list[Coming | None] = [None] * len(bits)
        self.order: list[Coming] = []
        self.sets: list[int] = []  # of the first, the first two, …: as far as somebody has asked
        self.stale = (1 << len(bits)) - 1  # nodes whose moment is to be worked out again

    def change(self, machine: int, after: Coming | None) -> None:
        order = self.order
        self.changes += 1
        before, self.of[machine] = self.of[machine], after
        if before is not None:
            at = place_of(order, before)
            order.pop(at)
            del self.sets[at:]
        if after is not None:
            at = place_of(order, after)
            order.insert(at, after)
            del self.sets[at:]

    def first(self, count: int) -> int:
        """So many of them, as a bit set."""
        if not count:
            return 0
        sets, order, bits = self.sets, self.order, self.bits
        known = len(sets)
        if known < count:
            found = sets[known - 1] if known else 0
            while known < count:
                machine: int = order[known][2]
                found |= bits[machine]
                sets.append(found)
                known += 1
        return sets[count - 1]


class Ends:
    """Who runs, in the order of the ends of their limits, and from when on each node has how many GPUs free.

    A cache over one layout, kept from pass to pass: what has changed since is put right, and nothing else is looked at,
    so that a pass does not cost more where more jobs run. A node has at least so many GPUs free from one end on, and
    for ever, as far as anybody knows: by number of GPUs, those moments are kept in order.
    """

    def __init__(self, machines: int) -> None:
        self.all: list[End] = []
        self.touched: dict[str, None] = {}  # jobs of which something may have changed that is not reflected here yet
        self.counts = [0] * machines  # GPUs that are free now
        self._masks = [0] * machines
        self._of: dict[str, tuple[End, Placement]] = {}
        self._on: list[list[Coming]] = [[] for _ in range(machines)]  # by node, the moments at which how many are left
        self._by_gpus: dict[int, _Ready] = {}
        self._spoilt = 0  # nodes of which they do not know yet that something has changed there
        self._bits = [1 << machine for machine in range(machines)]
        self._every = (1 << machines) - 1
        # Answers of `will_run`, as long as nothing changes: many a pass finds but one more job in the queue.
        self.foreseen: dict[Question, Foreseen | None] = {}
        self.grounds: dict[Question, _Grounds] = {}  # of former answers, which may still hold

    # --- kept up to date ----------------------------------------------------------------------------------------

    def put(self, job: str, limit: float | None, placement: Placement | None) -> None:
        """It has these GPUs until its limit ends; None: it has none."""
        known = self._of.get(job)
        if known is not None:
            if known[1] is placement and known[0].time == limit:  # objects
                return
            self._take_out(known[0])
            del self._of[job]
        if limit is not None and placement is not None:
            gpus = counted(placement)
            end = End(limit, job, gpus, nodes_of(gpus))
            self._of[job] = end, placement
            self.all.insert(place_of(self.all, end), end)
            for machine, count in gpus:
                there = self._on[machine]
                there.insert(place_of(there, (limit, job, count)), (limit, job, count))
            self._spoil(end.nodes)

    def _take_out(self, end: End) -> None:
        self.all.pop(place_of(self.all, end))
        for machine, count in end.gpus:
            there = self._on[machine]
            there.pop(place_of(there, (end.time, end.job, count)))
        self._spoil(end.nodes)

    def free_are(self, masks: list[int]) -> None:
        """These GPUs are free now, by node."""
        known, spoilt = self._masks, 0
        for begin in range(0, len(masks), _BLOCK):  # few have changed
            if masks[begin : begin + _BLOCK] == known[begin : begin + _BLOCK]:
                continue
            for machine in range(begin, min(begin + _BLOCK, len(masks))):
                mask = masks[machine]
                if mask != known[machine]:
                    known[machine] = mask
                    self.counts[machine] = gpus_in(mask)
                    spoilt |= self._bits[machine]
        if spoilt:
            self._spoil(spoilt)

    def _spoil(self, nodes: int) -> None:
        self.foreseen.clear()
        self._spoilt |= nodes

    # --- what will be free ----------------------------------------------------------------------------------------

    def ready(self, gpus: int) -> _Ready:
        """Which nodes have so many GPUs free, and from when on."""
        if self._spoilt:
            for each in self._by_gpus.values():
                each.stale |= self._spoilt
            self._spoilt = 0
        ready = self._by_gpus.get(gpus)
        if ready is None:
            ready = self._by_gpus[gpus] = _Ready(self._bits)
        stale = ready.stale
        if stale:
            ready.stale = 0
            while stale:
                low = stale & -stale
                stale ^= low
                machine = low.bit_length() - 1
                after = self._when(machine, gpus)
                if after != ready.of[machine]:
                    ready.change(machine, after)
        return ready

    def _when(self, machine: int, gpus: int) -> Coming | None:
        count = self.counts[machine]
        if count >= gpus:
            return (ALREADY, "", machine)
        for each in self._on[machine]:
            more: int = each[2]
            count += more
            if count >= gpus:
                return (each[0], each[1], machine)
        return None

    def soonest(self, nodes: int, gpus: int, where: int) -> Moment | None:
        """When as many of the nodes `where` have so many GPUs free each."""
        ready = self.ready(gpus)
        order = ready.order
        if where == self._every:
            return order[nodes - 1] if nodes <= len(order) else None
        left, bits = nodes, self._bits
        for each in order:
            machine: int = each[2]
            if bits[machine] & where:
                left -= 1
                if not left:
                    return each
        return None

    def by_then(self, gpus: int, time: float, job: str) -> int:
        """Nodes that have so many free when the jobs up to this moment have ended."""
        ready = self.ready(gpus)
        return ready.first(place_of(ready.order, (time, job, len(self._bits))))

    def at(self, moment: Moment) -> int:
        """The first end from this moment on."""
        every: list[Any] = self.all  # an end begins with its moment
        return place_of(every, moment)

    def on(self, nodes: int, position: int) -> int | None:
        """The first end on these nodes from this one on."""
        every = self.all
        for place in range(position, len(every)):
            if every[place].nodes & nodes:
                return place
        return None

    def last(self, nodes: int, until: float) -> int:
        """The last end on these nodes until then; there is one."""
        every = self.all
        place = self.at((until, _ALL_THEN)) - 1
        while not every[place].nodes & nodes:
            place -= 1
        return place


class RoomThen(Room):
    """What will be free once the jobs up to a moment have ended."""

    def __init__(self, ends: Ends, time: float, job: str) -> None:
        self.ends, self.time, self.job = ends, time, job

    def at_least(self, gpus: int) -> int:
        return self.ends.by_then(gpus, self.time, self.job)

    def free_on(self, machine: int) -> int:
        found = self.ends.counts[machine]
        moment = (self.time, self.job)
        for each in self.ends._on[machine]:
            if (each[0], each[1]) > moment:
                break
            more: int = each[2]
            found += more
        return found


def will_run(nodes: Nodes, ends: Ends, demand: Demand, partition: Partition, allowed: int, near: str | None, now: float,
             one_by_one: bool = False) -> Answer | None:  # fmt: skip
    """The jobs on these nodes are let end one after the other, those that end close together at once, until it fits.

    The later, the coarser: a start may be foreseen too late, and never too early as long as limits are kept."""
    question = (demand, partition.name, allowed, near)
    found = ends.foreseen.get(question, UNKNOWN)
    if found is UNKNOWN:
        found = ends.foreseen[question] = _foresee(nodes, ends, question, partition, one_by_one)
    return begins(found, now)


def begins(found: Foreseen | None, now: float) -> Answer | None:
    """From now on: who is over its limit is killed after a while."""
    if found is None:
        return None
    last = found.end
    return Answer(last if last > now else max(last + KILL_WAIT, now + 1.0), found.chosen)


def _foresee(nodes: Nodes, ends: Ends, question: Question, partition: Partition, one_by_one: bool) -> Foreseen | None:
    """The end with which it fits, and where."""
    demand, _, allowed, near = question
    place = ends.on(allowed, 0)
    if place is None:
        return None
    edge = first_edge(ends.all[place].time)
    asks = nodes.asks(demand, partition)
    # Where how many nodes have how many GPUs is all that matters, the same follows from the same.
    simple = len(asks) == 1 and asks[0].nodes > 0 and demand.where is None and near is None and not nodes.by_room
    known = ends.grounds.get(question) if simple else None
    if known is not None and ends.ready(asks[0].gpus).changes == known.changes:
        end = ends.all[_together(ends, allowed, edge, known.soonest, one_by_one)]
        if end.time == known.last.time and end.job == known.last.job:
            return known.found
    soonest: Moment | None = None
    for ask in asks:
        shape = ask.least
        moment = ends.soonest(shape.nodes, shape.gpus, ask.where & allowed)
        if moment is not None and (soonest is None or moment < soonest):
            soonest = moment
    if soonest is None:
        return None
    last = _together(ends, allowed, edge, soonest, one_by_one)
    while True:
        end = ends.all[last]
        chosen = nodes.find(RoomThen(ends, end.time, end.job), demand, partition, allowed, near)
        if chosen is not None:
            found = Foreseen(end.time, chosen)
            if simple:
                if len(ends.grounds) >= _REMEMBERED:
                    ends.grounds.clear()
                ends.grounds[question] = _Grounds(soonest, ends.ready(asks[0].gpus).changes, end, found)
            return found
        place = ends.on(allowed, last + 1)
        if place is None:
            return None
        last = place if one_by_one else ends.last(allowed, group_end(edge, ends.all[place].time))


def _together(ends: Ends, allowed: int, edge: float, soonest: Moment, one_by_one: bool) -> int:
    """The last of those on these nodes that are taken to end at once with the first after which it may fit."""
    time: float = soonest[0]
    if time == ALREADY or one_by_one:
        place = ends.on(allowed, 0 if time == ALREADY else ends.at((time, soonest[1])))
        assert place is not None, "somebody ends there"
        if one_by_one:
            return place
        time = ends.all[place].time
    return ends.last(allowed, group_end(edge, time))


def first_edge(first: float) -> float:
    return first - first % FIRST_WINDOW + FIRST_WINDOW


def group_end(edge: float, time: float) -> float:
    """Until when jobs are taken to end at once with one that ends at this time: windows begin at the first end, on a
    grid of their own width, and each is twice as wide as all before."""
    window = FIRST_WINDOW
    while time > edge + window:
        window *= 2.0
    return edge + window


def groups(ends: Sequence[End]) -> Iterator[Sequence[End]]:
    """Jobs that are taken to end at once."""
    begin = 0
    edge = first_edge(ends[0].time) if ends else 0.0
    while begin < len(ends):
        until = group_end(edge, ends[begin].time)
        stop = begin + 1
        while stop < len(ends) and ends[stop].time <= until:
            stop += 1
        yield ends[begin:stop]
        begin = stop
