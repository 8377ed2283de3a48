"""The least a collective can cost a gang of which only counts are known: how many domains of each level it touches.

Every function here is `network.nccl`'s of the same name with each term at the smallest value the counts allow
(docs/lower-bound.md, "The shortest step"): the fullest domain has at least the average, the emptiest at most,
shared ports and slots are at least as slow as those of the best machines there are enough of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dally.core.topology import LinkKind
from dally.network.nccl import _ROUNDS, LAUNCH, Collective, Cost, candidates
from dally.network.room import Room, Span
from dally.network.shape import HOST_LINK, Kind, Wires

Phase = list[tuple[int, float]]
_RANGES: Final = 16  # of GPUs in one child of a gang's top, looked at one by one


@dataclass(frozen=True, slots=True)
class Few:
    """A gang of n held by a domain of level `top`, touching `spans[l]` domains of each level l below."""

    n: int
    top: int
    spans: tuple[Span, ...]
    fullest: tuple[Span, ...]  # GPUs of the gang in the fullest domain of each level below the top
    within: tuple[int, ...]  # domains of each level in one of the level below the top, at most
    slowness: tuple[float, ...]  # seconds per byte of the slowest port of each level, at least
    host: float  # the same of the slots of the emptiest machine; 0 inside one machine

    @classmethod
    def of(cls, n: int, room: Room, spans: Sequence[Span], wires: Wires, share: int = 1) -> Few:
        """`share`: of every machine only each so-manieth GPU is one of the n (rounded up)."""
        own, top = wires.machine_level, room.top
        machines = spans[own][0] if top > own else 1
        kinds = [(kind, -(-kind.gpus // share), count) for kind, count in room.kinds]

        def port(level: int) -> float:
            ports = tuple((1 / kind.links[level].bandwidth, gpus, count) for kind, gpus, count in kinds)
            return slowest_port(n, machines, ports)

        inner = [port(level) for level in range(own + 1)]
        host = 0.0
        if top > own:
            slots = tuple((slot_rate(kind, wires), gpus, count) for kind, gpus, count in kinds)
            host = 1 / _fullest_slots(n, machines, slots)
        fullest = []
        for level, (fewest, most) in enumerate(spans):
            # of a strided group nothing is known but the average
            least = room.fullest(level, n, most) if share == 1 else -(-n // most)
            fullest.append((least, max(least, min(n - fewest + 1, -(-room.largest(level) // share)))))
        within = [1] * top
        for level in range(top - 2, -1, -1):
            within[level] = room.inside[level][min(within[level + 1], len(room.inside[level]) - 1)]
        slowness = (*inner, *wires.slowness[own + 1 : top + 1])
        return cls(n, top, tuple(spans), tuple(fullest), tuple(within), slowness, host)

    def units(self, level: int) -> Span:
        """Units attached to a level, in all its domains: GPUs, islands or machines, racks …"""
        return (self.n, self.n) if level == 0 else self.spans[level - 1]

    def domains(self, level: int) -> Span:
        return self.spans[level] if level < self.top else (1, 1)

    def most(self, level: int) -> int:
        """Units of the domain with most of them: at least the average. One: perhaps nothing is joined here."""
        if level == 0 and self.top:
            return self.fullest[0][0]
        return -(-self.units(level)[0] // self.domains(level)[1])

    @property
    def joined(self) -> list[int]:
        """Levels at which something must be joined."""
        return [level for level in range(self.top + 1) if self.most(level) > 1]


def slot_rate(kind: Kind, wires: Wires) -> float:
    """Bytes per second that one GPU of a machine can put on the network."""
    return max(1 / (wires.slowness[wires.machine_level + 1] * kind.gpus), HOST_LINK)


@lru_cache(maxsize=4096)
def slowest_port(n: int, machines: int, kinds: tuple[tuple[float, int, int], ...]) -> float:
    """The slowest port of a gang on so many machines: enough machines have no slower one. (slowness, GPUs, count)"""
    found = room = 0
    slowest = 0.0
    for slowness, gpus, count in sorted(kinds):
        found, room, slowest = found + count, room + gpus * count, slowness
        if found >= machines and room >= n:
            break
    return slowest


@lru_cache(maxsize=4096)
def _fullest_slots(n: int, machines: int, kinds: tuple[tuple[float, int, int], ...]) -> float:
    """The most bytes per second the slots of a gang's emptiest machine can have. (rate of a slot, GPUs, count)"""
    best = 0.0
    for value in {slot * gpus for slot, most, _ in kinds for gpus in range(1, most + 1)}:
        # every machine needs enough GPUs to reach it, and there are only n
        needed = sorted((math.ceil(value / slot * (1 - 1e-12)), count) for slot, most, count in kinds
                        if slot * most >= value * (1 - 1e-12))  # fmt: skip
        left, spent = machines, 0
        for gpus, count in needed:
            taken = min(left, count)
            left, spent = left - taken, spent + taken * gpus
        if not left and spent <= n:
            best = max(best, value)
    return best or max(slot * most for slot, most, _ in kinds)


class Least:
    """The least costs of collectives over a gang; `crowd[l]`: so many groups share the ports of a level."""

    def __init__(self, gang: Few, wires: Wires, algorithm: str, crowd: Sequence[int] = ()) -> None:
        self.gang, self.wires, self.algorithm, self.crowd = gang, wires, algorithm, crowd
        self._costs: dict[Collective, tuple[Cost, ...]] = {}

    def costs(self, op: Collective) -> tuple[Cost, ...]:
        if op not in self._costs:
            self._costs[op] = tuple(self._cost(name, op) for name in candidates(op, self.algorithm))
        return self._costs[op]

    def _cost(self, name: str, op: Collective) -> Cost:
        latency, phases = _BY_NAME[name](self, op)
        crowd = (*self.crowd, *(1,) * (self.wires.host + 1 - len(self.crowd)))
        alone = sum(max((c * crowd[level] for level, c in phase), default=0.0) for phase in phases)
        return Cost(name, LAUNCH + latency, (), alone, (), ())

    # --- the algorithms, as in nccl.py: messages one after another, and bytes through ports -------------------

    def ring(self, op: Collective) -> tuple[float, list[Phase]]:
        gang, latency = self.gang, self.wires.latency
        around = gang.n * latency[0]
        for level in range(gang.top):
            step = latency[level + 1] - latency[level]  # a domain more moves a message from this level to the next
            around += gang.spans[level][0 if step >= 0 else 1] * step
        steps = around - min(latency[level] for level in (*gang.joined, gang.top))
        rounds = _ROUNDS.get(op, 1)
        factor = (gang.n - 1) / 2 if op == "all-to-all" else rounds * (gang.n - 1) / gang.n
        inner = [level for level in gang.joined if level <= self.wires.machine_level]
        phase = [(level, factor * gang.slowness[level]) for level in (*inner, *self._network)]
        return max(0.0, rounds * steps), [[*phase, *self._slots(factor)]]

    def hierarchical(self, op: Collective) -> tuple[float, list[Phase]]:
        gang, rounds = self.gang, _ROUNDS[op]
        waits, phases = 0.0, []
        for level in gang.joined:
            c = gang.most(level)
            waits += rounds * (c - 1) * self.wires.latency[level]
            phases.append(self._spread(level, rounds * (c - 1) / c))
        return waits, phases

    def _spread(self, level: int, factor: float) -> Phase:
        gang, own = self.gang, self.wires.machine_level
        if level <= own:
            return [(level, factor * gang.slowness[level])]

        def narrowest(q: int) -> int:
            """Units attached to level q in the unit of `level` that has fewest: at most the average."""
            return 1 if q == level else max(1, gang.units(q)[1] // gang.units(level)[0])

        phase = [(q, factor / narrowest(q) * gang.slowness[q]) for q in range(own + 1, level + 1)]
        return [*phase, *self._slots(factor / narrowest(own + 1))]

    def tree(self, op: Collective) -> tuple[float, list[Phase]]:
        gang, own = self.gang, self.wires.machine_level
        depth = 0.0
        for level in gang.joined:
            most = gang.most(level)
            chained = gang.top > own and level <= own
            depth += (most - 1 if chained else math.ceil(math.log2(most))) * self.wires.latency[level]

        def through(units: int) -> float:
            return 1.0 if units <= 2 else 2.0

        phase = [(level, through(gang.most(level)) * gang.slowness[level]) for level in gang.joined if level <= own]
        for level in self._network:
            phase.append((level, through(gang.units(level)[0]) * gang.slowness[level]))
        if self._network:
            phase += self._slots(through(gang.units(own + 1)[0]))
        return 2 * depth, [phase]

    def direct(self, op: Collective) -> tuple[float, list[Phase]]:
        """Everything at once, so the phase is as slow as its slowest level. The fullest child of the top may hold
        anything between two ends, but what is inside it has to hold as much: the cheapest of some ranges is taken."""
        if not self.gang.top:
            return self._direct_within(op, (self.gang.n, self.gang.n))
        low, high = self.gang.fullest[-1]
        step = -(-(high - low + 1) // (_RANGES if self.gang.top > 1 else 1))
        ranges = [(begin, min(begin + step - 1, high)) for begin in range(low, high + 1, step)]
        found = [self._direct_within(op, span) for span in ranges]
        crowd = (*self.crowd, *(1,) * (self.wires.host + 1 - len(self.crowd)))
        return min(found, key=lambda cost: max((c * crowd[level] for level, c in cost[1][0]), default=0.0))

    def _direct_within(self, op: Collective, child: Span) -> tuple[float, list[Phase]]:
        """With so many GPUs in the fullest child of the top."""
        gang, own = self.gang, self.wires.machine_level
        rounds, n = _ROUNDS.get(op, 1), gang.n
        wait, phase = 0.0, []
        for level in range(gang.top + 1):
            if level not in gang.joined and level <= own:
                continue
            out = self._direct_bytes(level, child) * rounds / n
            latency = self.wires.latency[level]
            if self.wires.levels[level].kind is LinkKind.RING:
                c = gang.most(level)
                out *= max(1.0, c * c / 8 / max(1, c - 1))
                latency *= max(1, c // 2)
            wait = max(wait, latency)
            phase.append((level, out * gang.slowness[level]))
            if level == own + 1:
                phase += self._slots(out)
        return rounds * wait, [phase]

    def _direct_bytes(self, level: int, child: Span) -> int:
        """Messages out of the busiest unit: no fewer than the k(n − k) of the fullest, and that is smallest
        for the smallest k or the largest: the function is concave."""
        gang, own = self.gang, self.wires.machine_level
        if level == 0:
            inside = -(-child[0] // gang.within[0]) if gang.top > 1 else gang.most(0)
            return max(gang.most(0), inside) - 1
        if level <= own and gang.domains(own)[1] > 1:
            return 1  # islands of several machines: somewhere two of them talk
        smallest, largest = gang.fullest[level - 1]
        if level == gang.top:
            smallest, largest = child
        else:
            smallest = max(smallest, -(-child[0] // gang.within[level - 1]))
            largest = max(smallest, largest)
        return min(smallest * (gang.n - smallest), largest * (gang.n - largest))

    def halving_doubling(self, op: Collective) -> tuple[float, list[Phase]]:
        """Only that every step sends its part over some link: who meets where depends on the order of the GPUs."""
        gang, rounds = self.gang, _ROUNDS[op]
        links = range(gang.top + 1)
        core = gang.n.bit_length() - 1
        folded = 0 if gang.n == 1 << core else 1
        wait = min(self.wires.latency[level] for level in links)
        fastest = min(gang.slowness[level] for level in links)
        sent = folded + sum(0.5**i for i in range(1, core + 1))
        return rounds * (core + folded) * wait, [[(self.wires.host, rounds * sent * fastest)]]

    def parameter_server(self, op: Collective) -> tuple[float, list[Phase]]:
        """Over d units of a level the average load is 2 (n − Σ k·s/M) / d, and Σ k·s/M is at most n − d + 1."""
        gang = self.gang
        phase = [(0, 2.0 * gang.slowness[0])]
        for level in self._network:
            fewest = gang.units(level)[0]
            load = 2 * (fewest - 1) / fewest
            phase.append((level, load * gang.slowness[level]))
            if level == self.wires.machine_level + 1:
                phase += self._slots(load)
        return 2 * self.wires.latency[gang.top], [phase]

    @property
    def _network(self) -> range:
        return range(self.wires.machine_level + 1, self.gang.top + 1)

    def _slots(self, factor: float) -> Phase:
        return [(self.wires.host, factor * self.gang.host)] if self._network else []


_BY_NAME: Final[dict[str, Callable[[Least, Collective], tuple[float, list[Phase]]]]] = {
    "ring": Least.ring,
    "tree": Least.tree,
    "hierarchical": Least.hierarchical,
    "direct": Least.direct,
    "halving-doubling": Least.halving_doubling,
    "parameter-server": Least.parameter_server,
}
