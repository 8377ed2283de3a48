"""How long one phase of a collective takes on one dimension: ASTRA-sim's formulas in closed form.

The symbols are those of `messages`: n, D, m, e, t (one message) and r (one reduction).
"""

from __future__ import annotations

from dally.network.astra.messages import (
    Operation,
    halving_doubling_chain,
    message_bytes,
    message_ns,
    reduction_ns,
)
from dally.network.astra.model import Algorithm, Backend, Dimension
from dally.network.astra.replay import Work, replay_ns


def ring_ns(operation: Operation, size: int, dim: Dimension, e: int, mem: float, backend: Backend) -> int:
    """AR = (2n−1)e + 2(n−1)t + (n−1)r; RS = n·e + (n−1)(t+r); AG = n·e + (n−1)t.

    An all-to-all hands every block on step by step: with s = n(n−1)/2, A2A = (s+1)e + s·t.
    """
    n = dim.size
    m = message_bytes(operation, size, n)
    t = message_ns(m, dim, 1, backend)
    if operation == "AR":
        return (2 * n - 1) * e + 2 * (n - 1) * t + (n - 1) * reduction_ns(m, mem)
    if operation == "RS":
        return n * e + (n - 1) * (t + reduction_ns(m, mem))
    steps = n * (n - 1) // 2 if operation == "A2A" else n - 1
    return (steps + 1) * e + steps * t


def halving_doubling_ns(
    operation: Operation, size: int, dim: Dimension, e: int, mem: float, backend: Backend
) -> int:
    """AR = (2k+1)e + 2Σt_i + Σ_{i≥2} r(D/2^i); RS = (k+1)e + Σt_i + Σ_{i≥2} r(D/2^i); AG = (k+1)e + Σt_i."""
    chain = halving_doubling_chain(operation, size, dim.size, mem)
    total = (len(chain) + 1) * e
    for message in chain:
        total += message_ns(message.size, dim, message.distance, backend) + message.reduction_ns
    return total


def direct_ns(operation: Operation, size: int, dim: Dimension, e: int, mem: float, backend: Backend) -> int:
    """AR = 3e + 2t + r; RS = 2e + t + r; AG and A2A = 2e + t, t until the last of n − 1 messages is in.

    Aware, a switch takes the messages one after another: t = (n−2)⌊m/B⌋ + 2⌊L + m/B⌋. Where messages share
    the links of a ring, or where the second burst of an all-reduce starts before the first is fully
    reduced, there is no such formula and the messages are replayed.
    """
    n = dim.size
    m = message_bytes(operation, size, n)
    r = reduction_ns(m, mem) if operation in ("AR", "RS") else 0
    if dim.kind == "fully-connected" or n == 2:
        t = message_ns(m, dim, 1, backend)
    elif dim.kind == "switch":
        t = message_ns(m, dim, 1, backend)
        if backend == "aware":
            serialization = int(m / (dim.bandwidth / 1e9))
            t += (n - 2) * serialization
            if operation == "AR" and e + r >= serialization:
                return _replayed(operation, size, dim, e, mem, backend)
    elif backend == "unaware" and operation != "AR":
        t = message_ns(m, dim, n // 2, backend)  # the farthest arrives last
    else:
        return _replayed(operation, size, dim, e, mem, backend)
    return 3 * e + 2 * t + r if operation == "AR" else 2 * e + t + r


def _replayed(operation: Operation, size: int, dim: Dimension, e: int, mem: float, backend: Backend) -> int:
    return replay_ns([Work(operation, "direct", dim, 0, size, (0,))], 1, 1, e, mem, backend)


_FORMULAS = {"ring": ring_ns, "halving-doubling": halving_doubling_ns, "direct": direct_ns}


def phase_ns(
    algorithm: Algorithm,
    operation: Operation,
    size: int,
    dim: Dimension,
    e: int,
    mem: float,
    backend: Backend,
) -> int:
    """The time of one phase that has its dimension to itself."""
    return _FORMULAS[algorithm](operation, size, dim, e, mem, backend)
