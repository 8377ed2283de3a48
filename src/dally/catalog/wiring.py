"""From presets to links: the levels a cluster of one machine type on one fabric has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dally.catalog.machine import Fabric, FabricLevel, Machine
from dally.core.errors import UserError
from dally.core.topology import Level


def wire(machine: Machine, fabric: Fabric, units: Sequence[int]) -> tuple[Level, ...]:
    """Links from the GPUs outwards; `units` counts machines per rack, racks per block, … as far as they go.

    The bandwidth of a level is that of the port of each unit attached to it: of a GPU inside a machine, of
    all the machine's NICs at the rack, of a rack's uplinks above. With an oversubscription of r the uplinks
    of a unit carry the sum of the ports below it divided by r.
    """
    if len(units) > len(fabric.levels):
        raise UserError(
            f"fabric {fabric.name!r} has {len(fabric.levels)} levels above the machine, {len(units)} are needed"
        )
    if any(count < 1 for count in units):
        raise UserError(f"fabric {fabric.name!r}: a level needs at least one unit")
    links = []
    inside = 1  # GPUs in each unit joined at this level
    for inner in machine.levels:
        # Presets state the bandwidth per GPU; the port of a group of GPUs is that of its members together.
        links.append(replace(inner.link, bandwidth=inner.link.bandwidth * inside))
        inside *= inner.units
    port = machine.network_bandwidth
    machines = 1  # machines in one unit of this level
    below = 1  # units of the level below that make up one unit of this one
    for level, count in zip(fabric.levels, units, strict=False):
        port = _port(level, machine, port * below, machines)
        links.append(Level(level.name, level.kind, port, level.latency))
        machines *= count
        below = count
    return tuple(links)


def _port(level: FabricLevel, machine: Machine, below: float, machines: int) -> float:
    if level.oversubscription is not None:
        return below / level.oversubscription
    assert level.bandwidth is not None  # the loader makes sure of one of the two
    if level.per == "gpu":
        return level.bandwidth * machine.gpus * machines
    if level.per == "nic":
        return min(level.bandwidth, machine.nic_bandwidth) * machine.nics * machines
    if level.per == "machine":
        return level.bandwidth * machines
    return level.bandwidth
