"""How short a step of the analytic model can be on a cluster: a search over counts of domains, best first.

A gang is described by how many domains of each level it touches. A step whose collectives cost the least these counts
allow (`network.least`) is no longer than any step of a placement with them. The search starts from all counts
there are and halves whatever promises the shortest step, until that is a single set of counts: no placement can be
faster. Where the search is cut short, the promise at that point holds as well.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from dally.network.least import Few, Least
from dally.network.nccl import LAUNCH, Collective, Cost, choose
from dally.network.parallel import _MANY_GROUPS, Layout
from dally.network.room import Room, Span
from dally.network.shape import Wires

_MOST_LOOKS: Final = 400
_MOST_SPREADS: Final = 4
_FREE = Cost("none", 0.0, (), 0.0, (), ())
ROUNDING: Final = 1e-12  # the same sums in another order; a floor must stay below

Promise = Callable[[Callable[[Layout], "LeastCosts"]], float]  # a step whose exchanges cost no more than this


class LeastCosts:
    """Implements `parallel.Exchanges` for a gang of which counts are known."""

    def __init__(self, n: int, room: Room, spans: Sequence[Span], wires: Wires, layout: Layout, algorithm: str) -> None:
        self.n, self.room, self.spans, self.wires = n, room, spans, wires
        self.layout, self.algorithm = layout, algorithm
        self._whole = Least(Few.of(n, room, spans, wires), wires, algorithm)
        self._copies: list[Least] | None = None

    def gang(self, op: Collective, size: float) -> Cost:
        return choose(self._whole.costs(op), size)

    def data(self, op: Collective, size: float) -> Cost:
        if self.layout.copy == 1:
            return self.gang(op, size)
        if self._copies is None:
            crowd = self._crowd(self.layout.copy)
            self._copies = [Least(group, self.wires, self.algorithm, crowd)
                            for group in self._groups(self.layout.data, self.layout.copy)]  # fmt: skip
        return _cheapest(self._copies, op, size)

    def tensor(self, size: float) -> Cost:
        """Groups are consecutive GPUs: with more machines than groups, and every group looked at, one is torn."""
        groups = self.n // self.layout.tensor
        torn = self._machines > groups and groups <= _MANY_GROUPS
        found = [Least(group, self.wires, self.algorithm) for group in self._groups(self.layout.tensor, 1)
                 if not torn or group.top > self.wires.machine_level]  # fmt: skip
        return _cheapest(found, "all-reduce", size)

    def hop(self) -> Cost:
        """Over the network where a machine is too small for a copy; else over the fastest link there is."""
        own, gang = self.wires.machine_level, self._whole.gang
        ways = []
        if self.room.top > own:
            crowd = self._crowd(self.layout.tensor)[own + 1]
            latency = min(self.wires.latency[own + 1 : self.room.top + 1])
            ways.append((latency, max(gang.slowness[own + 1] * crowd, gang.host)))
        if self.room.top == own or self.room.largest(own) >= self.layout.copy:
            ways.append((min(self.wires.latency[: own + 1]), min(gang.slowness[: own + 1])))
        return Cost("send", LAUNCH + min(a for a, _ in ways), (), min(b for _, b in ways), (), ())

    @property
    def _machines(self) -> int:
        own = self.wires.machine_level
        return self.spans[own][0] if self.room.top > own else 1

    def _crowd(self, groups: int) -> list[int]:
        """Groups on the ports of each level, at least: as many GPUs are in its fullest unit."""
        return [1, *(min(groups, fewest) for fewest, _ in self._whole.gang.fullest)]

    def _groups(self, size: int, stride: int) -> list[Few]:
        """What a group of every `stride`-th GPU of the gang may look like, one per level that may hold it."""
        own, found = self.wires.machine_level, []

        def needed(level: int) -> int:
            return -(-size // -(-self._whole.gang.fullest[level][1] // stride))

        for top in range(own, self.room.top + 1):
            if any(needed(level) > 1 for level in range(max(top, 1 if own else 0), self.room.top)):
                continue
            spans: list[Span] = []
            for level in range(top):
                least = 2 if level == top - 1 and top > own else 1
                spans.append((max(least, needed(level)), min(size, self.spans[level][1])))
            if all(low <= high for low, high in spans):
                found.append(Few.of(size, self.room.part(top), spans, self.wires, stride))
        return found


def _cheapest(groups: Sequence[Least], op: Collective, size: float) -> Cost:
    return min((choose(group.costs(op), size) for group in groups),
               key=lambda cost: cost.seconds(size), default=_FREE)  # fmt: skip


def search(
    rooms: Sequence[Room], n: int, wires: Wires, algorithm: str, promise: Promise
) -> tuple[float, list[tuple[int, ...]]]:
    """The shortest step over all counts, and the counts that promise it or little more, from the innermost level out.

    `promise` times a step with given exchanges and never falls as they rise.
    """
    order = count()
    heap: list[tuple[float, int, Room, tuple[Span, ...]]] = []

    def look(room: Room, spans: Sequence[Span] | None) -> None:
        if spans is not None:
            seconds = promise(lambda layout: LeastCosts(n, room, spans, wires, layout, algorithm))
            heapq.heappush(heap, (seconds, next(order), room, tuple(spans)))

    for room in rooms:
        look(room, room.spans(n, wires.machine_level))
    floor = math.inf
    spreads: list[tuple[int, ...]] = []
    while heap and len(spreads) < _MOST_SPREADS:
        seconds, looked, room, spans = heapq.heappop(heap)
        if looked > _MOST_LOOKS or all(low == high for low, high in spans):
            floor = min(floor, seconds)
            if looked > _MOST_LOOKS:
                break
            spreads.append((*(low for low, _ in spans), 1))
            continue
        at = max(range(len(spans)), key=lambda level: spans[level][1] / spans[level][0])
        low, high = spans[at]
        middle = min(high - 1, max(low, math.isqrt(low * high)))
        for half in ((low, middle), (middle + 1, high)):
            look(room, room.narrowed(n, [*spans[:at], half, *spans[at + 1 :]]))
    return floor * (1 - ROUNDING), spreads
