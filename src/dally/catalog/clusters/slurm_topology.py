"""Slurm's topology files: which switches or blocks hold which nodes, from topology.conf and topology.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dally.catalog.clusters.document import compose, entry_of
from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_conf import conf_lines
from dally.catalog.entries import Entry
from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Path as DomainPath

Chains = dict[str, DomainPath]  # node → names of its domains, outermost first
_KINDS = ("tree", "block", "flat")


@dataclass(frozen=True, slots=True)
class Switch:
    name: str
    switches: tuple[str, ...]
    nodes: tuple[str, ...]
    where: str  # file and line, for errors


def read_conf(path: Path, text: str, notes: list[str]) -> Chains:
    """`SwitchName=` lines for trees, `BlockName=` and `BlockSizes=` for blocks; either, not both."""
    switches: list[Switch] = []
    blocks: list[Switch] = []
    sizes: list[int] = []
    speeds = 0
    for file, line, pairs in conf_lines(path, text):
        fields, where = dict(pairs), f"{file}, line {line}"
        speeds += "linkspeed" in fields
        if "switchname" in fields:
            inner, nodes = (_listed(fields.get(key), where, key) for key in ("switches", "nodes"))
            switches.append(Switch(fields["switchname"], inner, nodes, where))
        elif "blockname" in fields:
            blocks.append(Switch(fields["blockname"], (), _listed(fields.get("nodes"), where, "nodes"), where))
        elif "blocksizes" in fields:
            sizes = _sizes(fields["blocksizes"].split(","), where)
        elif not {"nodename", "linkspeed"} & set(fields):
            raise UserError(f"{where}: {pairs[0][0]!r} is not a field of topology.conf")
    if speeds:
        notes.append(f"LinkSpeed on {speeds} {'line' if speeds == 1 else 'lines'} ignored: the fabric says it")
    if switches and blocks:
        raise UserError(f"{path}: it has switches and blocks; a topology is one of the two")
    if not switches and not blocks:
        raise UserError(f"{path}: it has no SwitchName= and no BlockName= lines")
    return chains_of_tree(switches, notes) if switches else chains_of_blocks(blocks, sizes)


def read_yaml(path: Path, text: str, notes: list[str]) -> Chains | None:
    """The default topology of topology.yaml, else its first; None for a flat one."""
    root = compose(path, text)
    topologies = [entry_of(path, f"topology[{i}]", node) for i, node in enumerate(root.value)]
    if not topologies:
        raise UserError(f"{path} lists no topology")
    names = [topology.text("topology") for topology in topologies]
    chosen = next((i for i, entry in enumerate(topologies) if entry.flag("cluster_default", False)), 0)
    if len(names) > 1:
        notes.append(f"topology {names[chosen]!r} taken, the file has {len(names)}")
    entry = topologies[chosen]
    kinds = [kind for kind in _KINDS if kind in entry]
    if len(kinds) != 1:
        raise entry.fail(f"needs exactly one of {', '.join(_KINDS)}")
    if kinds[0] == "flat":
        if not entry.flag("flat", False):
            raise entry.fail("must be true", "flat")
        return entry.finish(None)
    inner = entry.entry(kinds[0])
    assert inner is not None  # the field is there
    entry.finish(None)
    if kinds[0] == "tree":
        return chains_of_tree([_switch(switch) for switch in inner.finish(inner.entries("switches"))], notes)
    listed = inner.value("block_sizes", [])
    sizes = _sizes(listed if isinstance(listed, list) else [listed], f"{path}, line {inner.line}")
    blocks = [_block(block) for block in inner.finish(inner.entries("blocks"))]
    if not blocks:
        raise inner.fail("lists no blocks")
    return chains_of_blocks(blocks, sizes)


def _switch(entry: Entry) -> Switch:
    where = f"{entry.path}, line {entry.line}"
    inner, nodes = (
        _listed(str(entry.value(key)) if key in entry else entry.value(key, None), where, key)
        for key in ("children", "nodes")
    )
    return entry.finish(Switch(str(entry.value("switch")), inner, nodes, where))


def _block(entry: Entry) -> Switch:
    where = f"{entry.path}, line {entry.line}"
    nodes = _listed(str(entry.value("nodes")), where, "nodes")
    return entry.finish(Switch(str(entry.value("block")), (), nodes, where))


def _listed(text: str | None, where: str, field: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(expand(text))
    except UserError as error:
        raise UserError(f"{where}: {field}: {error}") from None


def _sizes(listed: Sequence[object], where: str) -> list[int]:
    try:
        sizes = [int(str(size)) for size in listed]
    except ValueError:
        shown = ", ".join(map(str, listed))
        raise UserError(f"{where}: block sizes must be whole numbers, not {shown}") from None
    if any(size < 1 for size in sizes) or any(size % sizes[0] for size in sizes) or sizes != sorted(set(sizes)):
        raise UserError(f"{where}: block sizes must grow and be multiples of the first")
    return sizes


def chains_of_tree(switches: Sequence[Switch], notes: list[str]) -> Chains:
    """From the root inwards; a root that holds everything is the cluster itself and no domain of its own. A node below
    two switches, of which Slurm only warns, is taken to be below the first, and so is a switch of a fat tree."""
    by_name: dict[str, Switch] = {}
    for switch in switches:
        if switch.name in by_name:
            raise UserError(f"{switch.where}: switch {switch.name!r} is also in {by_name[switch.name].where}")
        by_name[switch.name] = switch
    parent: dict[str, str] = {}
    twice: list[str] = []
    for switch in switches:
        for child in switch.switches:
            if child not in by_name:
                raise UserError(f"{switch.where}: switch {child!r} of {switch.name!r} is not described")
            if child in parent:
                twice.append(f"{child} ({parent[child]}, {switch.name})")
            else:
                parent[child] = switch.name
    chains: Chains = {}
    for switch in switches:
        chain = _chain(switch, parent)
        for node in switch.nodes:
            if node in chains:
                twice.append(f"{node} ({chains[node][-1]}, {switch.name})")
                continue
            # A switch of nodes and switches: its own nodes are in none of the inner ones.
            chains[node] = (*chain, node) if switch.switches else chain
    if twice:
        some = ", ".join(twice[:3]) + (", …" if len(twice) > 3 else "")
        notes.append(f"below two switches, taken to be below the first: {some}")
    outermost = {chain[0] for chain in chains.values()}
    if len(outermost) == 1 and all(len(chain) > 1 for chain in chains.values()):
        chains = {node: chain[1:] for node, chain in chains.items()}
    return chains


def _chain(switch: Switch, parent: dict[str, str]) -> DomainPath:
    chain = [switch.name]
    while chain[-1] in parent:
        above = parent[chain[-1]]
        if above in chain:
            raise UserError(f"{switch.where}: switch {switch.name!r} is below itself")
        chain.append(above)
    return tuple(reversed(chain))


def chains_of_blocks(blocks: Sequence[Switch], sizes: Sequence[int]) -> Chains:
    """Base blocks in the order of the file; a larger size joins that many of them, neighbours first."""
    chains: Chains = {}
    names = [block.name for block in blocks]
    for index, block in enumerate(blocks):
        if names.index(block.name) != index:
            raise UserError(f"{block.where}: block {block.name!r} is there twice")
        outer = []
        for size in sizes[:0:-1]:
            group = size // sizes[0]
            first = index - index % group
            last = min(first + group, len(names)) - 1
            outer.append(names[first] if first == last else f"{names[first]}..{names[last]}")
        for node in block.nodes:
            if node in chains:
                raise UserError(f"{block.where}: node {node!r} is in block {chains[node][-1]!r} as well")
            chains[node] = (*outer, block.name)
    return chains
