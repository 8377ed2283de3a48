"""What a bed consists of before anything is made: nodes, switches, addresses and the rate of every link."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Topology

NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
MOST_NODES = 240  # one /24 per bed; the rest of it is the controller's and the host's
CONTROLLER, HOST = 250, 254  # last parts of their addresses
FASTEST = 10e9 / 8  # bytes/s; a veth pair on one host does not carry more, so shaping it would change nothing
CPUS_PER_GPU = 4

DEFAULT_CLUSTER = """\
dally-cluster: 1
name: testbed
source: the default of `dally testbed up`
fabric:
  levels:
    - {name: rack, kind: switch, bandwidth: 200 Mbit/s, per: machine, latency: 50us}
    - {name: cluster, kind: switch, bandwidth: 50 Mbit/s, per: unit, latency: 50us}
racks: 2
machines: 4
machine: {gpu: A100-40GB, gpus: 2, links: [{bandwidth: 1 GB/s, latency: 20us}]}
"""


@dataclass(frozen=True, slots=True)
class Switch:
    """A domain above the machines: a bridge in a namespace of its own. The outermost has no parent."""

    name: str
    namespace: str
    level: str
    parent: int | None
    rate: float | None  # bytes/s of its uplink, each way; None: as fast as the host is


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    machine: str  # its whole name in the cluster it was made from
    namespace: str
    address: str
    switch: int
    gpus: int
    gpu_type: str | None  # said to Slurm where the cluster has several
    rate: float | None


@dataclass(frozen=True, slots=True)
class Layout:
    name: str
    folder: Path
    subnet: int
    nodes: tuple[Node, ...]
    switches: tuple[Switch, ...]  # parents before children: the first is the spine
    notes: tuple[str, ...] = ()

    @property
    def spine(self) -> str:
        return self.switches[0].namespace

    @property
    def controller(self) -> str:
        return address(self.subnet, CONTROLLER)

    @property
    def host(self) -> str:
        """The address under which the nodes reach this host."""
        return address(self.subnet, HOST)

    @property
    def host_link(self) -> str:
        return f"dally-bed{self.subnet}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (*(switch.namespace for switch in self.switches), *(node.namespace for node in self.nodes))

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if name in (node.name, node.machine):
                return node
        raise UserError(f"test bed {self.name!r} has no node {name!r}; it has {_some([n.name for n in self.nodes])}")

    def switch(self, name: str) -> Switch:
        """One that has an uplink."""
        for switch in self.switches[1:]:
            if switch.name == name:
                return switch
        raise UserError(f"test bed {self.name!r} has no rack {name!r}; "
                        f"it has {_some([s.name for s in self.switches[1:]])}")  # fmt: skip


def address(subnet: int, last: int) -> str:
    return f"10.231.{subnet}.{last}"


def prefix(name: str) -> str:
    """Of all its namespaces. A dot ends the bed's name: bed `a` has nothing of bed `a-b`."""
    return f"dally.{name}."


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UserError(f"test bed {name!r}: a name is a small letter, then up to 19 small letters, digits or dashes")
    return name


def lay_out(name: str, folder: Path, subnet: int, topology: Topology, rates: Mapping[str, float]) -> Layout:
    """The bed for a cluster; `rates` (bytes/s by level) win over the cluster's own."""
    check_name(name)
    if len(topology.machines) > MOST_NODES:
        raise UserError(f"a test bed has at most {MOST_NODES} nodes, not {len(topology.machines)}")
    above = range(topology.machine_level + 1, len(topology.levels))
    known = [topology.levels[level].name for level in above]
    for said in rates:
        if said not in known:
            raise UserError(f"the cluster has no level {said!r} between machines; it has {', '.join(known)}")
    notes = []
    rate_of: dict[int, float | None] = {}
    for level in above:
        link = topology.levels[level]
        rate = rates.get(link.name, link.bandwidth)
        rate_of[level] = rate if rate <= FASTEST else None
        if rate > FASTEST:
            notes.append(f"links of level {link.name!r} are not shaped: {rate * 8 / 1e9:g} Gbit/s is more than "
                         "a host's own links carry")  # fmt: skip
    switches, of_domain = _switches(name, topology, above, rate_of)
    nodes = _nodes(name, subnet, topology, of_domain, rate_of[above[0]])
    return Layout(name, folder, subnet, nodes, switches, tuple(notes))


def _switches(
    name: str, topology: Topology, above: range, rate_of: Mapping[int, float | None]
) -> tuple[tuple[Switch, ...], dict[tuple[int, int], int]]:
    switches = [Switch("spine", f"{prefix(name)}spine", topology.levels[above[-1]].name, None, None)]
    of_domain = {(above[-1], 0): 0}
    domains = [(level, domain) for level in reversed(above[:-1]) for domain in topology.domains[level]]
    for (level, domain), said in zip(domains, _names([domain.path for _, domain in domains], "rack"), strict=True):
        parent = of_domain[level + 1, topology.domain_of(domain.start, level + 1).index]
        of_domain[level, domain.index] = len(switches)
        switches.append(Switch(said, f"{prefix(name)}s{len(switches)}", topology.levels[level].name, parent,
                               rate_of[level + 1]))  # fmt: skip
    return tuple(switches), of_domain


def _nodes(name: str, subnet: int, topology: Topology, of_domain: Mapping[tuple[int, int], int],
           rate: float | None) -> tuple[Node, ...]:  # fmt: skip
    several = len(topology.gpu_types) > 1
    level = topology.machine_level + 1
    nodes = []
    said_names = _names([machine.path for machine in topology.machines], "n", whole=False)
    for number, (machine, said) in enumerate(zip(topology.machines, said_names, strict=True), start=1):
        kind = re.sub(r"[^a-z0-9_-]", "-", machine.gpu_type.lower()) if several else None
        switch = of_domain[level, topology.domain_of(machine.index, level).index]
        nodes.append(Node(said, machine.name, f"{prefix(name)}n{number}", address(subnet, number), switch,
                          machine.gpus, kind, rate))  # fmt: skip
    return tuple(nodes)


def _names(paths: Sequence[tuple[str, ...]], kind: str, whole: bool = True) -> list[str]:
    """Slurm's names are one word each: the last of the path, the whole path, or a number, whichever is unique."""
    fits = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
    for words in ([path[-1] for path in paths], ["-".join(path) for path in paths] if whole else []):
        if words and max(Counter(words).values()) == 1 and all(fits.fullmatch(word) for word in words):
            return words
    return [f"{kind}{number}" for number in range(1, len(paths) + 1)]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
