"""The wall clock, in seconds from when it was made."""

from __future__ import annotations

import time


class WallClock:
    __slots__ = ("_origin",)

    def __init__(self) -> None:
        self._origin = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._origin
