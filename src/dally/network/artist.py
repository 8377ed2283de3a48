"""The `artist` fidelity: a training step as the Dally authors' simulator had it from ASTRA-sim 1.0.

ArtISt-sim ran every model's layers through ASTRA-sim 1.0's congestion-unaware network with the "baseline"
collective: a full all-reduce of each layer's gradient in every dimension in turn, always by ring. A
dimension carries one collective at a time; the next one may already use the dimension before it. Among
those waiting for a dimension the youngest goes first (LIFO).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.network.astra.layers import Layer, compute_ns
from dally.network.astra.model import GIB, Kind
from dally.network.astra.step import StepNs

ENDPOINT_DELAY_NS = 10
LOCAL_MEMORY_BYTES_PER_NS = 500_000  # the reduction r(m) = 3·⌊m/500000⌋ seen in their runs


@dataclass(frozen=True, slots=True)
class ArtistDimension:
    """One dimension of an ASTRA-sim 1.0 hierarchy."""

    kind: Kind
    size: int
    links: int
    bandwidth: float  # bytes per second of one link
    latency_ns: float  # per hop

    def __post_init__(self) -> None:
        if self.size < 1 or self.links < 1:
            raise UserError(f"a dimension needs a GPU and a link at least, not {self.size} and {self.links}")
        if self.size > 1 and self.usable_links < 1:
            raise UserError(f"{self.links} links cannot connect {self.size} GPUs ({self.kind})")
        if not self.bandwidth > 0 or not self.latency_ns >= 0:
            raise UserError("a dimension's bandwidth must be positive and its latency must not be negative")

    @property
    def usable_links(self) -> int:
        """Links one message is spread over: all of a switch's, a ring's in pairs, a mesh's per neighbour."""
        if self.kind == "fully-connected":
            return self.links // max(1, self.size - 1)
        return self.links - self.links % 2 if self.kind == "ring" else self.links


def links_of(kind: Kind, size: int) -> int:
    """The links the authors give a dimension: an even number of at least 4 on a ring, else one per GPU."""
    return max(4, size + size % 2) if kind == "ring" else size


def original_dimension(level: str, size: int) -> ArtistDimension:
    """A dimension of the authors' fabric: `mesh` and `machine` inside a machine, `rack`, `cluster`."""
    try:
        kind, gigabytes, latency_ns = _ORIGINAL[level]
    except KeyError:
        levels = ", ".join(_ORIGINAL)
        raise UserError(f"{level!r} is not a level of Dally's fabric; choose from {levels}") from None
    return ArtistDimension(kind, size, links_of(kind, size), gigabytes * GIB, latency_ns)


_ORIGINAL: dict[str, tuple[Kind, float, float]] = {
    "mesh": ("fully-connected", 600, 0),
    "machine": ("ring", 600, 500),
    "rack": ("ring", 200, 5_000),
    "cluster": ("switch", 400, 50_000),
}


def all_reduce_ns(size: int, dim: ArtistDimension) -> int:
    """(2n−1)e + 2(n−1)·⌊h·L + m/(links·B)⌋ + (n−1)·r(m) with m = ⌊D/n⌋ and h = 2 for a switch, else 1."""
    n = dim.size
    m = size // n
    latency = (2 if dim.kind == "switch" else 1) * dim.latency_ns
    t = int(latency + m / (dim.bandwidth * dim.usable_links / 1e9))
    r = 3 * (m // LOCAL_MEMORY_BYTES_PER_NS)
    return (2 * n - 1) * ENDPOINT_DELAY_NS + 2 * (n - 1) * t + (n - 1) * r


def artist_step_ns(
    layers: Sequence[Layer], dims: Sequence[ArtistDimension], silent_layers: int = 0
) -> StepNs:
    """One step: forward, then per layer weight gradient, all-reduce issued, input gradient.

    ASTRA-sim 1.0 spends one cycle between two of these. `silent_layers` counts layers without parameters
    that a table leaves out: they compute nothing but spend their three cycles before the first all-reduce.
    """
    if not layers:
        raise UserError("a step needs at least one layer")
    active = [dim for dim in dims if dim.size > 1]
    compute = compute_ns(tuple(layers))
    now = sum(layer.forward_ns + 1 for layer in layers) + 3 * silent_layers
    issued: list[tuple[int, Layer]] = []
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        now += layer.weight_gradient_ns
        issued.append((now, layer))
        if index:
            now += layer.input_gradient_ns + 2
    end = max(now, _last_update_ns(issued, active))
    return StepNs(end, compute, end - compute)


def _last_update_ns(issued: list[tuple[int, Layer]], dims: list[ArtistDimension]) -> int:
    """When the last layer has been all-reduced in every dimension and updated."""
    known: dict[tuple[int, int], int] = {}
    waiting: list[list[int]] = [[] for _ in dims]  # negated issue numbers: the youngest first
    busy = [False] * len(dims)
    events: list[tuple[int, int, int, int]] = []  # (time, order, issue number, dimension just left)
    for number, (ready, layer) in enumerate(issued):
        if layer.gradient_bytes:
            events.append((ready, number, number, -1))
    order = len(issued)
    end = 0
    while events:
        now, _, number, left = heappop(events)
        if left >= 0:
            busy[left] = False
        entered = left + 1
        if entered == len(dims):
            end = max(end, now + issued[number][1].update_ns)
        else:
            heappush(waiting[entered], -number)
        for index in (entered, left):
            if 0 <= index < len(dims) and waiting[index] and not busy[index]:
                busy[index] = True
                first = -heappop(waiting[index])
                size = issued[first][1].gradient_bytes
                if (size, index) not in known:
                    known[size, index] = all_reduce_ns(size, dims[index])
                heappush(events, (now + known[size, index], order, first, index))
                order += 1
    return end
