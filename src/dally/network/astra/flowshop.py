"""Equal chunks through a line of queues, first come first served: how ASTRA-sim pipelines a collective.

Every chunk takes the same time in a phase, so the pipeline has a closed form wherever no queue is visited
twice, and in the commonest case where one is (two dimensions, one queue each).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush


def makespan_ns(durations: Sequence[int], queues: Sequence[tuple[int, ...]], chunks: int, slots: int) -> int:
    """When the last chunk leaves the last phase.

    Phase p takes `durations[p]`; chunk i waits in queue `queues[p][i mod len]`, `slots` running at once.
    """
    lanes = len(queues[0]) * slots
    visited = [queue for phase in queues for queue in phase]
    uniform = all(len(phase) == len(queues[0]) for phase in queues)
    if uniform and len(set(visited)) == len(visited):
        # Chunks move in batches of one per lane; batch b leaves the slowest phase b·max later.
        batches = -(-chunks // lanes)
        return sum(durations) + (batches - 1) * max(durations)
    if len(durations) == 3 and uniform and lanes == 1 and queues[0] == queues[2]:
        # Reduce-scatters of all chunks precede the first all-gather in their common queue. The all-gathers
        # start at the later of that and the first arrival, or are paced by the arrivals to the very last.
        scatter, reduce, gather = durations
        first, last = scatter + reduce, scatter + reduce + (chunks - 1) * max(scatter, reduce)
        return max(max(first, chunks * scatter) + chunks * gather, last + gather)
    return _simulated(durations, queues, chunks, slots)


def _simulated(
    durations: Sequence[int], queues: Sequence[tuple[int, ...]], chunks: int, slots: int
) -> int:
    waiting: dict[int, deque[tuple[int, int]]] = {queue: deque() for phase in queues for queue in phase}
    free = dict.fromkeys(waiting, slots)
    events: list[tuple[int, int, int, int, int]] = []  # (end, order of start, chunk, phase, queue)
    order = 0
    phases = len(durations)
    for chunk in range(chunks):
        queue = queues[0][chunk % len(queues[0])]
        if free[queue]:
            free[queue] -= 1
            heappush(events, (durations[0], order, chunk, 0, queue))
            order += 1
        else:
            waiting[queue].append((chunk, 0))
    now = 0
    while events:
        now, _, chunk, phase, left = heappop(events)
        if waiting[left]:
            heir, heir_phase = waiting[left].popleft()
            heappush(events, (now + durations[heir_phase], order, heir, heir_phase, left))
            order += 1
        else:
            free[left] += 1
        phase += 1
        if phase < phases:
            entered = queues[phase][chunk % len(queues[phase])]
            if free[entered]:
                free[entered] -= 1
                heappush(events, (now + durations[phase], order, chunk, phase, entered))
                order += 1
            else:
                waiting[entered].append((chunk, phase))
    return now
