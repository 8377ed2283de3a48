"""Collectives over arbitrary placements, and the choice among them that NCCL would make.

Every algorithm here has, for a group of GPUs, a time that is a line in its bytes m:

    T(m) = α + m · Σ_phases max_level (c_level · x_level)

α is the latency of its messages one after another. A phase moves data through ports of several levels at once
(a ring passes through GPUs, NICs and uplinks together) and is as slow as the slowest of them; x_level ≥ 1 says
how many times slower a port is because neighbours use it. Bandwidth terms follow Thakur, Rabenseifner and
Gropp (IJHPCA 2005) and, for the double binary tree, Sanders, Speck and Träff (Parallel Computing 2009).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dally.core.errors import UserError
from dally.core.topology import LinkKind
from dally.network.group import Group
from dally.network.shape import Shape, Wires

Collective = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast"]
Phase = tuple[tuple[int, float], ...]  # (level, seconds per byte); the index after the last level is the host's
Rate = tuple[Phase, ...]

# The gap a collective's kernel leaves before its first message: as any kernel launch (see catalog.timing).
LAUNCH = 5e-6

COLLECTIVES: tuple[Collective, ...] = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast")


@dataclass(frozen=True, slots=True)
class Cost:
    """One algorithm of one collective over one group; all per byte of the collective's size.

    Size: what an all-reduce or a broadcast carries, the whole result of an all-gather, the whole input of a
    reduce-scatter, and what each GPU brings to an all-to-all.
    """

    algorithm: str
    latency: float  # α
    rate: Rate
    alone: float  # seconds per byte without neighbours
    ports: tuple[float, ...]  # bytes through the busiest port of each level, per byte
    traffic: tuple[float, ...]  # bytes sent by all GPUs together, by the level at which sender and receiver meet

    def seconds(self, size: float, slower: Sequence[float] | None = None) -> float:
        """Time of a collective of `size` bytes; `slower`: x per level."""
        per_byte = self.alone if slower is None else rate_at(self.rate, slower)
        return self.latency + size * per_byte


def rate_at(rate: Rate, slower: Sequence[float]) -> float:
    """Seconds per byte where ports of level l are `slower[l]` times slower than alone."""
    last = len(slower)
    return sum(max(c * slower[level] if level < last else c for level, c in phase) for phase in rate)


def _cost(name: str, group: Group, latency: float, phases: Sequence[Phase], traffic: Sequence[float]) -> Cost:
    merged: list[Phase] = []
    single: dict[int, float] = {}  # phases on one level each only add up
    for phase in phases:
        if len(phase) == 1:
            level, c = phase[0]
            single[level] = single.get(level, 0.0) + c
        elif phase:
            merged.append(phase)
    rate = (*(((level, c),) for level, c in sorted(single.items())), *merged)
    levels = len(group.wires.levels)
    ports = [0.0] * levels
    for phase in rate:
        for level, c in phase:
            if level < levels:
                ports[level] += c / group.slowness[level]
    alone = sum(max(c for _, c in phase) for phase in rate)
    padded = (*traffic, *(0.0,) * (levels - len(traffic)))
    return Cost(name, LAUNCH + latency, rate, alone, tuple(ports), padded)


_ROUNDS: dict[str, int] = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}


def ring(group: Group, op: Collective) -> Cost:
    """One ring in the order of the topology: it leaves and enters every domain exactly once.

    All-reduce: 2(n−1) messages of m/n each; every port on the way carries 2(n−1)/n · m.
    """
    n, latency = group.n, group.wires.latency
    edges = list(group.joins)
    edges[group.top] += 1  # and back to the beginning
    around = sum(count * latency[level] for level, count in enumerate(edges))
    shortest = min(latency[level] for level, count in enumerate(edges) if count)
    if op == "broadcast":
        factor, steps = 1.0, around - shortest
        traffic = [float(count) for count in group.joins]
    elif op == "all-to-all":  # every message is handed on for half of the ring on average
        factor, steps = (n - 1) / 2, around - shortest
        traffic = [count * factor for count in edges]
    else:
        rounds = _ROUNDS[op]
        factor, steps = rounds * (n - 1) / n, rounds * (around - shortest)
        traffic = [count * factor for count in edges]
    inner = [level for level in group.active if level <= group.wires.machine_level]
    return _cost("ring", group, steps, [_ports(group, [*inner, *group.network], factor)], traffic)


def _ports(group: Group, levels: Sequence[int], factor: float) -> Phase:
    """The same bytes through one port of every level, and through the slots of a machine."""
    phase = [(level, factor * group.slowness[level]) for level in levels]
    if group.network:
        phase.append((group.wires.host, factor * group.host))
    return tuple(phase)


def ordered_ring(group: Group, order: Sequence[int], op: Collective) -> Cost:
    """A ring in a given order of GPU positions: one that crosses a rack twice uses its uplink twice."""
    if op not in _ROUNDS:
        raise UserError(f"a ring in a given order is timed for {', '.join(_ROUNDS)}, not for {op}")
    if sorted(order) != list(range(group.n)):
        raise UserError(f"a ring over {group.n} GPUs needs each of 0 … {group.n - 1} once")
    n, own = group.n, group.wires.machine_level
    rounds = _ROUNDS[op]
    factor = rounds * (n - 1) / n
    edges = list(zip(order, [*order[1:], order[0]], strict=True))
    meets = [_meeting_level(group, a, b) for a, b in edges]
    phase = []
    if any(level == 0 for level in meets):
        phase.append((0, factor * group.slowness[0]))
    for level in range(1, group.top + 1):
        crossings = 0
        for start, stop in group.spans[level - 1]:
            leaving = sum(
                start <= a < stop and not start <= b < stop and (level > own or meets[i] <= own)
                for i, (a, b) in enumerate(edges)
            )
            crossings = max(crossings, leaving)
        if crossings:
            phase.append((level, crossings * factor * group.slowness[level]))
            if level == own + 1:
                phase.append((group.wires.host, crossings * factor * group.host))
    waits = [group.wires.latency[level] for level in meets]
    traffic = [meets.count(level) * factor for level in range(group.top + 1)]
    return _cost("ring", group, rounds * (sum(waits) - min(waits)), [tuple(phase)], traffic)


def _meeting_level(group: Group, a: int, b: int) -> int:
    for level, spans in enumerate(group.spans):
        if any(start <= a < stop and start <= b < stop for start, stop in spans):
            return level
    return group.top


def hierarchical(group: Group, op: Collective) -> Cost:
    """Reduce-scatter level by level on the way up, all-reduce at the top, all-gather back down, by rings.

    Each domain acts as one member that brings its GPUs' ports together, so uneven counts (3 + 5) work: where
    shards of two domains are cut differently the bytes through a port are still the same.
    """
    latency = 0.0
    phases: list[Phase] = []
    traffic = [0.0] * (group.top + 1)
    for level in group.active:
        rounds = 1 if op == "broadcast" else _ROUNDS[op]
        c = group.most[level]
        latency += rounds * (c - 1) * group.wires.latency[level]
        factor = float(rounds) if op == "broadcast" else rounds * (c - 1) / c
        phases.append(_spread(group, level, factor))
        traffic[level] += rounds * group.joins[level]
    return _cost("hierarchical", group, latency, phases, traffic)


def _spread(group: Group, level: int, factor: float) -> Phase:
    """Bytes through the port of each unit attached to a level, spread evenly over the ports inside that unit."""
    own = group.wires.machine_level
    if level <= own:
        return ((level, factor * group.slowness[level]),)
    phase = [
        (q, factor / (1 if q == level else group.narrowest[level][q]) * group.slowness[q])
        for q in range(own + 1, level + 1)
    ]
    machines = 1 if level == own + 1 else group.narrowest[level][own + 1]
    return (*phase, (group.wires.host, factor / machines * group.host))


def tree(group: Group, op: Collective) -> Cost:
    """NCCL's double binary tree over machines, a chain inside each; half of the data goes through either tree.

    A machine is a leaf of one tree and inside the other: reduce and broadcast move m through its port each way
    with two machines and 2m with more. The data is pipelined, so ports of all levels work at the same time.
    """
    own, latency, most = group.wires.machine_level, group.wires.latency, group.most
    rounds = 1 if op == "broadcast" else 2
    across = group.top > own
    depth = 0.0
    for level in group.active:
        steps = most[level] - 1 if across and level <= own else math.ceil(math.log2(most[level]))
        depth += steps * latency[level]

    def bytes_through(units: int) -> float:
        return rounds / 2 if units <= 2 and rounds == 2 else float(rounds)

    phase = [(level, bytes_through(most[level]) * group.slowness[level]) for level in group.active if level <= own]
    for level in group.network:
        units = len(group.spans[level - 1])
        phase.append((level, bytes_through(units) * group.slowness[level]))
        if level == own + 1:
            phase.append((group.wires.host, bytes_through(units) * group.host))
    traffic = [float(rounds * count) for count in group.joins]
    return _cost("tree", group, rounds * depth, [tuple(phase)], traffic)


def direct(group: Group, op: Collective) -> Cost:
    """Everybody sends everybody else its part at once; a domain of k GPUs sends k(n − k)/n · m out."""
    rounds = 1 if op == "all-to-all" else _ROUNDS[op]
    n, own = group.n, group.wires.machine_level
    levels = group.wires.levels
    phase: list[tuple[int, float]] = []
    latency = 0.0
    pairs = [0] * (group.top + 1)
    inside = 0  # ordered pairs that meet below
    for level in range(group.top + 1):
        met = sum((stop - start) * (stop - start - 1) for start, stop in group.spans[level])
        pairs[level], inside = met - inside, met
        if not pairs[level] and level <= own:
            continue
        out = _direct_bytes(group, level) * rounds / n
        if levels[level].kind is LinkKind.RING:
            # Messages are handed on around a ring of c units: a link carries c²/8 of those between two units,
            # where a port sends c − 1.
            c = group.most[level]
            out *= max(1.0, c * c / 8 / max(1, c - 1))
            latency = max(latency, max(1, c // 2) * group.wires.latency[level])
        else:
            latency = max(latency, group.wires.latency[level])
        phase.append((level, out * group.slowness[level]))
        if level == own + 1:
            phase.append((group.wires.host, out * group.host))
    traffic = [rounds * count / n for count in pairs]
    return _cost("direct", group, rounds * latency, [tuple(phase)], traffic)


def _direct_bytes(group: Group, level: int) -> int:
    """Messages that leave the busiest unit attached to a level."""
    own, n = group.wires.machine_level, group.n
    if level == 0:
        return max(stop - start for start, stop in group.spans[0]) - 1
    spans = [stop - start for start, stop in group.spans[level - 1]]
    if level > own:
        return max(k * (n - k) for k in spans)
    ends = {}  # islands talk through this level to the rest of their own machine only
    for start, stop in group.spans[level]:
        ends.update(dict.fromkeys(range(start, stop), stop - start))
    return max((stop - start) * (ends[start] - (stop - start)) for start, stop in group.spans[level - 1])


def halving_doubling(group: Group, op: Collective) -> Cost:
    """Recursive halving (and doubling back), near partners first; numbers beyond a power of two fold in first.

    Step i exchanges m/2^i with the partner 2^(i−1) away in the order of the topology.
    """
    rounds = _ROUNDS[op]
    n = group.n
    core = 1 << (n.bit_length() - 1)
    latency = 0.0
    phases: list[Phase] = []
    traffic = [0.0] * (group.top + 1)
    steps = [(1.0, [(i, i - core) for i in range(core, n)])] if core < n else []
    steps += [(0.5**i, [(p, p ^ (1 << (i - 1))) for p in range(core)]) for i in range(1, core.bit_length())]
    for share, pairs in steps:
        phase, wait, met = _exchange(group, pairs)
        latency += rounds * wait
        phases.append(tuple((level, c * share * rounds) for level, c in phase))
        for level, count in enumerate(met):
            traffic[level] += rounds * share * count
    return _cost("halving-doubling", group, latency, phases, traffic)


def _exchange(group: Group, pairs: Sequence[tuple[int, int]]) -> tuple[Phase, float, list[int]]:
    """Messages of one byte at the same time: port loads, latency, and how many meet at each level."""
    own, top = group.wires.machine_level, group.top
    homes: list[list[int]] = []
    for level in range(top + 1):
        home = [0] * group.n
        for number, (start, stop) in enumerate(group.spans[level]):
            home[start:stop] = [number] * (stop - start)
        homes.append(home)
    met = [0] * (top + 1)
    loads: list[dict[int, int]] = [{} for _ in range(top + 1)]
    wait = 0.0
    for a, b in pairs:
        level = next(q for q in range(top + 1) if homes[q][a] == homes[q][b])
        met[level] += 1
        hops = 1
        if group.wires.levels[level].kind is LinkKind.RING and level > 0:
            c = group.most[level]
            distance = abs(homes[level - 1][a] - homes[level - 1][b]) % c
            hops = max(1, min(distance, c - distance))
        wait = max(wait, hops * group.wires.latency[level])
        for q in range(own + 1, level + 1) if level > own else (level,):
            unit = a if q == 0 else homes[q - 1][a]
            # A message that is handed on around a ring loads as many links.
            loads[q][unit] = loads[q].get(unit, 0) + (hops if q == level else 1)
    phase = [(q, max(load.values()) * group.slowness[q]) for q, load in enumerate(loads) if load]
    if group.network and len(loads) > own + 1 and loads[own + 1]:
        phase.append((group.wires.host, max(loads[own + 1].values()) * group.host))
    return tuple(phase), wait, met


def parameter_server(group: Group, op: Collective) -> Cost:
    """One server per machine, each with an equal part of the model; every GPU pushes and pulls all of it.

    A machine of k among n GPUs on M machines sends k·m·(M−1)/M as worker and (n−k)·m/M as server.
    """
    if op != "all-reduce":
        raise UserError(f"parameter servers exchange gradients; they have no {op}")
    own, n = group.wires.machine_level, group.n
    level = min(own, group.top)
    machines = [(start, stop) for start, stop in group.spans[level]]
    count = len(machines)
    phase: list[tuple[int, float]] = [(0, 2.0 * group.slowness[0])]
    for q in group.network:
        # A unit's workers reach the servers of the others, and its servers the others' workers.
        load = 0.0
        for start, stop in group.spans[q - 1]:
            servers = sum(start <= a < stop for a, _ in machines)
            load = max(load, (stop - start) * (count - servers) / count + (n - stop + start) * servers / count)
        phase.append((q, load * group.slowness[q]))
        if q == own + 1:
            phase.append((group.wires.host, load * group.host))
    traffic = [0.0] * (group.top + 1)
    below = 0.0
    for q in range(level, group.top + 1):
        reach = 0.0
        for start, stop in group.spans[q]:
            reach += (stop - start) * sum(start <= a < stop for a, _ in machines) / count
        traffic[q], below = 2 * (reach - below), reach
    return _cost("parameter-server", group, 2 * group.wires.latency[group.top], [tuple(phase)], traffic)


_BY_NAME: dict[str, Callable[[Group, Collective], Cost]] = {
    "ring": ring,
    "tree": tree,
    "hierarchical": hierarchical,
    "direct": direct,
    "halving-doubling": halving_doubling,
    "parameter-server": parameter_server,
}
# What NCCL chooses among, and all that is known here; parameter servers are another way to train, not a choice.
_NCCL: dict[Collective, tuple[str, ...]] = {
    "all-reduce": ("ring", "tree", "hierarchical"),
    "reduce-scatter": ("ring", "hierarchical"),
    "all-gather": ("ring", "hierarchical"),
    "all-to-all": ("direct",),
    "broadcast": ("ring", "tree"),
}
_ANY: dict[Collective, tuple[str, ...]] = {
    "all-reduce": ("ring", "tree", "hierarchical", "direct", "halving-doubling"),
    "reduce-scatter": ("ring", "hierarchical", "direct", "halving-doubling"),
    "all-gather": ("ring", "hierarchical", "direct", "halving-doubling"),
    "all-to-all": ("direct", "ring"),
    "broadcast": ("ring", "tree", "hierarchical"),
}
ALGORITHMS = ("auto", "any", *_BY_NAME)


def candidates(op: Collective, algorithm: str) -> tuple[str, ...]:
    """`auto`: what NCCL has; `any`: all known; a name: that one, or NCCL's where it has no such collective."""
    if op not in COLLECTIVES:
        raise UserError(f"there is no collective {op!r}; there are: {', '.join(COLLECTIVES)}")
    if algorithm == "auto":
        return _NCCL[op]
    if algorithm == "any":
        return _ANY[op]
    if algorithm not in _BY_NAME:
        raise UserError(f"there is no collective algorithm {algorithm!r}; there are: {', '.join(ALGORITHMS)}")
    if algorithm in _ANY[op] or (algorithm == "parameter-server" and op == "all-reduce"):
        return (algorithm,)
    return _NCCL[op]


@lru_cache(maxsize=4096)
def costs(shape: Shape, wires: Wires, op: Collective, algorithm: str = "auto") -> tuple[Cost, ...]:
    """The candidates for a collective over a shape, in order of preference among equals."""
    names = candidates(op, algorithm)
    group = Group(shape, wires)
    if group.n < 2:
        none = (0.0,) * len(wires.levels)
        return (Cost("none", 0.0, (), 0.0, none, none),)
    return tuple(_BY_NAME[name](group, op) for name in names)


def choose(found: Sequence[Cost], size: float) -> Cost:
    """The fastest for this size, as NCCL's tuner would have it: it knows nothing of neighbours."""
    best = found[0]
    if len(found) > 1:
        least = best.latency + size * best.alone
        for cost in found[1:]:
            seconds = cost.latency + size * cost.alone
            if seconds < least:
                best, least = cost, seconds
    return best
