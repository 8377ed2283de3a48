"""A Slurm cluster: its topology file joined with its node list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dally.catalog.clusters.assembly import Planned
from dally.catalog.clusters.insides import inside_of, usual_machine
from dally.catalog.clusters.slurm_nodes import BESIDE, Node, read_nodes
from dally.catalog.clusters.slurm_sets import Sets, read_sets
from dally.catalog.clusters.slurm_topology import Chains, read_conf, read_yaml
from dally.core.errors import UserError


def plan_slurm(path: Path, text: str, nodes: Path | None, default: Callable[[], str],
               notes: list[str]) -> list[Planned]:  # fmt: skip
    """Machines in the order of the topology, then those outside of it, each of which is a rack of its own."""
    chains: Chains | None = None
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    if is_yaml:
        chains = read_yaml(path, text, notes)
    elif _describes_topology(text):
        chains = read_conf(path, text, notes)
    elif not _lists_nodes(text):
        raise UserError(
            f"{path} is not a cluster: neither Slurm's topology (SwitchName=, BlockName=) nor a list of its nodes,"
            " nor a .yaml or .csv file"
        )
    elif nodes is not None:
        listed, sets = _of_two_lists(path, text, nodes, notes)
    else:
        listed, sets = read_nodes(path, text), read_sets(path, text)
    if chains is not None or is_yaml:
        listed, sets = _node_list(path, text, nodes)
    if chains is None:
        notes.append("no topology is given: every machine is a rack of its own")
        chains = {}
    else:
        _note_differences(chains, listed, notes)
    ordered = [listed[name] for name in chains if name in listed]
    ordered += [node for node in listed.values() if node.name not in chains]
    without = sum(not node.gpus for node in ordered)
    if without:
        notes.append(f"{_nodes(without)} without GPUs left out")
    planned: list[Planned] = []
    mixed = 0
    for node in ordered:
        mixed += len(node.gpus) > 1
        planned.extend(_machines(node, chains.get(node.name, ()), sets.get(node.name, ()), default))
    if mixed:
        notes.append(f"{_nodes(mixed)} with several GPU types: one machine per type, named NODE:TYPE")
    if not planned:
        raise UserError(f"{path}: none of its nodes has GPUs")
    return planned


def _describes_topology(text: str) -> bool:
    lowered = text.lower()
    return "switchname=" in lowered or "blockname=" in lowered


def _lists_nodes(text: str) -> bool:
    first = next((line.split() for line in text.splitlines() if line.strip() and line[0] != "#"), [])
    if "nodename=" in text.lower():
        return True
    if text.lstrip().startswith("{") and '"nodes"' in text[:10_000]:
        return True
    upper = {word.strip("| ") for word in " ".join(first).upper().replace("|", " ").split()}
    if "GRES" in upper and upper & {"NODELIST", "HOSTNAMES"}:
        return True
    if len(first) > 2 and "|" in " ".join(first):  # columns of sinfo between bars, without its header
        parts = [part.strip() for part in " ".join(first).split("|")]
        return bool(parts[0]) and " " not in parts[0] and any(part.startswith("gpu:") for part in parts[1:])
    # Two columns as sinfo prints them.
    return len(first) == 2 and (first[0].upper() == "NODELIST" or first[1].startswith(("gpu", "(null)")))


def _machines(node: Node, domains: tuple[str, ...], sets: tuple[str, ...],
              default: Callable[[], str]) -> list[Planned]:  # fmt: skip
    machines = []
    for written, count in node.gpus:
        kind = default() if written is None else written
        name = node.name if len(node.gpus) == 1 else f"{node.name}:{kind}"
        # Types stay as written: jobs of the same cluster ask for them in the same words.
        machines.append(Planned(domains or (node.name,), name, inside_of(usual_machine(kind), count, kind), sets))
    return machines


def _node_list(path: Path, text: str, nodes: Path | None) -> tuple[dict[str, Node], Sets]:
    """The nodes, and the partitions and features of each: those a list does not name are looked for beside it."""
    from dally.catalog.clusters.load import read_text

    there = [path.parent / name for name in BESIDE if (path.parent / name).is_file()]
    if nodes is None and "nodename=" not in text.lower():
        if not there:
            raise UserError(
                f"{path} says nothing of GPUs and none of {', '.join(BESIDE)} is beside it; give a node list:"
                " slurm.conf, the output of `scontrol show node` or of `sinfo -N -o '%N %G'`, or a CSV"
            )
        nodes = there[0]
    source, said = (path, text) if nodes is None else (nodes, read_text(nodes))
    sets = read_sets(source, said)
    if not sets and there and there[0].name == BESIDE[0] and there[0] != source:
        sets = read_sets(there[0], read_text(there[0]))
    return read_nodes(source, said), sets


def _of_two_lists(path: Path, text: str, nodes: Path, notes: list[str]) -> tuple[dict[str, Node], Sets]:
    """A slurm.conf and what sinfo or scontrol say of the same nodes: GPUs as the node list has them, which is what is
    there, and partitions of the other where the list names none."""
    from dally.catalog.clusters.load import read_text

    said = read_text(nodes)
    listed = read_nodes(nodes, said)
    missing = [name for name in read_nodes(path, text) if name not in listed]
    if missing:
        notes.append(f"{_nodes(len(missing))} of {path.name} not in {nodes.name} left out: {_some(missing)}")
    return listed, read_sets(nodes, said) or read_sets(path, text)


def _note_differences(chains: Chains, listed: dict[str, Node], notes: list[str]) -> None:
    unlisted = [name for name in chains if name not in listed]
    outside = [node.name for node in listed.values() if node.name not in chains and node.gpus]
    if unlisted:
        notes.append(f"{_nodes(len(unlisted))} of the topology not in the node list left out: {_some(unlisted)}")
    if outside:
        notes.append(f"{_nodes(len(outside))} not in the topology, each a rack of its own: {_some(outside)}")


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
