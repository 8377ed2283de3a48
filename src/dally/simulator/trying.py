"""Placements worth trying on an empty cluster by somebody who looks for a job's best one.

The nearest GPUs are not always the fastest: a machine of PCIe cards may have a better network than bus, and 3 + 3 GPUs
may beat 4 + 2. So every level is tried, and even splits over some number of machines.
"""

from __future__ import annotations

from collections.abc import Iterator

from dally.core.free import FreeGpus, Pool
from dally.core.placement import Placement, Slice
from dally.core.plan import Demand
from dally.core.topology import Machine, Topology
from dally.network.spread import even_mask
from dally.policies.placing import place_spread, place_within


def candidates(free: FreeGpus, pool: Pool, gpus: int) -> Iterator[Placement]:
    """Placements worth trying on an empty pool, the nearest first."""
    for level in range(len(free.topology.levels)):
        placement = place_within(free, pool, gpus, level, tight=False)
        if placement is not None:
            yield placement
    if gpus == 1:
        return
    spread = place_spread(free, Demand(gpus, pool.gpu_type))
    if spread is not None:
        yield spread
    machines = [m for m in free.topology.machines if m.gpu_type == pool.gpu_type]
    largest = max(machine.gpus for machine in machines)
    over = -(-gpus // largest)
    while over <= min(gpus, len(machines)):
        roomy = [machine for machine in machines if machine.gpus * over >= gpus]
        if len(roomy) >= over:
            yield from (_even(gpus, chosen) for chosen in _evenly_spread(roomy, over))
        over = over + 1 if over < 4 else over * 2


def _evenly_spread(machines: list[Machine], over: int) -> Iterator[list[Machine]]:
    """So many machines as they come, and as many of each of two or more racks, blocks, …, where that comes out even."""
    yield machines[:over]
    for outer in range(1, len(machines[0].domains)):
        inside: dict[int, list[Machine]] = {}
        for machine in machines:
            inside.setdefault(machine.domains[outer], []).append(machine)
        for parts in range(2, min(over, len(inside)) + 1):
            roomy = [members for members in inside.values() if len(members) * parts >= over]
            if over % parts == 0 and len(roomy) >= parts:
                yield [machine for members in roomy[:parts] for machine in members[: over // parts]]


def _even(gpus: int, machines: list[Machine]) -> Placement:
    """As even as can be over these machines, and over the islands inside each."""
    each, more = divmod(gpus, len(machines))
    slices: list[Slice] = []
    for index, machine in enumerate(machines):
        wanted = each + (1 if index < more else 0)
        slices.append((machine.index, even_mask(machine.islands or (machine.full_mask,), wanted)))
    return Placement.of(slices)


def neighbours(topology: Topology, placement: Placement) -> Iterator[Placement]:
    """Placements that differ from this one in what one machine has: moved to another, or a part of it."""
    counts = {machine: mask.bit_count() for machine, mask in placement.slices}
    kind = topology.machines[placement.slices[0][0]].gpu_type
    machines = [machine for machine in topology.machines if machine.gpu_type == kind]
    for giver, held in counts.items():
        for taker in machines:
            if taker.index == giver:
                continue
            room = taker.gpus - counts.get(taker.index, 0)
            for moved in sorted({1, held // 2, held}):
                if 0 < moved <= room:
                    changed = counts | {giver: held - moved, taker.index: counts.get(taker.index, 0) + moved}
                    yield Placement.of(
                        (m, even_mask(topology.machines[m].islands or (topology.machines[m].full_mask,), count))
                        for m, count in changed.items() if count)  # fmt: skip
