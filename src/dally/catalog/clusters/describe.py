"""Clusters, presets and fabrics as rows and lines for people; the command line prints what is said here."""

from __future__ import annotations

from collections.abc import Iterator

from dally.catalog.machine import FabricLevel
from dally.core.records import dataclass
from dally.core.topology import Domain, Topology
from dally.core.units import show_bytes, show_time


@dataclass(frozen=True, slots=True)
class LevelRow:
    """One level from the innermost outwards, figures written out."""

    level: str
    domains: int  # how many there are in the cluster
    joins: str  # what is inside one: `8 machines`, `3–5 racks`
    gpus: str  # GPUs in one
    kind: str
    bandwidth: str  # of the port of each unit it joins
    latency: str  # per hop


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster in full: totals, levels, GPUs by type, and its tree as lines."""

    name: str
    machines: int
    gpus: int
    gpu_types: tuple[tuple[str, int, int], ...]  # type, machines, GPUs
    levels: tuple[LevelRow, ...]
    tree: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PresetRow:
    name: str
    gpus: int
    machines: int
    gpu_types: str
    levels: str
    title: str
    source: str


@dataclass(frozen=True, slots=True)
class FabricRow:
    """One level of a fabric preset; `bandwidth` says whose it is."""

    fabric: str
    level: str
    kind: str
    bandwidth: str
    latency: str
    title: str
    source: str


def describe_cluster(topology: Topology, *, lines: int = 60) -> ClusterDescription:
    """`lines` limits the tree: equal neighbours are folded first, then the rest is counted."""
    types = []
    for kind in topology.gpu_types:
        own = [machine.gpus for machine in topology if machine.gpu_type == kind]
        types.append((kind, len(own), sum(own)))
    tree = _merged(list(_tree(topology, topology.domains[-1][0], 0)))
    if len(tree) > lines:
        tree = [*tree[: lines - 1], f"… {len(tree) - lines + 1} more lines"]
    return ClusterDescription(topology.name, len(topology.machines), topology.gpus, tuple(types),
                              tuple(_level_rows(topology)), tuple(tree))  # fmt: skip


def describe_clusters() -> list[PresetRow]:
    """Every preset with its size, built as it would be loaded."""
    from dally.catalog.clusters.document import build_cluster
    from dally.catalog.clusters.presets import preset_entry, preset_names

    rows = []
    for name in preset_names():
        entry = preset_entry(name)
        assert entry is not None  # it is listed
        topology = build_cluster(entry, name, None, None)
        kinds = ", ".join(f"{kind} × {topology.capacity(kind)}" for kind in topology.gpu_types)
        levels = ", ".join(level.name for level in topology.levels)
        rows.append(PresetRow(name, topology.gpus, len(topology.machines), kinds, levels,
                              entry.text("title", ""), entry.text("source", "")))  # fmt: skip
    return rows


def describe_fabrics() -> list[FabricRow]:
    """Every fabric preset, a row per level from the rack outwards."""
    from dally.catalog.store import fabrics

    rows = []
    for fabric in fabrics().values():
        for level in fabric.levels:
            rows.append(FabricRow(fabric.name, level.name, level.kind.value, _fabric_bandwidth(level),
                                  show_time(level.latency), fabric.title, fabric.source))  # fmt: skip
    return rows


def _fabric_bandwidth(level: FabricLevel) -> str:
    if level.oversubscription is not None:
        return f"{level.oversubscription:g}:1 of what is below"
    assert level.bandwidth is not None  # the catalog makes sure of one of the two
    whose = "" if level.per == "unit" else f" per {level.per.upper() if level.per in ('gpu', 'nic') else level.per}"
    return f"{show_bytes(level.bandwidth)}/s{whose}"


def _level_rows(topology: Topology) -> Iterator[LevelRow]:
    for index, level in enumerate(topology.levels):
        domains = topology.domains[index]
        if index == 0:
            inside, what = [domain.gpus for domain in domains], "GPU"
        elif index == topology.machine_level:
            inside, what = [len(machine.islands) for machine in topology], topology.levels[0].name
        else:
            counts = [0] * len(domains)
            for domain in topology.domains[index - 1]:
                counts[_holder(topology, domain, index)] += 1
            inside, what = counts, topology.levels[index - 1].name
        yield LevelRow(level.name, len(domains), _amount(inside, what), _span([d.gpus for d in domains]),
                       level.kind.value, f"{show_bytes(level.bandwidth)}/s", show_time(level.latency))  # fmt: skip


def _holder(topology: Topology, domain: Domain, level: int) -> int:
    return topology.machines[domain.start].domains[level - topology.machine_level]


def _tree(topology: Topology, domain: Domain, indent: int) -> Iterator[tuple[int, str, str]]:
    """(indent, name, description) of a domain and all inside it down to the machines."""
    if domain.level == topology.machine_level:
        machine = topology.machines[domain.start]
        islands = f" in islands of {_span([m.bit_count() for m in machine.islands])}" if machine.islands else ""
        yield indent, domain.path[-1], f"{machine.gpus} {machine.gpu_type}{islands}"
        return
    name = domain.path[-1] if domain.path else topology.name
    level = topology.levels[domain.level].name
    yield indent, name, f"{level}, {_amount([len(domain.machines)], 'machine')}, {_amount([domain.gpus], 'GPU')}"
    start = domain.start
    while start < domain.stop:
        child = topology.domain_of(start, domain.level - 1)
        yield from _tree(topology, child, indent + 1)
        start = child.stop


def _merged(nodes: list[tuple[int, str, str]]) -> list[str]:
    """Neighbours that differ in nothing but their names are one line: `rack0 … rack3  (4 ×)`."""
    forest, _ = _subtrees(nodes, 0, 0)
    return list(_folded(forest, 0))


_Node = tuple[str, str, tuple["_Node", ...]]  # name, description, children


def _subtrees(nodes: list[tuple[int, str, str]], at: int, indent: int) -> tuple[tuple[_Node, ...], int]:
    found: list[_Node] = []
    while at < len(nodes) and nodes[at][0] == indent:
        _, name, what = nodes[at]
        children, at = _subtrees(nodes, at + 1, indent + 1)
        found.append((name, what, children))
    return tuple(found), at


def _folded(siblings: tuple[_Node, ...], indent: int) -> Iterator[str]:
    at = 0
    while at < len(siblings):
        name, what, children = siblings[at]
        stop = at + 1
        while stop < len(siblings) and _alike(siblings[stop]) == _alike(siblings[at]):
            stop += 1
        times = f" … {siblings[stop - 1][0]}  ({stop - at} ×)" if stop - at > 1 else ""
        yield f"{'  ' * indent}{name}{times}  {what}"
        yield from _folded(children, indent + 1)
        at = stop


def _alike(node: _Node) -> tuple[object, ...]:
    return node[1], tuple(_alike(child) for child in node[2])


def _amount(counts: list[int], what: str) -> str:
    return f"{_span(counts)} {what}{'' if set(counts) == {1} else 's'}"


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"
