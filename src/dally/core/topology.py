"""The cluster as a tree: GPUs in islands, machines, racks, blocks …, with a link description per level.

Machines are numbered so that every domain (rack, block, …) is a contiguous range of them, and a GPU is a bit
in its machine's mask. A domain is identified by its whole path: rack names repeat between blocks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from enum import Enum

from dally.core.errors import UserError
from dally.core.records import dataclass


class LinkKind(Enum):
    """How the units of one level are wired together."""

    RING = "ring"
    FULLY_CONNECTED = "fully-connected"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Level:
    """What joins the units inside a domain of this level: GPUs in a machine, machines in a rack, …

    `bandwidth` is bytes per second of the port of each unit attached here (a GPU's NVLink port, a machine's
    NICs together, a rack's uplinks together); `latency` is seconds per hop.
    """

    name: str
    kind: LinkKind = LinkKind.SWITCH
    bandwidth: float = 100e9
    latency: float = 1e-6

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise UserError(f"level {self.name!r}: bandwidth must be positive")
        if not self.latency >= 0:
            raise UserError(f"level {self.name!r}: latency must not be negative")


Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """One machine to be put in the tree: its whole path from the outermost domain to its own name."""

    path: Path
    gpus: int
    gpu_type: str = "gpu"
    islands: tuple[int, ...] = ()  # GPUs per island, where the machine has levels inside it
    links: tuple[Level, ...] = ()  # its own inner links, where they differ from the cluster's
    sets: tuple[str, ...] = ()  # that it belongs to: partitions, features


@dataclass(frozen=True, slots=True)
class Machine:
    index: int
    path: Path
    gpus: int
    gpu_type: str
    first_gpu: int  # number of its first GPU in the cluster
    domains: tuple[int, ...]  # index of the domain that holds it, per level from the machine's own upwards
    islands: tuple[int, ...]  # masks of the islands inside
    links: tuple[Level, ...]  # links of the levels inside and up to the machine
    sets: tuple[str, ...] = ()  # that it belongs to, and a job may have to be on (`Job.among`)

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def full_mask(self) -> int:
        return (1 << self.gpus) - 1


@dataclass(frozen=True, slots=True)
class Domain:
    """A unit of one level: the machines `start` … `stop − 1` (an island: part of one machine, by `mask`)."""

    index: int
    level: int
    path: Path
    start: int
    stop: int
    gpus: int
    mask: int = -1  # GPUs of the machine that belong to it; −1: all

    @property
    def name(self) -> str:
        return "/".join(self.path) or "cluster"

    @property
    def machines(self) -> range:
        return range(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Topology:
    """An immutable tree. `levels[0]` is the innermost; the last level is the whole cluster."""

    levels: tuple[Level, ...]
    machine_level: int
    machines: tuple[Machine, ...]
    domains: tuple[tuple[Domain, ...], ...]  # per level
    gpu_types: tuple[str, ...]  # in order of appearance
    name: str = "cluster"
    machine_by_name: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    machine_names: tuple[str, ...] = field(default=(), compare=False, repr=False)
    sets: dict[str, int] = field(default_factory=dict, compare=False, repr=False)  # name → machines as a bit set
    _among: dict[str, int] = field(default_factory=dict, compare=False, repr=False)  # what was asked for
    _most: dict[tuple[str | None, str | None], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def gpus(self) -> int:
        return sum(machine.gpus for machine in self.machines)

    def capacity(self, gpu_type: str | None, within: str | None = None, without: Container[int] = ()) -> int:
        """GPUs of one type; for None, of the type there is most of, since a gang never mixes types. `within`: in the
        one domain of this level that has most of them. `without`: machines that do not count."""
        if without:
            return self._counted(gpu_type, within, without)
        key = gpu_type, within
        found = self._most.get(key)
        if found is None:  # a million jobs ask the same, of thousands of machines
            found = self._most[key] = self._counted(gpu_type, within, ())
        return found

    def _counted(self, gpu_type: str | None, within: str | None, without: Container[int]) -> int:
        if within is not None:
            return self._capacity_within(gpu_type, self.level_index(within), without)
        counts = dict.fromkeys(self.gpu_types, 0)
        for machine in self.machines:
            if machine.index not in without:
                counts[machine.gpu_type] += machine.gpus
        if gpu_type is None:
            return max(counts.values())
        return counts.get(gpu_type, 0)

    def _capacity_within(self, gpu_type: str | None, level: int, without: Container[int]) -> int:
        most = 0
        for domain in self.domains[level]:
            counts: dict[str, int] = {}
            for index in domain.machines:
                if index in without:
                    continue
                machine = self.machines[index]
                gpus = (machine.full_mask & domain.mask).bit_count()
                counts[machine.gpu_type] = counts.get(machine.gpu_type, 0) + gpus
            most = max(most, max(counts.values(), default=0) if gpu_type is None else counts.get(gpu_type, 0))
        return most

    def level_index(self, name: str) -> int:
        for index, level in enumerate(self.levels):
            if level.name == name:
                return index
        known = ", ".join(level.name for level in self.levels)
        raise UserError(f"cluster {self.name!r} has no level {name!r}; its levels are {known}")

    def among(self, text: str) -> int:
        """Machines by the names of their sets, as a bit set: `a|b` are those of either, `a&b` those of both; a name
        may also be a machine's own. Nobody is in a set that is not known."""
        found = self._among.get(text)
        if found is None:
            found = 0
            for either in text.split("|"):
                both = -1
                for name in either.split("&"):
                    own = self.machine_by_name.get(name.strip())
                    both &= self.sets.get(name.strip(), 0 if own is None else 1 << own)
                found |= both
            self._among[text] = found
        return found

    def domain_of(self, machine: int, level: int) -> Domain:
        """The domain of a level at or above the machine's that holds the machine."""
        return self.domains[level][self.machines[machine].domains[level - self.machine_level]]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines)


def build_topology(levels: Sequence[Level], specs: Iterable[MachineSpec], *, name: str = "cluster",
                   machine_level: int | None = None) -> Topology:  # fmt: skip
    """Put machines into a tree.

    `levels` go from the innermost to the whole cluster. A machine's path has one name per level from the
    one below the cluster down to the machine, so `len(path) == len(levels) - 1 - machine_level`.
    """
    levels = tuple(levels)
    specs = list(specs)
    if not specs:
        raise UserError(f"cluster {name!r} has no machines")
    depth = len(specs[0].path)
    own = len(levels) - 1 - depth if machine_level is None else machine_level
    if own < 0 or len(levels) - 1 - own != depth:
        raise UserError(f"cluster {name!r}: {len(levels)} levels do not fit paths of {depth} names")
    seen: set[Path] = set()
    for spec in specs:
        if len(spec.path) != depth:
            raise UserError(f"cluster {name!r}: {'/'.join(spec.path)} is not as deep as the other machines")
        if spec.path in seen:
            raise UserError(f"cluster {name!r}: machine {'/'.join(spec.path)} is there twice")
        if spec.gpus < 1:
            raise UserError(f"cluster {name!r}: machine {'/'.join(spec.path)} has no GPUs")
        seen.add(spec.path)
    specs = _grouped(specs, depth)

    domains: list[list[Domain]] = [[] for _ in levels]
    chains: list[list[int]] = [[] for _ in specs]
    for level in range(own, len(levels)):
        names = len(levels) - 1 - level  # how many names a domain of this level has
        start = 0
        while start < len(specs):
            path = specs[start].path[:names]
            stop = start
            while stop < len(specs) and specs[stop].path[:names] == path:
                chains[stop].append(len(domains[level]))
                stop += 1
            gpus = sum(spec.gpus for spec in specs[start:stop])
            domains[level].append(Domain(len(domains[level]), level, path, start, stop, gpus))
            start = stop
    machines: list[Machine] = []
    first = 0
    for index, spec in enumerate(specs):
        masks = _island_masks(spec, own, name)
        for number, mask in enumerate(masks):
            path = (*spec.path, f"island{number}")
            domains[0].append(Domain(len(domains[0]), 0, path, index, index + 1, mask.bit_count(), mask))
        links = spec.links or levels[: own + 1]
        machines.append(
            Machine(index, spec.path, spec.gpus, spec.gpu_type, first, tuple(chains[index]), masks, links, spec.sets)
        )
        first += spec.gpus
    types = tuple(dict.fromkeys(spec.gpu_type for spec in specs))
    by_name = _names(machines)
    sets: dict[str, int] = {}
    for machine in machines:
        for each in machine.sets:
            sets[each] = sets.get(each, 0) | 1 << machine.index
    return Topology(levels, own, tuple(machines), tuple(tuple(d) for d in domains), types, name, by_name,
                    tuple(machine.name for machine in machines), sets)  # fmt: skip


def changed(topology: Topology, added: Iterable[MachineSpec], removed: Iterable[str]) -> Topology:
    """The same cluster with machines more and machines (by whole name) less. Numbers change, names do not."""
    gone = set(removed)
    unknown = gone - set(topology.machine_names)
    if unknown:
        raise UserError(f"cluster {topology.name!r} has no machine {min(unknown)!r}")
    specs = [spec_of(machine, topology) for machine in topology.machines if machine.name not in gone]
    return build_topology(topology.levels, [*specs, *added], name=topology.name,
                          machine_level=topology.machine_level)  # fmt: skip


def spec_of(machine: Machine, topology: Topology) -> MachineSpec:
    """What a machine was made from."""
    islands = tuple(mask.bit_count() for mask in machine.islands)
    links = () if machine.links == topology.levels[: topology.machine_level + 1] else machine.links
    return MachineSpec(machine.path, machine.gpus, machine.gpu_type, islands, links, machine.sets)


def _grouped(specs: list[MachineSpec], depth: int) -> list[MachineSpec]:
    """Order machines so that every domain is contiguous, domains in order of first appearance."""
    rank: dict[Path, int] = {}
    for spec in specs:
        for names in range(1, depth + 1):
            rank.setdefault(spec.path[:names], len(rank))
    return sorted(specs, key=lambda s: tuple(rank[s.path[:names]] for names in range(1, depth + 1)))


def _island_masks(spec: MachineSpec, machine_level: int, name: str) -> tuple[int, ...]:
    if machine_level == 0:
        return ()
    sizes = spec.islands or (spec.gpus,)
    if machine_level > 1:
        raise UserError(f"cluster {name!r}: at most one level below the machine is supported")
    if sum(sizes) != spec.gpus or min(sizes) < 1:
        raise UserError(f"cluster {name!r}: islands of {'/'.join(spec.path)} do not add up to its GPUs")
    masks, shift = [], 0
    for size in sizes:
        masks.append(((1 << size) - 1) << shift)
        shift += size
    return tuple(masks)


def _names(machines: Sequence[Machine]) -> dict[str, int]:
    """Machines by whole path, and by bare name where that is unambiguous."""
    bare: dict[str, list[int]] = {}
    for machine in machines:
        bare.setdefault(machine.path[-1] if machine.path else "cluster", []).append(machine.index)
    found = {name: indexes[0] for name, indexes in bare.items() if len(indexes) == 1}
    found.update({machine.name: machine.index for machine in machines})
    return found


def regular(counts: Sequence[int], levels: Sequence[Level], *, gpu_type: str = "gpu", name: str = "",
            islands: tuple[int, ...] = ()) -> Topology:  # fmt: skip
    """`(4, 8, 8)` → 4 racks of 8 machines of 8 GPUs, named `rack0/m0`, …"""
    *outer, gpus = counts
    if any(count < 1 for count in counts):
        raise UserError("a cluster needs at least one of everything: " + "x".join(map(str, counts)))
    paths: list[Path] = [()]
    machine_level = len(levels) - 1 - len(outer)
    for depth, count in enumerate(outer):
        level = levels[len(levels) - 2 - depth]
        stem = "m" if len(levels) - 2 - depth == machine_level else level.name
        paths = [(*path, f"{stem}{i}") for path in paths for i in range(count)]
    specs = [MachineSpec(path, gpus, gpu_type, islands) for path in paths]
    return build_topology(levels, specs, name=name or "x".join(map(str, counts)), machine_level=machine_level)
