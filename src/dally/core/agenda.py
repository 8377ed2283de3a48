"""What is due when: timers, leases and whatever else a world has promised itself, in order of time and of kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from dally.core.events import ORDER, Event
from dally.core.inner import heappop, heappush
from dally.core.ranking import before

# What happens: at a time, to whom, if it is still true as of that epoch; events are added to the list.
Happens = Callable[[float, Any, int, list[Event]], None]
# Time, rank of its kind, order of entry, what, to whom, epoch. Where its type said so, compiled code would take all of
# it apart to see when the first is due.
Due = tuple[Any, ...]

_FEW: Final = 64  # not worth another look


class Agenda:
    """What is due before a horizon, in order, and a list of the rest: most of what is entered is far off, and cheaper
    sorted by the thousand than one by one. What stops being true is not taken out: it is passed over by its epoch when
    its time has come."""

    __slots__ = ("_entered", "_far", "_horizon", "_near", "_soon")

    def __init__(self) -> None:
        self._near: list[Due] = []  # of what was far, the soonest last
        self._soon: list[Due] = []  # a heap: due before the horizon, entered since that was drawn
        self._far: list[Due] = []
        self._horizon = -math.inf  # what is due from here on is far
        self._entered = 0

    def __len__(self) -> int:
        return len(self._near) + len(self._soon) + len(self._far)

    def __bool__(self) -> bool:
        return len(self) > 0

    def enter(self, time: float, kind: type, happens: Happens, what: object = None, epoch: int = 0) -> None:
        """`kind`: the event it will be, which says what comes first of what is due at one time."""
        self._entered += 1
        due: Due = (time, ORDER[kind], self._entered, happens, what, epoch)
        if time < self._horizon:
            heappush(self._soon, due)
        else:
            self._far.append(due)

    def look(self) -> bool:
        """Whether there is anything: to be asked before `first` and `pop`."""
        if not self._near and not self._soon:
            if not self._far:
                return False
            self._come_near()
        return True

    def first(self) -> float:
        """When the soonest is due."""
        near, soon = self._near, self._soon
        if not soon:
            time: float = near[-1][0]
            return time
        entered: float = soon[0][0]
        if near:
            time = near[-1][0]
            return entered if entered < time else time
        return entered

    def pop(self) -> Due:
        """The soonest, taken out."""
        near, soon = self._near, self._soon
        if soon and (not near or before(soon[0], near[-1])):
            return heappop(soon)
        return near.pop()

    def _come_near(self) -> None:
        """The soonest quarter of what is far, and whatever is due at the same time as the last of it."""
        far = self._far
        far.sort()
        near = max(len(far) // 4, _FEW)
        if near < len(far):
            last: float = far[near - 1][0]
            while near < len(far) and far[near][0] == last:
                near += 1
        self._near = far[:near]
        self._near.reverse()
        del far[:near]
        self._horizon = math.nextafter(self._near[0][0], math.inf)

    def next_time(self) -> float | None:
        return self.first() if self.look() else None

    def due(self, now: float) -> Iterator[Due]:
        """What is due by now, taken out one by one, in order."""
        while self.look() and self.first() <= now:
            yield self.pop()
