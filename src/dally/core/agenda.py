"""What is due when: timers, leases and whatever else a world has promised itself, in order of time and of kind."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from dally.core.events import ORDER, Event

# What happens: at a time, to whom, if it is still true as of that epoch; events are added to the list.
Happens = Callable[[float, Any, int, list[Event]], None]
Due = tuple[float, int, int, Happens, Any, int]  # time, rank of its kind, order of entry, what, to whom, epoch


class Agenda:
    """A heap. What stops being true is not taken out: it is passed over by its epoch when its time has come."""

    __slots__ = ("_entered", "heap")

    def __init__(self) -> None:
        self.heap: list[Due] = []  # the soonest is the first
        self._entered = 0

    def __len__(self) -> int:
        return len(self.heap)

    def __bool__(self) -> bool:
        return bool(self.heap)

    def enter(self, time: float, kind: type, happens: Happens, what: object = None, epoch: int = 0) -> None:
        """`kind`: the event it will be, which says what comes first of what is due at one time."""
        self._entered += 1
        heapq.heappush(self.heap, (time, ORDER[kind], self._entered, happens, what, epoch))

    def next_time(self) -> float | None:
        return self.heap[0][0] if self.heap else None

    def due(self, now: float) -> Iterator[Due]:
        """What is due by now, taken out one by one, in order."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            yield heapq.heappop(heap)
