"""The shape of a gang and the machines it may be on: so many machines with as many GPUs on each, of a set of machines.

A job that says so (`Job.nodes`, `Job.among`) keeps to it wherever it runs, under every policy: the rules refuse a plan
that breaks it, and a job whose shape nothing here could hold is turned away.
"""

from __future__ import annotations

from collections.abc import Container

from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.topology import Domain, Topology


def broken(topology: Topology, demand: Demand, placement: Placement) -> str | None:
    """What is wrong with these GPUs for a gang that says on how many and on which machines it must be."""
    if demand.nodes is not None:
        held = {mask.bit_count() for _, mask in placement.slices}
        if len(placement.slices) != demand.nodes or len(held) != 1:
            each = placement.gpus // demand.nodes
            given = ", ".join(str(mask.bit_count()) for _, mask in placement.slices)
            machines = "one machine" if demand.nodes == 1 else f"{demand.nodes} machines, {each} GPUs on each,"
            return f"must be on {machines} and is given GPUs of {len(placement.slices)} ({given})"
    if demand.among is not None:
        allowed = topology.among(demand.among)
        for machine, _ in placement.slices:
            if not allowed >> machine & 1:
                return f"must be among {demand.among}, and machine {topology.machines[machine].name} is not of them"
    return None


def fits_empty(topology: Topology, demand: Demand, *, without: Container[int] = (), level: int | None = None) -> bool:
    """Whether the machines, those `without` apart, could hold the gang were they empty: inside one domain of the level
    it must be inside of, or of `level` where that is further in."""
    widest = len(topology.levels) - 1 if demand.within is None else topology.level_index(demand.within)
    kinds = (demand.gpu_type,) if demand.gpu_type is not None else topology.gpu_types
    domains = topology.domains[widest if level is None else min(level, widest)]
    return any(_holds(topology, demand, kind, domain, without) for domain in domains for kind in kinds)


def _holds(topology: Topology, demand: Demand, kind: str, domain: Domain, without: Container[int]) -> bool:
    allowed = -1 if demand.among is None else topology.among(demand.among)
    each = None if demand.nodes is None else demand.gpus // demand.nodes
    total = machines = 0
    for index in domain.machines:
        machine = topology.machines[index]
        if machine.gpu_type == kind and allowed >> index & 1 and index not in without:
            gpus = (machine.full_mask & domain.mask).bit_count()
            total += gpus
            machines += each is not None and gpus >= each
    return total >= demand.gpus if demand.nodes is None else machines >= demand.nodes
