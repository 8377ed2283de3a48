"""Layouts of large models: tensor groups on neighbouring GPUs, pipeline stages next to each other, data outside.

GPUs are taken in the order of the topology, fullest machines first, so a tensor group sits in the fastest domain
that has room for it, stages of one copy of the model follow each other, and the copies' gradients cross the
rest. This is the order of Megatron-LM (arXiv 2104.04473, section 3.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from dally.network.group import Group
from dally.network.nccl import LAUNCH, Collective, Cost, choose, costs
from dally.network.shape import Shape, Wires, subset

if TYPE_CHECKING:
    from dally.catalog import Gpu, Model

_BLOCK = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|encoder|decoder)\.(\d+)\.")
_MANY_GROUPS = 64  # groups of a gang looked at for the slowest one; more only repeat the same shapes


@dataclass(frozen=True, slots=True)
class Layout:
    """`tensor` × `pipeline` GPUs hold one copy of the model; there are `data` copies."""

    tensor: int
    pipeline: int
    data: int
    sharded: bool
    notes: tuple[str, ...] = ()

    @property
    def copy(self) -> int:
        return self.tensor * self.pipeline

    def text(self) -> str:
        parts = []
        if self.tensor > 1:
            parts.append(f"tensor {self.tensor}")
        if self.pipeline > 1:
            parts.append(f"pipeline {self.pipeline}")
        if self.data > 1 or not parts:
            parts.append(f"{'sharded data' if self.sharded else 'data'} {self.data}")
        return " × ".join(parts)


@lru_cache(maxsize=4096)
def layout_for(model: Model, gpus: int, gpu: Gpu, batch: int | None = None) -> Layout:
    """From the catalog's hints: the largest power of two that divides the gang, up to the hint, for each degree."""
    hint = model.parallelism
    tensor = _degree(hint.tensor, gpus)
    pipeline = _degree(hint.pipeline, gpus // tensor)
    data = gpus // (tensor * pipeline)
    notes = []
    if tensor * pipeline < hint.model_parallel:
        notes.append(
            f"{model.name} is normally spread over {hint.model_parallel} GPUs; {gpus} allow {tensor * pipeline}"
        )
    needed = model.memory_bytes(batch, gpus)
    if needed > gpu.memory_bytes:
        notes.append(
            f"it needs {needed / 1e9:.0f} GB on each GPU where the {gpu.name} has "
            f"{gpu.memory_bytes / 1e9:.0f}: states are taken to be offloaded to host memory, at no cost in time"
        )
    return Layout(tensor, pipeline, data, hint.sharded and data > 1, tuple(notes))


def _degree(hint: int, gpus: int) -> int:
    degree = 1
    while degree * 2 <= hint and gpus % (degree * 2) == 0:
        degree *= 2
    return hint if hint <= gpus and gpus % hint == 0 else degree


def blocks_of(model: Model) -> int:
    """Blocks of a transformer, by the numbers in its layers' names; 0: it has none."""
    return len({match[1] for layer in model.layers if (match := _BLOCK.search(layer.name))})


def hidden_elements(model: Model) -> int:
    """Elements of one sample's activation between blocks: what an embedding writes, else the mean of all layers."""
    for layer in model.layers:
        if layer.kind == "embedding" and layer.traffic_elements:
            return layer.traffic_elements // 2
    return sum(layer.activation_elements for layer in model.layers) // max(1, len(model.layers))


class Exchanges(Protocol):
    """What the collectives of a step cost."""

    def gang(self, op: Collective, size: float) -> Cost:
        """A collective of all GPUs."""
        ...

    def data(self, op: Collective, size: float) -> Cost:
        """A collective among the copies of the model."""
        ...

    def tensor(self, size: float) -> Cost:
        """An all-reduce inside a tensor group."""
        ...

    def hop(self) -> Cost:
        """A message from one pipeline stage to the next."""
        ...


class ShapeCosts:
    """Exchanges on GPUs of a shape."""

    def __init__(self, shape: Shape, wires: Wires, layout: Layout, algorithm: str) -> None:
        self._shape, self._wires, self._layout, self._algorithm = shape, wires, layout, algorithm
        self._whole: dict[Collective, tuple[Cost, ...]] = {}

    def gang(self, op: Collective, size: float) -> Cost:
        found = self._whole.get(op)
        if found is None:
            found = self._whole[op] = costs(self._shape, self._wires, op, self._algorithm)
        return choose(found, size)

    def data(self, op: Collective, size: float) -> Cost:
        if self._layout.copy == 1:
            return self.gang(op, size)
        return data_cost(self._shape, self._wires, self._layout, op, size, self._algorithm)

    def tensor(self, size: float) -> Cost:
        return tensor_cost(self._shape, self._wires, self._layout, size, self._algorithm)

    def hop(self) -> Cost:
        return hop_cost(self._shape, self._wires, self._layout)


def tensor_cost(shape: Shape, wires: Wires, layout: Layout, size: float, algorithm: str) -> Cost:
    """All-reduce of an activation inside the slowest tensor group."""
    t = layout.tensor
    starts = range(0, layout.data * layout.copy, t)
    return _slowest(shape, wires, [range(s, s + t) for s in starts], "all-reduce", size, algorithm)


def data_cost(shape: Shape, wires: Wires, layout: Layout, op: Collective, size: float, algorithm: str) -> Cost:
    """A collective among the copies, with those of the other ranks of a copy on the same ports at the same time."""
    if layout.copy == 1:
        return choose(costs(shape, wires, op, algorithm), size)
    n, step = layout.data * layout.copy, layout.copy
    groups = [range(rank, n, step) for rank in range(step)]
    return _crowded(_slowest(shape, wires, groups, op, size, algorithm), Group(shape, wires), step)


def hop_cost(shape: Shape, wires: Wires, layout: Layout) -> Cost:
    """An activation from one pipeline stage to the next, over the widest gap between two stages."""
    group = Group(shape, wires)
    own, t = wires.machine_level, layout.tensor
    pairs = [
        (a, a + t)
        for copy in range(0, group.n, layout.copy)
        for a in range(copy, copy + layout.copy - t)
    ]
    top = max(_meeting(group, a, b) for a, b in pairs)
    phase = [(q, group.slowness[q]) for q in (range(own + 1, top + 1) if top > own else (top,))]
    if top > own:
        phase.append((wires.host, group.host))
    levels = len(wires.levels)
    traffic = tuple(float(level == top) for level in range(levels))
    ports = tuple(float(any(q == level for q, _ in phase)) for level in range(levels))
    alone = max(c for _, c in phase)
    cost = Cost("send", LAUNCH + wires.latency[top], (tuple(phase),), alone, ports, traffic)
    return _crowded(cost, group, t)


def _meeting(group: Group, a: int, b: int) -> int:
    for level, spans in enumerate(group.spans):
        if any(start <= a < stop and start <= b < stop for start, stop in spans):
            return level
    return group.top


def _slowest(
    shape: Shape, wires: Wires, groups: list[range], op: Collective, size: float, algorithm: str
) -> Cost:
    """What the slowest of several groups of equal size would choose."""
    stride = -(-len(groups) // _MANY_GROUPS)
    shapes = {subset(shape, group, wires.machine_level) for group in groups[::stride]} | {
        subset(shape, groups[-1], wires.machine_level)
    }
    chosen = [choose(costs(part, wires, op, algorithm), size) for part in sorted(shapes)]
    return max(chosen, key=lambda cost: cost.seconds(size))


def _crowded(cost: Cost, gang: Group, groups: int) -> Cost:
    """The same collective run by several groups at once: they share the ports of islands, machines and racks.

    A GPU's own port and its slot are its own, so level 0 and the host's share stay as they are.
    """
    levels = len(gang.wires.levels)
    crowd = [1.0] * (levels + 1)
    for level in range(1, gang.top + 1):
        crowd[level] = float(min(groups, max(stop - start for start, stop in gang.spans[level - 1])))
    rate = tuple(tuple((level, c * crowd[level]) for level, c in phase) for phase in cost.rate)
    return replace(
        cost,
        rate=rate,
        alone=sum(max(c for _, c in phase) for phase in rate),
        ports=tuple(a * b for a, b in zip(cost.ports, crowd, strict=False)),
        traffic=tuple(a * groups for a in cost.traffic),
    )
