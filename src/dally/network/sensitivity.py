"""Network sensitivity: how much slower a job's step is at each level than inside one machine."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.topology import Topology
from dally.network.analytic import Analytic
from dally.network.shape import Shape, Tree
from dally.network.step import StepProfile


class Sensitivity(NamedTuple):
    """A gang as consolidated as a level allows while it still crosses it."""

    level: str
    shape: str
    profile: StepProfile
    ratio: float  # step time over step time on one machine
    imagined: bool  # on one machine larger than those of the cluster, to compare with


def sensitivity(network: Analytic, model: str | None, gpus: int, gpu_type: str | None = None) -> list[Sensitivity]:
    """The step at each level over the step on one machine."""
    topology = network.topology
    sample = next((m for m in topology.machines if gpu_type in (None, m.gpu_type)), topology.machines[0])
    own = topology.machine_level
    rows: list[Sensitivity] = []
    for level in range(own, len(topology.levels)):
        if level > own and gpus < 2:
            break
        shape = spread(topology, gpus, level, sample.index, network)
        profile = network.shaped(model, shape)
        ratio = profile.alone / rows[0].profile.alone if rows else 1.0
        name = topology.levels[level].name
        rows.append(Sensitivity(name, shape_text(shape, own), profile, ratio, level == own and gpus > sample.gpus))
    return rows


def spread(topology: Topology, gpus: int, level: int, machine: int, network: Analytic) -> Shape:
    """`gpus` over two units attached to a level, inside them on as few machines as possible.

    At the machine's own level: all in one machine, larger than there are if need be.
    """
    sample = topology.machines[machine]
    own = topology.machine_level
    kind = network.shapes.of_machine(machine)
    size = max(mask.bit_count() for mask in sample.islands) if sample.islands else gpus

    def leaf(count: int) -> Tree:
        if own == 0:
            return (kind, count)
        whole, rest = divmod(count, size)
        return (kind, (size,) * whole + ((rest,) if rest else ()))

    if level == own:
        return Shape(own, leaf(gpus))

    def machines(count: int) -> tuple[Tree, ...]:
        whole, rest = divmod(count, sample.gpus)
        return (leaf(sample.gpus),) * whole + ((leaf(rest),) if rest else ())

    if level == own + 1 and gpus > sample.gpus:
        return Shape(level, machines(gpus))
    units: list[Tree] = []
    for half in (gpus - gpus // 2, gpus // 2):
        if level == own + 1:
            units.append(leaf(half))
            continue
        tree: Tree = machines(half)  # a rack, and what holds it
        for _ in range(level - own - 2):
            tree = (tree,)
        units.append(tree)
    return Shape(level, tuple(sorted(units, reverse=True)))


def shape_text(shape: Shape, machine_level: int) -> str:
    """GPUs per machine: `8+8` in one rack, `8+8|8` over two, `||` between blocks."""
    if shape.top == machine_level:
        inside = shape.tree[1]
        return str(inside if machine_level == 0 else sum(inside))
    bar = "+" if shape.top == machine_level + 1 else "|" * (shape.top - machine_level - 1)
    return bar.join(shape_text(Shape(shape.top - 1, child), machine_level) for child in shape.tree)
