"""What is due when: timers, leases and whatever else a world has promised itself, in order of time and of kind."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from dally.core.events import ORDER, Event

# What happens: at a time, to whom, if it is still true as of that epoch; events are added to the list.
Happens = Callable[[float, Any, int, list[Event]], None]
Due = tuple[float, int, int, Happens, Any, int]  # time, rank of its kind, order of entry, what, to whom, epoch

_FEW: Final = 64  # not worth another look


class Agenda:
    """A heap of what is due before a horizon, and a list of the rest: most of what is entered is far off, and cheaper
    sorted by the thousand than one by one. What stops being true is not taken out: it is passed over by its epoch when
    its time has come."""

    __slots__ = ("_entered", "_far", "_horizon", "heap")

    def __init__(self) -> None:
        self.heap: list[Due] = []  # the soonest is the first, if there is any: see `look`
        self._far: list[Due] = []
        self._horizon = -math.inf  # what is due from here on is far
        self._entered = 0

    def __len__(self) -> int:
        return len(self.heap) + len(self._far)

    def __bool__(self) -> bool:
        return bool(self.heap) or bool(self._far)

    def enter(self, time: float, kind: type, happens: Happens, what: object = None, epoch: int = 0) -> None:
        """`kind`: the event it will be, which says what comes first of what is due at one time."""
        self._entered += 1
        due = (time, ORDER[kind], self._entered, happens, what, epoch)
        if time < self._horizon:
            heapq.heappush(self.heap, due)
        else:
            self._far.append(due)

    def look(self) -> bool:
        """Whether there is anything; then the soonest is the first of the heap."""
        if not self.heap and self._far:
            self._come_near()
        return bool(self.heap)

    def _come_near(self) -> None:
        """The soonest quarter of what is far, and whatever is due at the same time as the last of it."""
        far = self._far
        far.sort()
        near = max(len(far) // 4, _FEW)
        if near < len(far):
            last = far[near - 1][0]
            while near < len(far) and far[near][0] == last:
                near += 1
        self.heap += far[:near]
        del far[:near]
        self._horizon = math.nextafter(self.heap[-1][0], math.inf)

    def next_time(self) -> float | None:
        return self.heap[0][0] if self.look() else None

    def due(self, now: float) -> Iterator[Due]:
        """What is due by now, taken out one by one, in order."""
        heap = self.heap
        while self.look() and heap[0][0] <= now:
            yield heapq.heappop(heap)
