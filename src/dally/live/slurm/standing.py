"""How Slurm's nodes stand, as machines of ours: up, drained or down, and how many of their GPUs others have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from dally.core.topology import Topology
from dally.live.engine import Standing
from dally.live.slurm.ordering import node_of
from dally.live.slurm.reading import Counts, Reservation, SlurmJob, SlurmNode

_DOWN = frozenset(("DOWN", "ERROR", "UNKNOWN", "FUTURE"))
# Nothing new is started there, by Slurm neither; what runs goes on.
_CLOSED = frozenset(("DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "NOT_RESPONDING", "MAINTENANCE", "MAINT",
                     "RESERVED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP",
                     "REBOOT_ISSUED", "REBOOT_REQUESTED", "REBOOT", "INVALID_REG", "INVAL", "BLOCKED"))  # fmt: skip


def state_of(node: SlurmNode | None, *, ours: bool, own: bool = False) -> Literal["up", "drained", "down"]:
    """A node is down when Slurm says so and no attempt of ours is under way there: until then it gets nothing new, and
    what became of them is told of each. `own`: we are in the reservation that holds it."""
    if node is None or node.state in _DOWN or node.flags & {"INVALID_REG", "POWERED_DOWN"}:
        return "drained" if ours else "down"
    closed = (node.flags | {node.state}) & _CLOSED
    if own:
        closed -= {"RESERVED", "MAINTENANCE", "MAINT"}
    return "drained" if closed else "up"


def reserved(reservations: Iterable[Reservation], now: float, ahead: float, own: Collection[str]) -> dict[str, bool]:
    """Nodes that a reservation holds now or in so many seconds, and whether it is one of ours."""
    found: dict[str, bool] = {}
    for each in reservations:
        if each.start - ahead <= now < each.end:
            for node in each.nodes:
                found[node] = each.name in own and found.get(node, True)
    return found


def used_by_others(jobs: Iterable[SlurmJob], ours: Collection[int]) -> dict[str, dict[str | None, int]]:
    """GPUs per node that jobs other than ours have."""
    found: dict[str, dict[str | None, int]] = {}
    for job in jobs:
        if job.active and job.id not in ours:
            for node, counts in job.gpus.items():
                there = found.setdefault(node, {})
                for kind, count in counts.items():
                    there[kind] = there.get(kind, 0) + count
    return found


def standings(topology: Topology, nodes: Sequence[SlurmNode], jobs: Sequence[SlurmJob], ours: Collection[int],
              held: Mapping[str, bool], under_way: Collection[str] = ()) -> list[Standing]:  # fmt: skip
    """Of every machine of the topology. `held`: nodes that reservations hold (`reserved`); `under_way`: nodes with an
    attempt of ours, begun or not."""
    by_name = {node.name: node for node in nodes}
    running = {node for job in jobs if job.active and job.id in ours for node in job.nodes} | set(under_way)
    others = used_by_others(jobs, ours)
    found: list[Standing] = []
    for machine in topology.machines:
        name, kind = node_of(machine.name)
        node = by_name.get(name)
        state = state_of(node, ours=name in running, own=held.get(name, False))
        if state == "up" and name in held and not held[name]:
            state = "drained"
        taken = _of_kind(others.get(name, {}), kind)
        there = machine.gpus if node is None else _of_kind(node.gpus, kind)
        missing = max(0, machine.gpus - there)  # a node that has come back with fewer
        found.append(Standing(machine.name, state, min(machine.gpus, taken + missing)))
    return found


def _of_kind(counts: Counts, kind: str | None) -> int:
    """On a node of several types, those of this one; a job's whose type is not told counts for each."""
    return sum(count for each, count in counts.items() if kind is None or each is None or each == kind)
