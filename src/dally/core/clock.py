"""The injected clock: nothing in the house asks the operating system for the time but through this."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds from the origin."""
        ...


class ManualClock:
    """A clock that somebody moves: the simulated world, and tests of a live one."""

    __slots__ = ("time",)

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time
