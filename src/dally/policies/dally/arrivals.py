"""The load that jobs bring, as measured: how many come, and what they would take if all of them ran near."""

from __future__ import annotations

import math
from typing import Final

from dally.policies.dally.remembered import ArrivalsMemory

RECENT: Final = 100  # arrivals that count: a load is that of some time, and durations differ by factors of a thousand
_FEW: Final = 10  # fewer say nothing
_SILENCE: Final = 5.0  # times the mean time between arrivals without another one: nobody comes any more (e⁻⁵ by chance)


class Arrivals:
    """The last hundred, in a ring."""

    __slots__ = ("_came", "_memory")

    def __init__(self, memory: ArrivalsMemory) -> None:
        self._memory, self._came = memory, memory.came

    @property
    def count(self) -> int:
        """So far."""
        return self._memory.arrived

    @property
    def offered(self) -> float:
        """GPU-seconds near of those that count."""
        return self._memory.offered

    def arrive(self, time: float, gpu_seconds: float) -> None:
        memory = self._memory
        place = memory.arrived % RECENT
        before = self._came.get(place)
        self._came[place] = (time, gpu_seconds)
        memory.offered += gpu_seconds - (0.0 if before is None else before[1])
        memory.arrived += 1

    @property
    def first_came(self) -> float:
        """When the first of those that count was submitted."""
        count = self.count
        return self._came[count % RECENT if count >= RECENT else 0][0]

    def go_on(self, now: float) -> bool:
        """Whether jobs still come, as far as can be told: a batch is over when it is there."""
        last, silence = self.silence
        return now - last < silence

    @property
    def silence(self) -> tuple[float, float]:
        """When the last one was submitted, and so many seconds later nobody comes any more."""
        count = self.count
        if not count:
            return 0.0, -math.inf
        last = self._came[(count - 1) % RECENT][0]
        return last, _SILENCE * (last - self.first_came) / min(count, RECENT)

    def offered_per_second(self, now: float) -> float:
        """GPU-seconds near that come per second; nothing as long as nobody can tell."""
        span = now - self.first_came if self.count >= _FEW else 0.0
        return self.offered / span if span > 0 else 0.0
