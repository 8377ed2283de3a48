"""Arithmetic of layers: parameters, floating-point operations, activations and memory traffic of each kind.

Everything here is counted, not measured. One multiply-add is two operations, all counts are per sample.
The backward pass of a layer has two halves: the gradient of its input and the gradient of its weights. For
convolutions, linear maps and recurrent cells each half costs as much as the forward pass; what has no
weights (attention scores) spends the same on the gradients of its two inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from dally.catalog.model import Layer
from dally.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What one operation costs per sample; several of them make up a row of a layer table."""

    tensors: tuple[int, ...]  # elements of each parameter tensor
    flops: int  # forward operations
    read: int  # elements of activations read
    written: int  # elements of activations written
    kept: int  # elements kept for the backward pass
    launches: int = 1  # forward kernels
    halves: int = 2  # backward matrix products of the size of the forward one: of the input, of the weights


def conv(
    channels_in: int,
    channels_out: int,
    kernel: int | tuple[int, int],
    out_size: tuple[int, int],
    in_size: tuple[int, int],
    *,
    groups: int = 1,
    bias: bool = False,
) -> Work:
    """A two-dimensional convolution that turns `in_size` (height, width) into `out_size`."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight = channels_out * (channels_in // groups) * height * width
    positions = out_size[0] * out_size[1]
    out = channels_out * positions
    read = channels_in * in_size[0] * in_size[1]
    tensors = (weight, channels_out) if bias else (weight,)
    return Work(tensors, 2 * weight * positions + (out if bias else 0), read, out, out)


def linear(inputs: int, outputs: int, *, positions: int = 1, bias: bool = True) -> Work:
    """A linear map applied at `positions` places of the sample (tokens, or one)."""
    weight = inputs * outputs
    out = outputs * positions
    tensors = (weight, outputs) if bias else (weight,)
    return Work(tensors, 2 * weight * positions + (out if bias else 0), inputs * positions, out, out)


def normalisation(channels: int, positions: int, *, affine: bool = True, shift: bool = True) -> Work:
    """Batch, layer, instance or (without shift) RMS normalisation over `channels` × `positions` elements.

    It reads its input twice, once for the moments and once to scale, and writes it once.
    """
    elements = channels * positions
    tensors = () if not affine else (channels, channels) if shift else (channels,)
    return Work(tensors, 5 * elements, 2 * elements, elements, elements)


def activation(elements: int) -> Work:
    """An elementwise function computed in place or fused: read and written once, its output kept."""
    return Work((), elements, elements, elements, elements, halves=1)


def embedding(rows: int, width: int, *, positions: int) -> Work:
    """A table of `rows` vectors of which `positions` are looked up per sample."""
    out = width * positions
    return Work((rows * width,), 0, out, out, 0)


def free_tensor(elements: int, added_to: int = 0) -> Work:
    """A parameter that is only added to an activation: a class token, position embedding or bias."""
    return Work((elements,), added_to, added_to, added_to, 0)


def attention(heads: int, head_width: int, queries: int, keys: int | None = None) -> Work:
    """Scores and weighted sum of attention, without its projections; masked halves are counted in full.

    Traffic and kept elements assume a fused kernel that never writes the score matrix (FlashAttention,
    arXiv 2205.14135), which is what the 16-bit models of the catalog are trained with.
    """
    keys = queries if keys is None else keys
    width = heads * head_width
    return Work(
        (), 4 * queries * keys * width, width * (queries + 2 * keys), width * queries, width * queries
    )


def recurrent(
    inputs: int, hidden: int, *, steps: int, gates: int, directions: int = 1, bias: bool = True
) -> Work:
    """One layer of LSTM (4 gates) or GRU (3) cells over `steps` time steps, PyTorch's two bias vectors."""
    weights = (gates * hidden * inputs, gates * hidden * hidden)
    one = weights + ((gates * hidden, gates * hidden) if bias else ())
    flops = 2 * sum(weights) * steps * directions
    out = hidden * steps * directions
    # The hidden part of each step waits for the step before it: one kernel per time step.
    return Work(one * directions, flops, inputs * steps, out, out * (gates + 1), steps)


class Table:
    """A layer table under construction; a row is one weight layer with what normally is fused to it."""

    def __init__(self, gradient_width: int = 4) -> None:
        self.gradient_width = gradient_width  # bytes per gradient element
        self.layers: list[Layer] = []

    def row(
        self,
        name: str,
        kind: str,
        work: Sequence[Work],
        *,
        runs: int = 1,
        synchronised: bool = True,
        input_gradient: bool | None = None,
    ) -> None:
        """Append a row of one or more operations that run `runs` times a step.

        The first row has no input gradient, since nobody needs the gradient of the data. A row that is not
        `synchronised` belongs to one GPU alone (model-parallel embeddings) and sends no gradients.
        """
        parameters = sum(sum(item.tensors) for item in work)
        flops = runs * sum(item.flops for item in work)
        if input_gradient is None:
            input_gradient = bool(self.layers)
        second = runs * sum(item.flops for item in work if item.halves == 2)
        self.layers.append(
            Layer(
                name=name,
                kind=kind,
                parameters=parameters,
                gradient_bytes=parameters * self.gradient_width if synchronised else 0,
                forward_flops=flops,
                input_gradient_flops=flops if input_gradient else 0,
                weight_gradient_flops=second,
                tensors=tuple(size for item in work for size in item.tensors),
                activation_elements=runs * sum(item.kept for item in work),
                traffic_elements=runs * sum(item.read + item.written for item in work),
                launches=runs * sum(item.launches for item in work),
            )
        )
