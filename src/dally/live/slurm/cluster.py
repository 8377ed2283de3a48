"""The cluster that a Slurm is: its nodes with GPUs, and its topology as far as it knows one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.core.topology_text import topology_from_plain, topology_to_plain
from dally.live.slurm.client import Slurm, SlurmAway, SlurmRefused
from dally.live.slurm.ordering import node_of
from dally.live.slurm.reading import SlurmNode

OLDEST = (22, 5)


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    topology: Topology
    notes: tuple[str, ...] = ()  # what was left out or assumed


def slurm_cluster(slurm: Slurm, text: str | None = None, remembered: Path | None = None) -> SlurmCluster:
    """From Slurm itself, or as `text` describes it: a file of ours knows what links can do. `remembered`: where the
    last answer is kept, for when the controller is away as the service starts."""
    try:
        version = slurm.version()
        if version < OLDEST:
            raise UserError(f"Slurm {version[0]}.{version[1]:02d} is too old; {OLDEST[0]}.{OLDEST[1]:02d} is needed")
        switches, listed = slurm.topology(), slurm.node_list()
        nodes = {node.name: node for node in slurm.nodes()}
    except SlurmAway as error:
        if remembered is None or not remembered.exists():
            raise UserError(f"Slurm does not say what cluster it is: {error}") from None
        topology = topology_from_plain(json.loads(remembered.read_text()))
        return SlurmCluster(topology, (f"Slurm does not answer ({error}); the cluster is the one of last time",))
    except SlurmRefused as error:
        raise UserError(f"Slurm does not say what cluster it is: {error}") from None
    found = _found(switches, listed) if text is None else _declared(text, nodes)
    if remembered is not None:
        remembered.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = remembered.with_suffix(".new")
        new.write_text(json.dumps(topology_to_plain(found.topology)))
        new.replace(remembered)
    return found


def _declared(text: str, nodes: Mapping[str, SlurmNode]) -> SlurmCluster:
    """As a file describes it; every machine must be a node, and have what the file says."""
    from dally.catalog.clusters.load import load_cluster

    topology = load_cluster(text)
    seen: set[tuple[str, str | None]] = set()
    for machine in topology.machines:
        name, kind = node_of(machine.name)
        if (name, kind) in seen:
            raise UserError(f"{text}: there are two machines {name}; the name of a machine must be that of its node")
        seen.add((name, kind))
        if name not in nodes:
            raise UserError(f"{text}: machine {machine.name} is no node of this Slurm")
        there = sum(count for each, count in nodes[name].gpus.items() if kind in (None, each))
        if there < machine.gpus:
            raise UserError(f"{text}: machine {machine.name} has {machine.gpus} GPUs, and node {name} {there}")
    return SlurmCluster(topology)


def _found(switches: str, listed: str) -> SlurmCluster:
    from dally.catalog.clusters.load import read_cluster

    with tempfile.TemporaryDirectory(prefix="dally-slurm-") as folder:
        list_file, file = Path(folder) / "nodes.txt", Path(folder) / "topology.conf"
        list_file.write_text(listed)
        if not switches:
            found = read_cluster(str(list_file))
            return SlurmCluster(found.topology, found.notes)
        file.write_text(switches + "\n")
        found = read_cluster(str(file), nodes=list_file)
    return SlurmCluster(found.topology, found.notes)
