"""One data-parallel training step: gradients are all-reduced in buckets while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.network.astra.collective import Fabric
from dally.network.astra.layers import Layer, compute_ns

BUCKET_BYTES = 25 * 2**20  # PyTorch DistributedDataParallel's default


@dataclass(frozen=True, slots=True)
class StepNs:
    """A step in whole nanoseconds: what it takes, what it computes, and the wait that is left exposed."""

    total: int
    compute: int
    exposed: int

    @property
    def share(self) -> float:
        """f = compute / (compute + exposed)."""
        return self.compute / (self.compute + self.exposed)


def buckets(layers: Sequence[Layer], bucket_bytes: int | None) -> list[tuple[int, int]]:
    """(when its gradients are ready, bytes) of every all-reduce of a step, in the order they are issued.

    A bucket closes at the layer that fills it to `bucket_bytes`; None gives every layer one of its own.
    """
    if bucket_bytes is not None and bucket_bytes < 1:
        raise UserError(f"a bucket must hold at least one byte, not {bucket_bytes}")
    now = sum(layer.forward_ns for layer in layers)
    out: list[tuple[int, int]] = []
    pending = 0
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        now += layer.weight_gradient_ns
        pending += layer.gradient_bytes
        if pending and (bucket_bytes is None or pending >= bucket_bytes or index == 0):
            out.append((now, pending))
            pending = 0
        now += layer.input_gradient_ns
    return out


def data_parallel_step_ns(
    layers: Sequence[Layer],
    fabric: Fabric,
    bucket_bytes: int | None = BUCKET_BYTES,
    optimizer_ns: int = 0,
) -> StepNs:
    """end = max(end, backward_end_k) + T_k over the buckets; the step ends at max(end, compute) + optimiser.

    ASTRA-sim keeps one collective in flight per GPU: those that are ready run one after another.
    """
    if not layers:
        raise UserError("a step needs at least one layer")
    compute = compute_ns(tuple(layers))
    end = 0
    for ready, size in buckets(layers, bucket_bytes):
        end = max(end, ready) + fabric.collective_ns("all-reduce", size)
    exposed = max(0, end - compute)
    return StepNs(compute + exposed + optimizer_ns, compute + optimizer_ns, exposed)
