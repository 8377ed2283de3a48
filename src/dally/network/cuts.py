"""The computing of a step, cut where something is sent: what a step has in common on GPUs of every shape."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dally.network.parallel import Layout

if TYPE_CHECKING:
    from dally.catalog import Gpu, Model

BUCKET: Final = 25 * 2**20  # PyTorch DistributedDataParallel's default
_MOST_UNITS: Final = 64  # sharded units of a model: a transformer has some dozens of blocks


@lru_cache(maxsize=512)
def passes(model: Model, gpu: Gpu, batch: int) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    from dally.catalog import compute_time, update_time

    forward, backward = compute_time(model, gpu, batch)
    return forward, backward, update_time(model, gpu)


class Cuts:
    """Seconds of computing of a layout, in all and for the layers of each collective of gradients."""

    __slots__ = ("backward", "backwards", "compute", "forward", "forwards", "layers", "left", "rest", "sizes", "update",
                 "weights")  # fmt: skip

    def __init__(self, model: Model, gpu: Gpu, batch: int, layout: Layout, bucket: float | None) -> None:
        forward, backward, update = passes(model, gpu, batch)
        stretch = 1 / layout.copy  # every GPU of a copy does its part
        if layout.pipeline > 1:
            # 1F1B: p − 1 of the slots of m micro-batches are a bubble (arXiv 2104.04473, section 2.2).
            stretch *= 1 + (layout.pipeline - 1) / batch
        forward = tuple([seconds * stretch for seconds in forward])
        backward = tuple([seconds * stretch for seconds in backward])
        self.update = update / (layout.copy * (layout.data if layout.sharded else 1))
        self.forward, self.backward = float(sum(forward)), float(sum(backward))
        self.compute = self.forward + self.backward + self.update
        # first and last layer: of units in forward order, of buckets in the order in which they are ready
        self.layers: list[tuple[int, int]] = []
        self.sizes: list[float] = []  # bytes of their gradients
        self.weights: list[float] = []  # and of the weights of a unit
        self.forwards: list[float] = []  # seconds of the layers of a unit
        self.backwards: list[float] = []  # and from the one before to the first layer of a unit or bucket
        self.left: list[float] = []  # seconds of the backward pass to come after it
        done = len(backward)
        if layout.sharded:
            weight = model.precision.compute_width / model.precision.gradient_width
            for first, last, size in _in_units(model, layout.copy, bucket):
                self.weights.append(size * weight)
                self.forwards.append(float(sum(forward[first : last + 1])))
                self._cut(first, last, size, backward[first : last + 1], backward)
            done = 0
        elif layout.data > 1:
            for first, last, size in _in_buckets(model, layout.copy, bucket):
                self._cut(first, last, size, backward[first:done], backward)
                done = first
        # the layers that no bucket is sent after
        self.rest: float | None = float(sum(backward[:done])) if done else None

    def _cut(self, first: int, last: int, size: float, spent: tuple[float, ...], backward: tuple[float, ...]) -> None:
        self.layers.append((first, last))
        self.sizes.append(size)
        self.backwards.append(float(sum(spent)))
        self.left.append(float(sum(backward[:first])))


@lru_cache(maxsize=4096)
def cuts_of(model: Model, gpu: Gpu, batch: int, layout: Layout, bucket: float | None) -> Cuts:
    return Cuts(model, gpu, batch, layout, bucket)


def _in_buckets(model: Model, copy: int, bucket: float | None) -> list[tuple[int, int, float]]:
    """First and last layer and bytes of every bucket: it closes at the layer that fills it, from the last layer to the
    first."""
    found: list[tuple[int, int, float]] = []
    limits = iter(model.buckets if copy == 1 and bucket == BUCKET else ())
    limit = 0.0 if bucket is None else bucket
    pending, last = 0.0, len(model.layers) - 1
    for index in range(len(model.layers) - 1, -1, -1):
        if not pending:
            last = index
            limit = next(limits, limit)  # buckets as DDP was seen to make them; a layer may be cut, so nearly
        pending += model.layers[index].gradient_bytes / copy
        if pending and (pending >= limit or index == 0):
            found.append((index, last, pending))
            pending = 0.0
    return found


def _in_units(model: Model, copy: int, bucket: float | None) -> list[tuple[int, int, float]]:
    """First and last layer and bytes of the gradients of every unit, in forward order."""
    found: list[tuple[int, int, float]] = []
    total = sum(layer.gradient_bytes for layer in model.layers) / copy
    limit = max(bucket or 1.0, total / _MOST_UNITS)
    pending, first = 0.0, 0
    for index, layer in enumerate(model.layers):
        pending += layer.gradient_bytes / copy
        if pending >= limit or index == len(model.layers) - 1:
            found.append((first, index, pending))
            pending, first = 0.0, index + 1
    return found
