"""The cluster a history was recorded on: as it is described, and what the record itself says of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Topology, build_topology, changed, spec_of
from dally.traces.trace import Trace

UNTYPED = "gpu"  # where nobody says of which type
ENOUGH = 50  # jobs that ran on the nodes of a partition: the most they ever held is then taken for all they have


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster argument as on the command line, its node list, and the record; `cluster` None: from the record."""

    trace: Trace
    cluster: str | None = None
    nodes: Path | None = None

    def topology(self, fabric: str | None = None) -> tuple[Topology, list[str]]:
        """With the sets of machines that partitions are, and what had to be assumed."""
        if self.cluster is None and self.nodes is None:
            return recorded_cluster(self.trace, fabric)
        from dally.catalog.clusters.load import read_cluster

        if self.cluster is None:  # a node list is a cluster of which nobody knows how far its nodes are apart
            loaded = read_cluster(str(self.nodes), fabric=fabric)
        else:
            loaded = read_cluster(self.cluster, fabric=fabric, nodes=self.nodes)
        named, told = with_names(loaded.topology, self.trace)
        found, notes = with_partitions(named, self.trace)
        return found, [*loaded.notes, *told, *notes]


def _homes(trace: Trace) -> dict[str, set[str]]:
    """Partition → nodes its jobs ran on."""
    homes: dict[str, set[str]] = {}
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        if job.partition is not None and "," not in job.partition:
            homes.setdefault(job.partition, set()).update(name for name, _ in truth.ran_on)
    return homes


def with_names(topology: Topology, trace: Trace) -> tuple[Topology, list[str]]:
    """A shape such as 18x8 knows no names: where it has none of the record's nodes, and machines enough, they are those
    nodes in their order, of the GPU types that ran there."""
    kinds = _kinds(trace)
    if not kinds or len(kinds) > len(topology.machines) or any(node in topology.machine_by_name for node in kinds):
        return topology, []
    specs = [spec_of(machine, topology) for machine in topology.machines]
    for index, node in enumerate(sorted(kinds, key=_natural)):
        kind = kinds[node].most_common(1)[0][0]
        specs[index] = replace(specs[index], path=(*specs[index].path[:-1], node),
                               gpu_type=specs[index].gpu_type if kind == UNTYPED else kind)  # fmt: skip
    made = build_topology(topology.levels, specs, name=topology.name, machine_level=topology.machine_level)
    left = len(specs) - len(kinds)
    note = (f"the description has none of the {len(kinds):,} nodes of the record: its machines are taken for them, in "
            "the order of their names, with the GPU types that ran there")  # fmt: skip
    return made, [note + (f"; {left:,} machines more ran nothing" if left else "")]


def _natural(name: str) -> list[tuple[int, str]]:
    """n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _kinds(trace: Trace) -> dict[str, Counter[str]]:
    """GPU types of the jobs that ran on each node."""
    kinds: dict[str, Counter[str]] = {}
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        for node, _ in truth.ran_on:
            kinds.setdefault(node, Counter())[job.gpu_type or UNTYPED] += 1
    return kinds


def with_partitions(topology: Topology, trace: Trace) -> tuple[Topology, list[str]]:
    """Partitions that the description does not name are the nodes their jobs ran on."""
    homes = {name: nodes for name, nodes in _homes(trace).items() if name not in topology.sets and nodes}
    known = {name: {index for node in nodes if (index := topology.machine_by_name.get(node)) is not None}
             for name, nodes in homes.items()}  # fmt: skip
    known = {name: found for name, found in known.items() if found}
    if not known:
        return topology, []
    specs = []
    for machine in topology.machines:
        more = tuple(name for name, members in known.items() if machine.index in members)
        spec = spec_of(machine, topology)
        specs.append(replace(spec, sets=(*spec.sets, *more)))
    made = build_topology(topology.levels, specs, name=topology.name, machine_level=topology.machine_level)
    sizes = ", ".join(f"{name} {len(members)}" for name, members in sorted(known.items()))
    return made, [f"partitions are not described, and taken to be the nodes their jobs ran on: {sizes}"]


def recorded_cluster(trace: Trace, fabric: str | None) -> tuple[Topology, list[str]]:
    """The nodes that jobs ran on; those of one GPU type and partition have as many GPUs as the fullest of them held at
    once, or, where few jobs ran there, the fullest of the type."""
    from dally.catalog.clusters.assembly import Planned, assemble
    from dally.catalog.clusters.insides import inside_of, usual_machine
    from dally.catalog.clusters.load import LISTED_FABRIC
    from dally.catalog.store import find_fabric

    changes: dict[str, list[tuple[float, int]]] = {}
    kinds = _kinds(trace)
    for _, truth in zip(trace.jobs, trace.truths, strict=True):
        if truth.start is None or truth.duration is None or truth.failures:
            continue
        for node, gpus in truth.ran_on:
            changes.setdefault(node, []).extend([(truth.start, gpus), (truth.start + truth.duration, -gpus)])
    if not changes:
        raise UserError(f"{trace.name} names no nodes, so that the cluster must be described: give --cluster")
    kind_of = {node: counted.most_common(1)[0][0] for node, counted in kinds.items() if node in changes}
    homes = _homes(trace)
    sets = {node: tuple(sorted(name for name, nodes in homes.items() if node in nodes)) for node in changes}
    held = _held(changes, kind_of, sets)
    planned = [Planned((node,), node, inside_of(usual_machine(kind_of[node]), held[node], kind_of[node]), sets[node])
               for node in sorted(changes, key=_natural)]  # fmt: skip
    counted = Counter((kind_of[node], held[node]) for node in changes)
    sizes = ", ".join(f"{count} × {gpus} {kind}" for (kind, gpus), count in sorted(counted.items()))
    note = (f"no cluster is described: its nodes are those of the record ({sizes}), as large as the fullest of "
            "their GPU type and partition ever was, each a rack of its own; nodes that ran nothing are not "
            "there")  # fmt: skip
    return assemble(trace.name, planned, find_fabric(fabric or LISTED_FABRIC)), [note]


def _held(changes: Mapping[str, list[tuple[float, int]]], kind_of: Mapping[str, str],
          sets: Mapping[str, tuple[str, ...]]) -> dict[str, int]:  # fmt: skip
    """Node → GPUs it is taken to have."""
    peaks = {node: _peak(steps) for node, steps in changes.items()}
    of_type: dict[str, int] = {}
    of_set: dict[tuple[str, tuple[str, ...]], int] = {}
    ran: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for node, peak in peaks.items():
        kind, group = kind_of[node], (kind_of[node], sets[node])
        of_type[kind] = max(of_type.get(kind, 1), peak)
        of_set[group] = max(of_set.get(group, 1), peak)
        ran[group] += len(changes[node]) // 2
    return {node: of_set[group] if ran[group := (kind_of[node], sets[node])] >= ENOUGH else of_type[kind_of[node]]
            for node in changes}  # fmt: skip


def _peak(steps: Iterable[tuple[float, int]]) -> int:
    held = most = 0
    for _, step in sorted(steps):
        held += step
        most = max(most, held)
    return most


def with_rack(topology: Topology, rack: str) -> Topology:
    """The same cluster with one rack more: a copy of this one, of the same partitions."""
    level = topology.machine_level + 1
    if level >= len(topology.levels):
        raise UserError(f"cluster {topology.name!r} is a single machine, without racks")
    domains = {each.name: each for each in topology.domains[level]} | {
        each.path[-1]: each for each in topology.domains[level] if each.path}  # fmt: skip
    if rack not in domains:
        names = [each.name for each in topology.domains[level]]
        shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        raise UserError(f"cluster {topology.name!r} has no {topology.levels[level].name} {rack!r}; it has {shown}")
    domain = domains[rack]
    added = []
    for machine in topology.machines[domain.start : domain.stop]:
        spec = spec_of(machine, topology)
        *outer, name = spec.path
        # `n1:2`: what a slurm.conf says of n1, its partition and its weight, holds for it too
        path = (*outer[:-1], f"{outer[-1]}:2", f"{name}:2")
        added.append(replace(spec, path=path))
    return changed(topology, added, ())
