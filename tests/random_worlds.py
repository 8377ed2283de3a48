"""Random clusters, network models, jobs, placements and experiments, as odd as the formats allow; drawn from a
`random.Random`, so that tests, hypothesis and the benchmarks share them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from dally.catalog.throughputs import Throughputs, gpu_name
from dally.core.job import DurationMeans, Job, Truth
from dally.core.placement import Placement
from dally.core.topology import Level, LinkKind, MachineSpec, Topology, build_topology
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.simulator.experiment import Experiment, FaultRules
from dally.simulator.tabled import Tabled
from dally.simulator.trying import neighbours
from dally.traces.trace import Trace

TYPES = ("V100", "A100-40GB", "K80", "H100", "made-up")
MODELS = ("resnet50", "vgg16", "alexnet", "bert-large", "mobilenetv3-small", "dlrm", "gpt2-xl", "llama-7b", "llama-70b",
          "resnet18 (batch size 16)", "resnet50", "dlrm", "mobilenetv3-small", None)  # fmt: skip
FAST = ("resnet50", "vgg16", "alexnet", "mobilenetv3-small", "dlrm", "bert-large", None)
NETWORKS = (
    "ideal", "level-penalty", "analytic", "analytic", "analytic[bucket=layer]", "analytic[algorithm=any]",
    "analytic[algorithm=ring]", "analytic[algorithm=tree]", "analytic[algorithm=hierarchical]",
    "analytic[algorithm=direct]", "analytic[algorithm=halving-doubling]", "analytic[algorithm=parameter-server]",
    "astra", "astra[bucket=layer]", "artist", "tabled ideal", "tabled analytic", "tabled astra",
)  # fmt: skip


def a_level(chance: random.Random, name: str) -> Level:
    """From 1 Gbit/s to NVLink, from no latency to a millisecond; sometimes outer levels are the faster ones."""
    bandwidth = chance.choice([0.125e9, 1.25e9, 3.125e9, 12.5e9, 25e9, 50e9, 100e9, 300e9, 600e9])
    return Level(name, chance.choice(list(LinkKind)), bandwidth, chance.choice([0.0, 0.0, 5e-7, 1e-6, 5e-6, 5e-5, 1e-3]))


def a_cluster(chance: random.Random, most_machines: int = 12) -> Topology:
    """One to four levels of domains, islands or not, one to three GPU types, machines of different sizes and links."""
    depth = chance.choice([0, 1, 1, 2, 2, 2, 3])  # names in a path
    islands = chance.random() < 0.3
    names = ["machine", "rack", "block", "pod"][: depth or 1]
    outer = names[1:] + (["cluster"] if depth else [])
    inner = ["island", "machine"] if islands else ["machine"]
    levels = [a_level(chance, name) for name in (*inner, *outer)]
    types = chance.sample(TYPES, chance.choice([1, 1, 1, 2, 3]))
    plain = chance.random() < 0.4
    size = chance.choice([1, 2, 3, 4, 5, 8])
    specs = []
    paths = _paths(chance, depth, most_machines)
    for path in paths:
        gpus = size if plain else chance.choice([1, 2, 3, 4, 6, 8, 16])
        parts: tuple[int, ...] = ()
        if islands:
            parts = tuple(_cut(chance, gpus))
        links = ()
        if not plain and chance.random() < 0.2:
            links = tuple(Level(level.name, level.kind, chance.choice([8e9, 50e9, 300e9]), level.latency)
                          for level in levels[: len(inner)])  # fmt: skip
        specs.append(MachineSpec(path, gpus, chance.choice(types), parts, links))
    return build_topology(levels, specs, name="random", machine_level=len(inner) - 1)


def _paths(chance: random.Random, depth: int, most: int) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [()]
    for level in range(depth):
        grown = [(*path, f"{level}-{number}") for path in paths for number in range(chance.choice([1, 2, 2, 3, 4]))]
        paths = grown[:most]
    return paths


def _cut(chance: random.Random, gpus: int) -> list[int]:
    parts = []
    while gpus:
        part = chance.randint(1, gpus)
        parts.append(part)
        gpus -= part
    return parts


def a_network(chance: random.Random, text: str, topology: Topology) -> NetworkModel:
    if text.startswith("tabled "):
        return Tabled(make_network(text.removeprefix("tabled "), topology), a_table(chance, topology), topology)
    return make_network(text, topology)


def a_table(chance: random.Random, topology: Topology) -> Throughputs:
    """A speed for every model and size on every GPU type, in any order of types."""
    alone = {gpu_name(kind): {(model or "", gpus): chance.uniform(0.1, 50) for model in MODELS for gpus in range(1, 97)}
             for kind in topology.gpu_types}  # fmt: skip
    return Throughputs("a made table", alone, {}, {})


def a_job(chance: random.Random, topology: Topology, models: Sequence[str | None] = MODELS, name: str = "a",
          submit: float = 0.0) -> Job:  # fmt: skip
    kind = chance.choice([None, *topology.gpu_types])
    room = topology.capacity(kind)
    gpus = min(room, chance.choice([1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16, 24, room, chance.randint(1, room)]))
    fewest = most = None
    if chance.random() < 0.25:
        fewest, most = chance.randint(1, gpus), min(room, gpus + chance.randint(0, 4))
    return Job(name, submit, gpus, gpu_type=kind, model=chance.choice(models), min_gpus=fewest, max_gpus=most)


def a_placement(chance: random.Random, topology: Topology, job: Job) -> Placement:
    """Any GPUs of one type: scattered, packed, or so many per machine."""
    kinds = [kind for kind in topology.gpu_types
             if job.gpu_type in (None, kind) and topology.capacity(kind) >= job.gpus]  # fmt: skip
    kind = chance.choice(kinds)
    machines = [machine for machine in topology.machines if machine.gpu_type == kind]
    order = list(machines)
    chance.shuffle(order)
    per_machine = chance.choice([1, 2, 3, 4, 8, 99])
    if chance.random() < 0.3:  # near each other
        order = machines[(start := chance.randrange(len(machines))) :] + machines[:start]
    taken: dict[int, int] = {}
    left = job.gpus
    while left:
        for machine in order:
            free = machine.gpus - taken.get(machine.index, 0)
            more = min(left, free, per_machine if chance.random() < 0.8 else chance.randint(1, per_machine))
            if more:
                taken[machine.index] = taken.get(machine.index, 0) + more
                left -= more
    slices = []
    for index, count in taken.items():
        gpus = list(range(topology.machines[index].gpus))
        if chance.random() < 0.5:
            chance.shuffle(gpus)
        slices.append((index, sum(1 << gpu for gpu in gpus[:count])))
    return Placement.of(slices)


def a_step_from(chance: random.Random, topology: Topology, placement: Placement) -> Placement:
    """GPUs near these: one to three moves of what a machine has to another machine."""
    for _ in range(chance.randint(1, 3)):
        near = list(islice(neighbours(topology, placement), 200))
        if near:
            placement = chance.choice(near)
    return placement


def an_experiment(chance: random.Random) -> Experiment:
    """A small run: a few jobs, any network, faults or none, preemption for nothing or at a price."""
    topology = a_cluster(chance, 6)
    text = chance.choice([name for name in NETWORKS if name.startswith("tabled") or "[" not in name] + ["analytic"] * 3)
    jobs = []
    truths = []
    when = 0.0
    scale = chance.choice([1.0, 60.0, 3600.0])
    for number in range(chance.choice([1, 2, 3, 4, 6, 8, 12])):
        when += chance.choice([0.0, 0.0, chance.uniform(0, 20) * scale])
        jobs.append(a_job(chance, topology, FAST, f"j{number}", when))
        truths.append(Truth(chance.uniform(0.01, 60) * scale, means=chance.choice(list(DurationMeans)),
                            failures=(chance.random(),) if chance.random() < 0.1 else ()))  # fmt: skip
    faults = FaultRules()
    if chance.random() < 0.3:
        faults = FaultRules(mtbf=500 * scale, mttr=5 * scale, job_mtbf=200 * scale, checkpoint_interval=5 * scale)
    return Experiment(
        Trace("random", "made", jobs, truths), topology, text.removeprefix("tabled "),
        chance.choice(["0", "0", "5s", "model"]), seed=chance.randrange(1000),
        knowledge=chance.choice(["declared", "none", "noisy=0.7"]), faults=faults,
        slices=chance.choice(["fluid", "quanta"]), interference=chance.choice(["auto", "none"]),
        throughputs=a_table(chance, topology) if text.startswith("tabled") else None,
    )  # fmt: skip
