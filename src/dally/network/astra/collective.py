"""Collectives as ASTRA-sim's analytical backends time them: cut into chunks, phased over the dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from dally.core.errors import UserError
from dally.network.astra.flowshop import makespan_ns
from dally.network.astra.messages import Operation, bytes_out
from dally.network.astra.model import (
    BACKENDS,
    COLLECTIVES,
    Backend,
    Collective,
    Dimension,
    System,
    check_match,
)
from dally.network.astra.phases import phase_ns
from dally.network.astra.replay import Work, replay_ns

_SINGLE: dict[str, Operation] = {"reduce-scatter": "RS", "all-gather": "AG", "all-to-all": "A2A"}


class Fabric:
    """A hierarchy with its collective settings; answers are remembered by collective and size."""

    __slots__ = ("_known", "backend", "dims", "gpus", "system")

    def __init__(self, dims: Sequence[Dimension], system: System, backend: Backend = "unaware") -> None:
        self.dims = tuple(dims)
        self.system = system
        self.backend = backend
        if backend not in BACKENDS:
            raise UserError(f"{backend!r} is not an analytical backend; choose from {', '.join(BACKENDS)}")
        check_match(self.dims, system)
        self.gpus = prod(dim.size for dim in self.dims)
        self._known: dict[tuple[str, int], int] = {}

    def collective_ns(self, op: Collective, size_bytes: int) -> int:
        """How long one collective takes when nothing else is in flight.

        `size_bytes` is what each GPU brings: the whole gradient for an all-reduce, its own part for an
        all-gather.
        """
        try:
            return self._known[op, size_bytes]
        except KeyError:
            answer = self._known[op, size_bytes] = self._cold(op, size_bytes)
            return answer

    def _makespan(self, durations: list[int], queues: list[tuple[int, ...]], chunks: int, slots: int) -> int:
        return makespan_ns(durations, queues, chunks, slots)

    def _cold(self, op: Collective, size_bytes: int) -> int:
        if op not in COLLECTIVES:
            raise UserError(f"ASTRA-sim times no {op!r}; choose from {', '.join(COLLECTIVES)}")
        if size_bytes < 0:
            raise UserError(f"a collective cannot move {size_bytes} bytes")
        plan = self._plan(op)
        if size_bytes == 0 or not plan:
            return 0
        system = self.system
        chunk, chunks = self._chunks(op, size_bytes)
        slots = -(-system.active_chunks // system.queues)
        concurrent = slots > 1 or system.queues > 1
        if self.backend == "aware" and concurrent and chunks > 1:
            # Chunks on one dimension at the same time share its links: no phase has a time of its own.
            return replay_ns(self._works(plan, chunk), chunks, slots, system.endpoint_delay_ns,
                             system.local_mem_bandwidth, "aware")  # fmt: skip
        durations: list[int] = []
        queues: list[tuple[int, ...]] = []
        size = chunk
        for operation, index, used in plan:
            dim = self.dims[index]
            durations.append(
                phase_ns(system.algorithms[index], operation, size, dim, system.endpoint_delay_ns,
                         system.local_mem_bandwidth, self.backend)
            )  # fmt: skip
            queues.append(used)
            size = bytes_out(operation, size, dim.size)
        return self._makespan(durations, queues, chunks, slots)

    def _chunks(self, op: Collective, size: int) -> tuple[int, int]:
        """Chunks of c = ⌊size/splits⌋, S = ⌈size/c⌉ of them, all of c bytes; at least a byte per GPU each."""
        splits = self.system.splits
        chunk = size // splits
        if op == "all-gather":
            if chunk == 0:
                raise UserError(f"an all-gather of {size} bytes cannot be split {splits} ways")
        elif chunk < self.gpus:
            return self.gpus, splits
        return chunk, -(-size // chunk)

    def _plan(self, op: Collective) -> list[tuple[Operation, int, tuple[int, ...]]]:
        """The phases of a chunk in order: what is done, on which dimension, in which of its queues.

        `localBWAware`: reduce-scatter up to the last dimension, all-reduce there, all-gather back down.
        `baseline`: a full all-reduce in every dimension. Dimensions of one GPU have no phase. With several
        queues, reduce-scatters and the all-reduce use the first half and all-gathers the second.
        """
        active = [index for index, dim in enumerate(self.dims) if dim.size > 1]
        q = self.system.queues
        every = [tuple(range(index * q, index * q + q)) for index in range(len(self.dims))]
        if op != "all-reduce":
            order = active[::-1] if op == "all-gather" else active
            return [(_SINGLE[op], index, every[index]) for index in order]
        if self.system.optimization == "baseline":
            return [("AR", index, every[index]) for index in active]
        half = max(1, q // 2)
        plan: list[tuple[Operation, int, tuple[int, ...]]] = []
        for index in active[:-1]:
            plan.append(("RS", index, every[index][:half]))
        for index in active[-1:]:
            plan.append(("AR", index, every[index][:half]))
        for index in active[-2::-1]:
            plan.append(("AG", index, every[index][q // 2 :]))
        return plan

    def _works(self, plan: list[tuple[Operation, int, tuple[int, ...]]], chunk: int) -> list[Work]:
        works: list[Work] = []
        size = chunk
        q = self.system.queues
        for operation, index, used in plan:
            dim = self.dims[index]
            # The second half of a dimension's queues goes round the other way.
            clockwise = tuple(q == 1 or queue % q < q // 2 for queue in used)
            works.append(Work(operation, self.system.algorithms[index], dim, index, size, used, clockwise))
            size = bytes_out(operation, size, dim.size)
        return works


class SlowestQueue(Fabric):
    """From below: a chunk passes all phases, and the busiest queue serves all chunks. Both never fall as phases rise,
    which is not known of chunks that meet in several queues twice."""

    __slots__ = ()

    def _makespan(self, durations: list[int], queues: list[tuple[int, ...]], chunks: int, slots: int) -> int:
        work: dict[tuple[int, ...], int] = {}
        for duration, queue in zip(durations, queues, strict=True):
            work[queue] = work.get(queue, 0) + chunks * duration
        return max(sum(durations), *(busy // (slots * len(queue)) for queue, busy in work.items()))


@lru_cache(maxsize=1024)
def _fabric(dims: tuple[Dimension, ...], system: System, backend: Backend) -> Fabric:
    return Fabric(dims, system, backend)


def collective_ns(
    op: Collective, size_bytes: int, dims: Sequence[Dimension], system: System, backend: Backend = "unaware"
) -> int:
    """`Fabric.collective_ns` for a caller that does not keep the fabric."""
    return _fabric(tuple(dims), system, backend).collective_ns(op, size_bytes)
