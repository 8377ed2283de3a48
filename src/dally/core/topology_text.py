"""A topology as plain data, machines by name, and back: what a journal's header says of the cluster."""

from __future__ import annotations

from typing import Any

from dally.core.topology import Level, LinkKind, MachineSpec, Topology, build_topology, spec_of


def topology_to_plain(topology: Topology) -> dict[str, Any]:
    return {
        "name": topology.name,
        "levels": [_level(level) for level in topology.levels],
        "machine_level": topology.machine_level,
        "machines": [spec_to_plain(spec_of(machine, topology)) for machine in topology.machines],
    }


def topology_from_plain(plain: dict[str, Any]) -> Topology:
    levels = [_read_level(level) for level in plain["levels"]]
    specs = [spec_from_plain(machine) for machine in plain["machines"]]
    return build_topology(levels, specs, name=plain["name"], machine_level=plain["machine_level"])


def spec_to_plain(spec: MachineSpec) -> list[Any]:
    """[path, GPUs, GPU type, GPUs per island, own links, sets], the last three only as far as there are any."""
    found: list[Any] = ["/".join(spec.path) if all("/" not in name for name in spec.path) else list(spec.path),
                        spec.gpus, spec.gpu_type]  # fmt: skip
    if spec.islands or spec.links or spec.sets:
        found.append(list(spec.islands))
    if spec.links or spec.sets:
        found.append([_level(level) for level in spec.links])
    if spec.sets:
        found.append(list(spec.sets))
    return found


def spec_from_plain(plain: list[Any]) -> MachineSpec:
    path, gpus, gpu_type, *rest = plain
    names = tuple(path.split("/")) if isinstance(path, str) and path else tuple(path)
    islands = tuple(rest[0]) if rest else ()
    links = tuple(_read_level(level) for level in rest[1]) if len(rest) > 1 else ()
    return MachineSpec(names, gpus, gpu_type, islands, links, tuple(rest[2]) if len(rest) > 2 else ())


def _level(level: Level) -> list[Any]:
    return [level.name, level.kind.value, level.bandwidth, level.latency]


def _read_level(plain: list[Any]) -> Level:
    name, kind, bandwidth, latency = plain
    return Level(name, LinkKind(kind), bandwidth, latency)
