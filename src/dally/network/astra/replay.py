"""Replay every message of a collective on one GPU and its links, for the cases that have no closed form.

All GPUs of a dimension do the same thing at the same time, so one of them stands for all: what it sends to
the GPU at distance d is what it receives, at that same moment, from the GPU at distance d on the other side;
and a message that a neighbour's link forwards is one that its own link forwards. The congestion-aware
backend's links are first come, first served. Halving-doubling on a ring breaks this symmetry (half of the
GPUs send one way, half the other), so several chunks of it at once on such a dimension are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.network.astra.messages import (
    Operation,
    chain_of,
    message_bytes,
    message_ns,
    reduction_ns,
)
from dally.network.astra.model import Algorithm, Backend, Dimension


@dataclass(frozen=True, slots=True)
class Work:
    """One phase that every chunk goes through."""

    operation: Operation
    algorithm: Algorithm
    dim: Dimension
    index: int  # of the dimension: phases on the same one share its links
    size: int  # bytes going in
    queues: tuple[int, ...]  # chunk i waits in queue i mod their number
    clockwise: tuple[bool, ...] = (True,)  # the way round a ring that each of those queues goes


class _Links:
    """First-come-first-served links of one GPU, one set per dimension (congestion-aware)."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.free: dict[tuple[int, int], int] = {}

    def route(self, work: Work, distance: int, clockwise: bool) -> list[tuple[int, int]]:
        dim = work.dim
        if self.backend == "unaware":
            return []
        if dim.kind == "switch":
            return [(work.index, 0), (work.index, 1)]  # up, down
        if not clockwise:
            distance = dim.size - distance
        if dim.kind == "fully-connected":
            return [(work.index, distance)]
        other_way = dim.size - distance < distance  # at equal distance ASTRA-sim goes clockwise
        return [(work.index, 1 if other_way else 0)] * min(distance, dim.size - distance)

    def carry(self, link: tuple[int, int], now: int, m: int, dim: Dimension) -> int:
        """When a message handed to the link at `now` reaches its far end."""
        serialization = m / (dim.bandwidth / 1e9)
        start = max(now, self.free.get(link, 0))
        self.free[link] = start + int(serialization)
        return start + int(dim.latency_ns + serialization)


class _Chain:
    """Ring and halving-doubling: one message at a time, each after the one before it has arrived."""

    def __init__(self, work: Work, mem: float) -> None:
        self.messages = chain_of(work.algorithm, work.operation, work.size, work.dim.size, mem)
        self.sent = 0

    def injected(self) -> int:
        return 1

    def awake(self) -> list[tuple[int, int]]:
        """The endpoint is ready: what to send now, as (bytes, distance)."""
        if self.sent == len(self.messages):
            return []
        message = self.messages[self.sent]
        self.sent += 1
        return [(message.size, message.distance)]

    def arrived(self) -> int:
        """A message has arrived: the reduction to do before the endpoint is ready again."""
        return self.messages[self.sent - 1].reduction_ns

    def finished(self, awakenings: int) -> bool:
        return awakenings == len(self.messages) + 1


class _Burst:
    """Direct: n − 1 messages at once; an all-reduce sends as many again once all of them have arrived.

    ASTRA-sim lets the second burst start at the first reduction that ends after the last arrival, with as
    many messages as reductions have ended by then, so on unequal distances it is staggered.
    """

    def __init__(self, work: Work, mem: float) -> None:
        n = work.dim.size
        self.m = message_bytes(work.operation, work.size, n)
        self.peers = n - 1
        self.to_send = 2 * self.peers if work.operation == "AR" else self.peers
        self.reduces = work.operation in ("AR", "RS")
        self.two_bursts = work.operation == "AR"
        self.reduction = reduction_ns(self.m, mem)
        self.sent = self.received = self.ready = 0

    def injected(self) -> int:
        return self.peers

    def awake(self) -> list[tuple[int, int]]:
        self.ready += 1
        at_most = 1
        if self.two_bursts and self.sent >= self.peers:
            if self.received < self.peers:
                return []
            at_most = self.peers
        out: list[tuple[int, int]] = []
        while len(out) < at_most and self.ready and self.sent < self.to_send:
            out.append((self.m, self.sent % self.peers + 1))
            self.sent += 1
            self.ready -= 1
        return out

    def arrived(self) -> int:
        self.received += 1
        return self.reduction if self.reduces and self.received <= self.peers else 0

    def finished(self, awakenings: int) -> bool:
        return self.sent == self.to_send and awakenings == self.to_send + self.peers


def replay_ns(
    works: Sequence[Work], chunks: int, slots: int, endpoint_delay_ns: int, mem: float, backend: Backend
) -> int:
    """When the last of `chunks` equal chunks has gone through all phases, `slots` at a time per queue."""
    if backend == "aware" and (chunks > 1 or len(works) > 1):
        for work in works:
            if work.algorithm == "halving-doubling" and work.dim.kind == "ring":
                raise UserError(
                    "halving-doubling on a ring with several chunks at once has no congestion-aware model; "
                    "set active chunks and queues to 1"
                )
    links = _Links(backend)
    waiting: dict[int, deque[int]] = {queue: deque() for work in works for queue in work.queues}
    free = dict.fromkeys(waiting, slots)
    phase_of = [0] * chunks
    running: list[_Chain | _Burst | None] = [None] * chunks
    awakenings = [0] * chunks
    # (time, order, chunk, message): message None wakes the endpoint; otherwise it is (bytes, links to go).
    events: list[tuple[int, int, int, tuple[int, list[tuple[int, int]]] | None]] = []
    order = 0
    now = 0

    def queue_of(chunk: int) -> int:
        queues = works[phase_of[chunk]].queues
        return queues[chunk % len(queues)]

    def start(queue: int) -> None:
        nonlocal order
        while free[queue] and waiting[queue]:
            free[queue] -= 1
            chunk = waiting[queue].popleft()
            work = works[phase_of[chunk]]
            algorithm = _Burst(work, mem) if work.algorithm == "direct" else _Chain(work, mem)
            running[chunk] = algorithm
            awakenings[chunk] = 0
            for _ in range(algorithm.injected()):
                heappush(events, (now + endpoint_delay_ns, order, chunk, None))
                order += 1

    for chunk in range(chunks):
        waiting[queue_of(chunk)].append(chunk)
    for queue in waiting:
        start(queue)
    while events:
        now, _, chunk, message = heappop(events)
        algorithm = running[chunk]
        assert algorithm is not None
        work = works[phase_of[chunk]]
        if message is not None and message[1]:  # forward it over the next link
            m, route = message
            heappush(events, (links.carry(route[0], now, m, work.dim), order, chunk, (m, route[1:])))
            order += 1
            continue
        if message is not None:  # it has reached its destination
            heappush(events, (now + endpoint_delay_ns + algorithm.arrived(), order, chunk, None))
            order += 1
            continue
        awakenings[chunk] += 1
        for m, distance in algorithm.awake():
            clockwise = work.clockwise[chunk % len(work.queues) % len(work.clockwise)]
            route = links.route(work, distance, clockwise)
            if route:
                arrival = links.carry(route[0], now, m, work.dim)
            else:
                arrival = now + message_ns(m, work.dim, distance, "unaware")
            heappush(events, (arrival, order, chunk, (m, route[1:])))
            order += 1
        if algorithm.finished(awakenings[chunk]):
            queue = queue_of(chunk)
            free[queue] += 1
            running[chunk] = None
            phase_of[chunk] += 1
            start(queue)
            if phase_of[chunk] < len(works):
                following = queue_of(chunk)
                waiting[following].append(chunk)
                start(following)
    return now
