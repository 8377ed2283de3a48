"""The clock of a service, in seconds from an origin. It never goes back, whatever is done to the machine's clock."""

from __future__ import annotations

import time


class ServiceClock:
    """From when a store was made. The machine's clock is looked at once, to see how long nobody served; from then on
    time is counted. A clock that was set back meanwhile makes the pause shorter, never the time smaller."""

    __slots__ = ("_at", "_origin", "_since")

    def __init__(self, origin: float, at_least: float) -> None:
        self._origin = origin  # unix time
        self._at = max(at_least, time.time() - origin)
        self._since = time.monotonic()

    def now(self) -> float:
        return self._at + (time.monotonic() - self._since)

    def unix(self, moment: float) -> float:
        """A time of the service as people's clocks have it."""
        return self._origin + moment
