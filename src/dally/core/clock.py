"""The injected clock: nothing in the house asks the operating system for the time but through this."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds from the origin."""
        ...
