"""What one GPU sends in one phase of a collective, and what a lone message costs: ASTRA-sim's rules.

Symbols, as in `docs/network/astra.md`: n GPUs on the dimension, D bytes going in, m bytes per message,
B bytes per nanosecond, L latency per hop, h hops, e endpoint delay, r(m) the reduction of m bytes.
Sizes are whole bytes and every division of them drops the remainder, because ASTRA-sim's do.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from dally.core.errors import UserError
from dally.network.astra.model import Algorithm, Backend, Dimension

Operation = Literal["AR", "RS", "AG", "A2A"]


class Message(NamedTuple):
    """One message of a chain: the next one leaves e + `reduction_ns` after it has arrived."""

    size: int
    distance: int
    reduction_ns: int


def reduction_ns(m: int, local_mem_bandwidth: float) -> int:
    """r(m) = 3·⌊m / local memory bandwidth⌋: one write and two reads."""
    return 3 * int(m / local_mem_bandwidth * 1e9)


def hops(dim: Dimension, distance: int) -> int:
    """h: ring min(distance, n − distance), fully connected 1, switch 2."""
    if dim.kind == "ring":
        return min(distance, dim.size - distance)
    return 2 if dim.kind == "switch" else 1


def message_ns(m: int, dim: Dimension, distance: int, backend: Backend) -> int:
    """One message alone: unaware t = ⌊h·L + m/B⌋; aware t = h·⌊L + m/B⌋, store and forward."""
    h = hops(dim, distance)
    serialization = m / (dim.bandwidth / 1e9)
    if backend == "aware":
        return h * int(dim.latency_ns + serialization)
    return int(h * dim.latency_ns + serialization)


def bytes_out(operation: Operation, size: int, n: int) -> int:
    """All-reduce and all-to-all keep D, a reduce-scatter leaves D/n, an all-gather makes D·n."""
    if operation == "RS":
        return size // n
    return size * n if operation == "AG" else size


def message_bytes(operation: Operation, size: int, n: int) -> int:
    """m of the ring and the direct algorithm: D/n, but D for an all-gather."""
    return size if operation == "AG" else size // n


def ring_chain(operation: Operation, size: int, n: int, mem: float) -> list[Message]:
    """A ring sends m to its neighbour 2(n−1) times (AR), n−1 times (RS, AG) or n(n−1)/2 times (A2A)."""
    m = message_bytes(operation, size, n)
    plain, reduced = Message(m, 1, 0), Message(m, 1, reduction_ns(m, mem))
    if operation == "AR":
        return [reduced] * (n - 1) + [plain] * (n - 1)
    if operation == "RS":
        return [reduced] * (n - 1)
    return [plain] * (n * (n - 1) // 2 if operation == "A2A" else n - 1)


def halving_doubling_chain(operation: Operation, size: int, n: int, mem: float) -> list[Message]:
    """Step i of the halving sends D/2^i over distance 2^(i−1); the doubling goes the same way back."""
    if operation == "A2A":
        raise UserError("ASTRA-sim has no all-to-all by halving-doubling; choose ring or direct")
    k = n.bit_length() - 1
    if operation == "AG":
        return [Message(size << i, n >> (i + 1), 0) for i in range(k)]
    # The reduction charged after an arrival is that of the next message; the last arrival's is not charged.
    chain = [
        Message(size >> i, 1 << (i - 1), reduction_ns(size >> (i + 1), mem) if i < k else 0)
        for i in range(1, k + 1)
    ]
    if operation == "AR":
        start = (size >> (k + 1)) * 2  # ASTRA-sim halves once too often and doubles back: an odd byte is lost
        chain += [Message(start << i, n >> (i + 1), 0) for i in range(k)]
    return chain


def chain_of(
    algorithm: Algorithm, operation: Operation, size: int, n: int, mem: float
) -> list[Message]:
    """The messages a GPU sends one after another; the direct algorithm sends them all at once instead."""
    if algorithm == "ring":
        return ring_chain(operation, size, n, mem)
    return halving_doubling_chain(operation, size, n, mem)
