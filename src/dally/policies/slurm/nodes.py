"""Which nodes a job gets: topology/tree's choice of leaf switches, node weights, and cons_tres' choice inside them.

The rules are those of Slurm 22.05. Candidates are the nodes with enough GPUs free. Lighter nodes go before heavier
ones. Of the leaf switches, the one with the fewest candidates that are enough gives them all; where none has enough,
the one under the smallest switch that has, then its nearest neighbours. Inside a leaf, nodes are taken in their order,
not by how full they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dally.core.free import FreeGpus, bits, lowest_gpus
from dally.core.job import Job
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.topology import Topology
from dally.policies.slurm.asks import Ask, Shape
from dally.policies.slurm.room import Chosen, Room, RoomNow
from dally.policies.slurm.settings import Partition, Settings


class Reserved(NamedTuple):
    """An advance reservation on the clock of the trace."""

    name: str
    begin: float
    end: float
    nodes: int


_REMEMBERED: Final = 1000  # choices of nodes by what there was to choose from
BY_NODE: Final = frozenset({"order", "last", "pack", "spread"})  # ways of choosing that know no switches


def _by_node(how: str, room: Room, nodes: Iterable[int]) -> Iterable[int]:
    """The order of nodes decides between equals."""
    if how == "last":
        return reversed(list(nodes))
    if how == "pack":
        return sorted(nodes, key=lambda node: room.free_on(node))
    if how == "spread":
        return sorted(nodes, key=lambda node: -room.free_on(node))
    return nodes


class Nodes:
    """The cluster as Slurm sees it: look-up tables over one layout."""

    def __init__(self, topology: Topology, settings: Settings, *, any_nodes: bool) -> None:
        self.topology, self.settings, self.any_nodes = topology, settings, any_nodes
        self.all = (1 << len(topology.machines)) - 1
        self.leaf_level = min(topology.machine_level + 1, len(topology.levels) - 1)
        self.kinds: dict[str, int] = dict.fromkeys(topology.gpu_types, 0)
        for machine in topology.machines:
            self.kinds[machine.gpu_type] |= 1 << machine.index
        self._members = {level: [_range(d.start, d.stop) for d in topology.domains[level]]
                         for level in range(topology.machine_level, len(topology.levels))}  # fmt: skip
        self._above = [[topology.domain_of(members.bit_length() - 1, level).index
                        for level in range(self.leaf_level, len(topology.levels))]
                       for members in self._members[self.leaf_level]]  # fmt: skip
        self._of: dict[str, int] = {}
        self._asks: dict[str, dict[Demand, list[Ask]]] = {}  # by partition
        self.by_room = settings.topology in ("pack", "spread")  # how full nodes are decides, too
        self._by_weight: list[int] = _by_weight(self._named(settings.weights), len(topology.machines))
        # Where no node is lighter than others, one leaf switch is all that most jobs need.
        simple = settings.topology == "tree" and len(self._by_weight) == 1
        self._leaves = self._members[self.leaf_level] if simple else None
        self.reserved = [Reserved(each.name, each.begin - settings.origin, each.end - settings.origin,
                                  self._set(each.nodes)) for each in settings.accounts.reservations] \
            if settings.origin is not None else []  # fmt: skip

    # --- advance reservations ---------------------------------------------------------------------------------

    def unreserved(self, job: Job, start: float, limit: float) -> int:
        """Nodes that no advance reservation keeps from a job that would hold them for its whole limit: those of its
        own, once it has begun, and of nobody else's."""
        found = self.all
        for each in self.reserved:
            if each.name == job.reservation:
                found &= each.nodes if each.begin <= start < each.end else 0
            elif each.begin < start + limit and each.end > start:
                found &= ~each.nodes
        return found

    def next_change(self, after: float) -> float | None:
        """When the next of them begins or ends."""
        times = [time for each in self.reserved for time in (each.begin, each.end) if time > after]
        return min(times, default=None)

    # --- what is asked for ------------------------------------------------------------------------------------

    def of(self, partition: Partition) -> int:
        """Its nodes, as a bit set."""
        found = self._of.get(partition.name)
        if found is None:
            unsaid = partition.nodes is None and partition.name in self.topology.sets
            found = self.topology.among(partition.name) if unsaid else self._set(partition.nodes)
            self._of[partition.name] = found
        return found

    def _set(self, names: tuple[str, ...] | None) -> int:
        """Nodes by name; None: all."""
        if names is None:
            return self.all
        found = 0
        for machine in self._named(dict.fromkeys(names, 1)):
            found |= 1 << machine
        return found

    def _named(self, names: Mapping[str, int]) -> dict[int, int]:
        """By number; a node of several GPU types is several machines, named NODE:TYPE."""
        found = {}
        for machine in self.topology.machines:
            own = machine.path[-1] if machine.path else ""
            value = names.get(own, names.get(own.partition(":")[0]))
            if value is not None:
                found[machine.index] = value
        return found

    def asks(self, demand: Demand, partition: Partition) -> list[Ask]:
        """By GPU type: as many nodes as it says; else the fewest that can hold it with the same number of GPUs on each,
        where there are such nodes; otherwise any. Types that cannot hold it in this partition are left out."""
        known = self._asks.get(partition.name)
        if known is None:
            known = self._asks[partition.name] = {}
        found = known.get(demand)
        if found is None:
            among = self.all if demand.among is None else self.topology.among(demand.among)
            found = known[demand] = []
            for kind in (demand.gpu_type,) if demand.gpu_type is not None else self.topology.gpu_types:
                where = self.kinds.get(kind, 0) & self.of(partition) & among
                shape = self._shape(demand, where)
                if shape is not None:
                    found.append(Ask(shape, where))
        return found

    def _shape(self, demand: Demand, where: int) -> Shape | None:
        sizes = [self.topology.machines[m].gpus for m in bits(where)]
        most, wanted = max(sizes, default=0), demand.gpus
        if sum(sizes) < wanted:
            return None
        if demand.nodes is not None:
            each = wanted // demand.nodes
            enough = any(sum(self.topology.machines[m].gpus >= each for m in bits(where & domain)) >= demand.nodes
                         for domain in self._domains(demand))  # fmt: skip
            return Shape(demand.nodes, each) if enough else None
        if wanted <= most:
            return Shape(1, wanted)
        nodes = -(-wanted // most)
        if self.any_nodes or wanted % nodes:
            return Shape(0, wanted)
        each = wanted // nodes
        for domain in self._domains(demand):
            if sum(self.topology.machines[m].gpus >= each for m in bits(where & domain)) >= nodes:
                return Shape(nodes, each)
        return Shape(0, wanted)

    def _domains(self, demand: Demand) -> list[int]:
        """Bit sets one of which must hold all of the gang."""
        if demand.within is None:
            return [self.all]
        level = max(self.topology.level_index(demand.within), self.topology.machine_level)
        return self._members[level]

    # --- where it goes ----------------------------------------------------------------------------------------

    def find(self, room: Room, demand: Demand, partition: Partition, allowed: int, near: str | None) -> Chosen | None:
        """Nodes for the gang among those `allowed`; `near`: not if they are spread over several domains of this level,
        the leaf switch at the least."""
        where = demand.where
        for ask in self.asks(demand, partition):
            open_to = room.at_least(ask.least.gpus) & ask.where & allowed
            if where is None:
                chosen = self._choose(room, ask, open_to)
                if chosen is not None and (near is None or self._together(chosen, near)):
                    return chosen
                continue
            if demand.within is not None and self.in_island(demand):
                open_to = self._with_island(room, demand.gpus, open_to)
            for domain in sorted(self._domains(demand), key=lambda d: (open_to & d).bit_count()):
                chosen = self._choose(room, ask, open_to & domain)
                if chosen is not None and (near is None or self._together(chosen, near)):
                    return chosen
        return None

    def holds(self, room: Room, demand: Demand, partition: Partition, allowed: int) -> bool:
        """Whether there are nodes for it, however far from each other."""
        if demand.where is not None:
            return self.find(room, demand, partition, allowed, None) is not None
        for ask in self.asks(demand, partition):
            open_to = room.at_least(ask.least.gpus) & ask.where & allowed
            if open_to and (open_to.bit_count() >= ask.nodes if ask.nodes else _hold(room, open_to, ask.gpus)):
                return True
        return False

    def wanted(self, demand: Demand, partition: Partition, allowed: int) -> list[tuple[Shape, int]]:
        """What must be free before `find` can succeed: by GPU type, so many of these nodes with so many GPUs."""
        return [(ask.least, ask.where & allowed) for ask in self.asks(demand, partition)]

    def in_island(self, demand: Demand) -> bool:
        return demand.within is not None and self.topology.level_index(demand.within) < self.topology.machine_level

    def _with_island(self, room: Room, gpus: int, members: int) -> int:
        """Those with room in one island: now, or at all, since nobody knows which GPUs will be free later."""
        found = 0
        for machine in bits(members):
            mask = room.free.masks[machine] if isinstance(room, RoomNow) else -1
            if any((mask & island).bit_count() >= gpus for island in self.topology.machines[machine].islands):
                found |= 1 << machine
        return found

    def _choose(self, room: Room, ask: Ask, candidates: int) -> Chosen | None:
        if not ask.nodes:
            return self._choose_any(room, ask.gpus, candidates)
        known = ask.chosen.get(candidates)
        if known is not None:
            return known
        nodes, gpus = ask.nodes, ask.gpus
        if candidates.bit_count() < nodes:
            return None
        if self._leaves is not None and (leaf := self._tightest(candidates, nodes)):
            chosen = tuple([(machine, gpus) for machine in first_bits(leaf, nodes)])
        else:
            order = self._order(room, candidates, nodes, lambda some: some.bit_count() >= nodes)
            chosen = tuple([(machine, gpus) for machine, _ in zip(order, range(nodes), strict=False)])
        if not self.by_room:
            if len(ask.chosen) >= _REMEMBERED:
                ask.chosen.clear()
            ask.chosen[candidates] = chosen
        return chosen

    def _choose_any(self, room: Room, wanted: int, candidates: int) -> Chosen | None:
        """GPUs wherever they are."""
        if not _hold(room, candidates, wanted):
            return None
        chosen, left = [], wanted
        for machine in self._order(room, candidates, 1, lambda some: _hold(room, some, wanted)):
            gpus = min(left, room.free_on(machine))
            chosen.append((machine, gpus))
            left -= gpus
            if not left:
                break
        return tuple(chosen)

    def _tightest(self, candidates: int, nodes: int) -> int:
        """Those of the leaf switch with the fewest candidates that are enough, the first of equals; 0: none has."""
        found, fewest = 0, len(self.topology.machines) + 1
        assert self._leaves is not None
        for leaf in self._leaves:
            there = leaf & candidates
            if there:
                count = there.bit_count()
                if nodes <= count < fewest:
                    found, fewest = there, count
        return found

    def _order(self, room: Room, candidates: int, nodes: int, enough: Callable[[int], bool]) -> Iterator[int]:
        """The candidates one by one, as far as somebody asks."""
        lightest, first = 0, 0
        for group in self._by_weight:
            if group & candidates:
                first, lightest = lightest, lightest | group & candidates
                if enough(lightest):
                    break
        yield from bits(first)  # all of those that are lighter than the last group that is needed
        if self.settings.topology in BY_NODE:
            yield from _by_node(self.settings.topology, room, bits(lightest & ~first))
            return
        wanted = nodes - first.bit_count()
        leaves = self._members[self.leaf_level] if self.settings.topology == "tree" else _runs(lightest)
        rest = lightest & ~first
        far = [0] * len(leaves)
        for index, leaf in enumerate(leaves):
            if leaf & first:
                yield from bits(leaf & rest)
                wanted -= (leaf & rest).bit_count()
                rest &= ~leaf
                self._add_distance(far, index)
        counts = [(leaf & rest).bit_count() for leaf in leaves]
        under = _Counts(self, lightest)
        while (best := self._best(counts, under, far, wanted)) is not None:
            yield from bits(leaves[best] & rest)
            wanted -= counts[best]
            counts[best] = 0
            self._add_distance(far, best)

    def _best(self, counts: list[int], under: _Counts, far: list[int], wanted: int) -> int | None:
        best = None
        for index, count in enumerate(counts):
            if not count:
                continue
            if best is None:
                best = index
                continue
            tighter = self._compare(index, best, counts, under, wanted)
            if (far[index] < far[best] and tighter >= 0) or (far[index] == far[best] and tighter > 0):
                best = index
        return best

    def _compare(self, one: int, other: int, counts: list[int], under: _Counts, wanted: int) -> int:
        """Above 0 where the first leaf is the better one: the tighter of two that are enough; where none is, the one
        under the tighter switch that is, level by level; at last the larger."""
        mine, others = counts[one], counts[other]
        height = 0
        tree = self.settings.topology == "tree"
        while True:
            if mine >= wanted or others >= wanted:
                if mine >= wanted and others >= wanted:
                    if mine == others:
                        break
                    return 1 if mine < others else -1
                return 1 if mine >= wanted else -1
            height += 1
            if not tree or self._above[one][height] == self._above[other][height]:
                break
            mine, others = under.of(one, height), under.of(other, height)
        return (mine > others) - (mine < others)

    def _add_distance(self, far: list[int], used: int) -> None:
        """Leaves are as far from each other as the level of the lowest switch over both."""
        if self.settings.topology == "tree":
            for index, above in enumerate(self._above):
                height = 0
                while above[height] != self._above[used][height]:
                    height += 1
                far[index] += height

    def _together(self, chosen: Chosen, level: str) -> bool:
        index = max(self.topology.level_index(level), self.leaf_level)
        homes = {self.topology.domain_of(machine, index).index for machine, _ in chosen}
        return len(homes) == 1

    def place(self, free: FreeGpus, demand: Demand, chosen: Chosen) -> Placement:
        """Which GPUs of these nodes: the lowest there are, or of the first island that must and can hold them."""
        inside = self.in_island(demand)
        slices = []
        for machine, gpus in chosen:
            mask = free.masks[machine]
            if inside:
                mask = next(mask & island for island in self.topology.machines[machine].islands
                            if (mask & island).bit_count() >= gpus)  # fmt: skip
            slices.append((machine, lowest_gpus(mask, gpus)))
        return Placement.of(slices)


def _hold(room: Room, nodes: int, gpus: int) -> bool:
    """Whether these have so many GPUs free, all together."""
    return sum(room.free_on(machine) for machine in bits(nodes)) >= gpus


class _Counts:
    """Candidates under the switches above a leaf, counted when somebody asks."""

    def __init__(self, nodes: Nodes, candidates: int) -> None:
        self.nodes, self.candidates = nodes, candidates

    def of(self, leaf: int, height: int) -> int:
        domain = self.nodes._above[leaf][height]
        return (self.nodes._members[self.nodes.leaf_level + height][domain] & self.candidates).bit_count()


def _range(start: int, stop: int) -> int:
    return ((1 << (stop - start)) - 1) << start


def _runs(members: int) -> list[int]:
    """Stretches of neighbours: without topology, Slurm fills the tightest one that is enough."""
    runs: list[int] = []
    last = -2
    for machine in bits(members):
        if machine == last + 1:
            runs[-1] |= 1 << machine
        else:
            runs.append(1 << machine)
        last = machine
    return runs


def _by_weight(weights: Mapping[int, int], machines: int) -> list[int]:
    """Bit sets of machines of equal weight, the lightest first."""
    groups: dict[int, int] = {}
    for machine in range(machines):
        weight = weights.get(machine, 1)
        groups[weight] = groups.get(weight, 0) | 1 << machine
    return [groups[weight] for weight in sorted(groups)]


def counted(placement: Placement) -> Chosen:
    """Its GPUs by machine."""
    return tuple((machine, gpus_in(mask)) for machine, mask in placement.slices)


def first_bits(members: int, count: int) -> list[int]:
    """The lowest of a bit set."""
    found = []
    for _ in range(count):
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found


def nodes_of(chosen: Iterable[tuple[int, int]]) -> int:
    found = 0
    for machine, _ in chosen:
        found |= 1 << machine
    return found
