"""The closed forms and the one-GPU replay against a slow replay of every rank, link and message.

The oracle below follows the mechanism message by message for all GPUs of one dimension: each has its own
queue of chunks, posts a receive with every send, and shares first-come-first-served links with the others.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque

import pytest

from dally.core.errors import UserError
from dally.network.astra import Dimension, System, collective_ns
from dally.network.astra.model import GIB

E = 10
MEM = 1600e9


class EveryRank:
    def __init__(self, op, algorithm, dim, size, backend, chunks, slots, mem):
        self.op, self.algorithm, self.dim = op, algorithm, dim
        self.size, self.backend, self.mem = size, backend, mem
        self.n = dim.size
        self.now = self.order = 0
        self.events = []
        self.link_free = defaultdict(int)
        self.arrived = defaultdict(deque)
        self.posted = defaultdict(deque)
        self.waiting = [deque(range(chunks)) for _ in range(self.n)]
        self.free = [slots] * self.n
        self.state = {}

    def at(self, when, call, *args):
        heapq.heappush(self.events, (when, self.order, call, args))
        self.order += 1

    def run(self):
        for rank in range(self.n):
            self.start(rank)
        while self.events:
            self.now, _, call, args = heapq.heappop(self.events)
            call(*args)
        assert not any(self.waiting), "deadlock"
        return self.now

    def start(self, rank):
        while self.free[rank] and self.waiting[rank]:
            self.free[rank] -= 1
            chunk = self.waiting[rank].popleft()
            n, m = self.n, self.size if self.op == "all-gather" else self.size // self.n
            reduces = self.op in ("all-reduce", "reduce-scatter")
            k = n.bit_length() - 1
            if self.algorithm == "ring":
                count = {"all-reduce": 2 * n - 2, "all-to-all": n * (n - 1) // 2}.get(self.op, n - 1)
                todo = [(m, (rank + 1) % n, (rank - 1) % n) for _ in range(count)]
                reductions = [m] * (n - 1) if reduces else []
            elif self.algorithm == "direct":
                peers = [(m, (rank + d) % n, (rank - d) % n) for d in range(1, n)]
                todo = peers * (2 if self.op == "all-reduce" else 1)
                reductions = [m] * (n - 1) if reduces else []
            else:
                partners = [rank ^ (1 << i) for i in range(k)]
                if self.op == "all-gather":
                    todo = [(self.size * 2**i, p, p) for i, p in enumerate(reversed(partners))]
                else:
                    todo = [(self.size // 2 ** (i + 1), p, p) for i, p in enumerate(partners)]
                if self.op == "all-reduce":
                    last = todo[-1][0] // 2 * 2
                    todo += [(last * 2**i, p, p) for i, p in enumerate(reversed(partners))]
                reductions = [size for size, _, _ in todo[1:k]] if reduces else []
            burst = n - 1 if self.algorithm == "direct" else 1
            self.state[rank, chunk] = {
                "todo": deque(todo), "reductions": deque(reductions), "ready": 0, "received": 0, "woken": 0,
                "wakes": len(todo) + burst, "burst": burst,
                "half": n - 1 if self.algorithm == "direct" and self.op == "all-reduce" else None,
            }  # fmt: skip
            for _ in range(burst):
                self.at(self.now + E, self.wake, rank, chunk)

    def wake(self, rank, chunk):
        s = self.state[rank, chunk]
        s["ready"] += 1
        s["woken"] += 1
        sends = 1
        if s["half"] is not None and len(s["todo"]) <= s["half"]:
            sends = s["half"] if s["received"] >= s["half"] else 0
        while sends and s["ready"] and s["todo"]:
            size, to, source = s["todo"].popleft()
            sends -= 1
            s["ready"] -= 1
            self.send(chunk, rank, to, size)
            if self.arrived[chunk, source, rank]:
                self.arrived[chunk, source, rank].popleft()
                self.receive(rank, chunk)
            else:
                self.posted[chunk, source, rank].append(1)
        if s["woken"] == s["wakes"]:
            del self.state[rank, chunk]
            self.free[rank] += 1
            self.start(rank)

    def receive(self, rank, chunk):
        s = self.state[rank, chunk]
        s["received"] += 1
        delay = E
        if s["reductions"]:
            delay += 3 * int(s["reductions"].popleft() / self.mem * 1e9)
        self.at(self.now + delay, self.wake, rank, chunk)

    def send(self, chunk, rank, to, size):
        forward = (to - rank) % self.n
        around = min(forward, self.n - forward)
        step = 1 if forward <= self.n - forward else -1
        path = {
            "fully-connected": [rank, to],
            "switch": [rank, "switch", to],
            "ring": [(rank + step * i) % self.n for i in range(around + 1)],
        }[self.dim.kind]
        if self.backend == "unaware":
            wire = size / (self.dim.bandwidth / 1e9)
            delay = int((len(path) - 1) * self.dim.latency_ns + wire)
            self.at(self.now + delay, self.deliver, chunk, rank, to)
        else:
            self.hop(chunk, rank, to, size, path)

    def hop(self, chunk, rank, to, size, path):
        if len(path) == 1:
            self.deliver(chunk, rank, to)
            return
        wire = size / (self.dim.bandwidth / 1e9)
        link = path[0], path[1]
        start = max(self.now, self.link_free[link])
        self.link_free[link] = start + int(wire)
        self.at(start + int(self.dim.latency_ns + wire), self.hop, chunk, rank, to, size, path[1:])

    def deliver(self, chunk, rank, to):
        if self.posted[chunk, rank, to]:
            self.posted[chunk, rank, to].popleft()
            self.receive(to, chunk)
        else:
            self.arrived[chunk, rank, to].append(1)


def both(op, algorithm, kind, n, size, backend, chunks=1, slots=1, latency=500.0, gib=50.0, mem=MEM):
    dim = Dimension(kind, n, gib * GIB, latency)
    system = System(
        (algorithm,), splits=chunks, active_chunks=slots, endpoint_delay_ns=E, local_mem_bandwidth=mem
    )
    ours = collective_ns(op, size, [dim], system, backend)
    return ours, EveryRank(op, algorithm, dim, size // chunks, backend, chunks, slots, mem).run()


OPS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
KINDS = ("ring", "fully-connected", "switch")


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "direct"])
@pytest.mark.parametrize("op", OPS)
def test_one_gpu_stands_for_all_ranks(op, algorithm, kind, backend):
    if algorithm == "halving-doubling" and op == "all-to-all":
        with pytest.raises(UserError, match="no all-to-all by halving-doubling"):
            collective_ns(op, 10**6, [Dimension(kind, 4, GIB, 0.0)], System((algorithm,)), backend)
        return
    for n in (2, 4, 8) if algorithm == "halving-doubling" else (2, 3, 4, 5, 7, 8):
        for size in (5040, 1_000_003, 26_214_400):
            for latency in (0.0, 500.0, 50_000.0):
                ours, oracle = both(op, algorithm, kind, n, size, backend, latency=latency)
                assert ours == oracle, (n, size, latency)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_memory_staggers_the_second_burst_of_a_direct_all_reduce(kind):
    for backend in ("unaware", "aware"):
        for mem in (1e9, 30e9, 200e9):
            ours, oracle = both("all-reduce", "direct", kind, 6, 3_000_000, backend, mem=mem)
            assert ours == oracle


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "direct"])
def test_chunks_in_flight_together_share_the_links_only_where_congestion_counts(algorithm, kind, backend):
    if backend == "aware" and (algorithm, kind) == ("halving-doubling", "ring"):
        with pytest.raises(UserError, match="halving-doubling on a ring"):
            both("all-reduce", algorithm, kind, 4, 4_000_000, backend, chunks=4, slots=2)
        return
    for op in ("all-reduce", "reduce-scatter", "all-gather"):
        for n in (2, 4):
            for slots in (1, 2, 3):
                size = 4_000_000
                ours, oracle = both(op, algorithm, kind, n, size, backend, chunks=4, slots=slots)
                assert ours == oracle, (op, n, slots)
