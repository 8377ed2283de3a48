"""From machines with their domains to the tree: ragged chains are padded, ports follow from the fabric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from dally.catalog.clusters.insides import Inside
from dally.catalog.machine import Fabric, FabricLevel
from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Level, MachineSpec, Path, Topology, build_topology

T = TypeVar("T")

# What the levels above the machine are called where nobody says; the outermost is always the cluster.
MOST_GPUS = 4096  # of one machine: a slip of the finger should not fill the memory
OUTER_NAMES = ("rack", "block", "zone")


@dataclass(frozen=True, slots=True)
class Planned:
    """A machine to be put into the tree: the names of its domains from the outermost inwards, and its own."""

    domains: Path
    name: str
    inside: Inside
    sets: tuple[str, ...] = ()  # that it belongs to: partitions, features


def assemble(name: str, planned: Sequence[Planned], fabric: Fabric) -> Topology:
    """Build the tree; every machine gets equally many domains, at least a rack."""
    if not planned:
        raise UserError(f"cluster {name!r} has no machines with GPUs")
    most = max(planned, key=lambda machine: machine.inside.gpus)
    if most.inside.gpus > MOST_GPUS:
        raise UserError(f"cluster {name!r}: machine {most.name} has {most.inside.gpus:,} GPUs; at most {MOST_GPUS:,} "
                        "can be in one machine")  # fmt: skip
    depth = max(1, *(len(machine.domains) for machine in planned))
    planned = [_padded(machine, depth) for machine in planned]
    _check_names(name, planned)
    machine_level = 1 if any(machine.inside.islands for machine in planned) else 0
    inner = _most_common((_inner_links(m.inside, machine_level), m.inside.gpus) for m in planned)
    levels = (*inner, *_outer_links(planned, depth, fabric))
    names = [level.name for level in levels]
    if len(set(names)) < len(names):
        raise UserError(f"fabric {fabric.name!r}: two levels have the same name in {', '.join(names)}")
    specs = []
    for machine in planned:
        inside = machine.inside
        links = _inner_links(inside, machine_level)
        islands = (inside.islands or (inside.gpus,)) if machine_level else ()
        own = () if links == inner else links
        specs.append(
            MachineSpec((*machine.domains, machine.name), inside.gpus, inside.gpu_type, islands, own, machine.sets)
        )
    return build_topology(levels, specs, name=name, machine_level=machine_level)


def _padded(machine: Planned, depth: int) -> Planned:
    """Unknown topology is never a shared domain: what lacks levels gets domains of its own there.

    A rack beside blocks of racks is a block of its own; a machine in no rack is a rack of its own.
    """
    missing = depth - len(machine.domains)
    if not missing:
        return machine
    innermost = machine.domains[-1] if machine.domains else machine.name
    return replace(machine, domains=machine.domains + (innermost,) * missing)


def _check_names(cluster: str, planned: Sequence[Planned]) -> None:
    seen = set()
    for machine in planned:
        path = (*machine.domains, machine.name)
        if path in seen:
            raise UserError(f"cluster {cluster!r}: machine {'/'.join(path)} is there twice")
        seen.add(path)


def _inner_links(inside: Inside, machine_level: int) -> tuple[Level, ...]:
    if len(inside.links) == machine_level + 1:
        return inside.links
    # No islands here, but elsewhere in the cluster: the whole machine is one island.
    (link,) = inside.links
    return (replace(link, name="island"), replace(link, bandwidth=link.bandwidth * inside.gpus))


def _outer_links(planned: Sequence[Planned], depth: int, fabric: Fabric) -> list[Level]:
    """The levels above the machine, from the rack to the cluster, each with the port of a unit attached to it.

    A level beyond those of the fabric repeats its outermost. Where units differ, in GPUs or NICs, a level has
    the port of the units that hold most of the GPUs: the tree has one figure per level.
    """
    links = []
    below: dict[Path, float] = {}  # ports of the level below, added up per unit of this one
    for index, level_name in enumerate(outer_names(depth, fabric)):
        level = fabric.levels[min(index, len(fabric.levels) - 1)]
        members: dict[Path, list[Planned]] = {}
        for machine in planned:
            unit = (*machine.domains, machine.name)[: depth + 1 - index]
            members.setdefault(unit, []).append(machine)
        if index == 0:
            below = {unit: m.inside.nics * m.inside.nic_bandwidth for unit, (m,) in members.items()}
        ports = {unit: _port(level, inside, below[unit], fabric) for unit, inside in members.items()}
        weights = ((ports[unit], sum(m.inside.gpus for m in inside)) for unit, inside in members.items())
        links.append(Level(level_name, level.kind, _most_common(weights), level.latency))
        below = {}
        for unit, port in ports.items():
            below[unit[:-1]] = below.get(unit[:-1], 0.0) + port
    return links


def _port(level: FabricLevel, inside: Sequence[Planned], below: float, fabric: Fabric) -> float:
    """Bytes per second of one unit's port; the same rules as `catalog.wiring`, for units that may differ."""
    if level.oversubscription is not None:
        port = below / level.oversubscription
    else:
        assert level.bandwidth is not None  # the catalog makes sure of one of the two
        if level.per == "gpu":
            port = level.bandwidth * sum(m.inside.gpus for m in inside)
        elif level.per == "nic":
            port = sum(min(level.bandwidth, m.inside.nic_bandwidth) * m.inside.nics for m in inside)
        elif level.per == "machine":
            port = level.bandwidth * len(inside)
        else:
            port = level.bandwidth
    if not port > 0:
        raise UserError(
            f"fabric {fabric.name!r} takes the bandwidth of level {level.name!r} from the machines' NICs, but"
            f" {inside[0].name} has none"
        )
    return port


def outer_names(depth: int, fabric: Fabric) -> tuple[str, ...]:
    """Names of the `depth` + 1 levels above the machine: the fabric's own where it has exactly as many."""
    if len(fabric.levels) == depth + 1:
        return tuple(level.name for level in fabric.levels)
    named = OUTER_NAMES[:depth]
    return (*named, *(f"level{i}" for i in range(len(named) + 1, depth + 1)), "cluster")


def _most_common(weighted: Iterable[tuple[T, int]]) -> T:
    """The value with the largest weight altogether; the first of equals."""
    weights: dict[T, int] = {}
    for value, weight in weighted:
        weights[value] = weights.get(value, 0) + weight
    return max(weights, key=weights.__getitem__)
