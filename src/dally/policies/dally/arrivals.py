"""The load that jobs bring, as measured: how many come, and what they would take if all of them ran near."""

from __future__ import annotations

import math

from dally.core.memory import Memory, Table

RECENT = 100  # arrivals that count: a load is that of some time, and durations differ by factors of a thousand
_FEW = 10  # fewer say nothing
_SILENCE = 5.0  # times the mean time between two arrivals without another one: nobody comes any more (e⁻⁵ by chance)


class Arrivals(Memory):
    """The last hundred, in a ring."""

    arrived: int = 0
    came: Table[int, tuple[float, float]]  # place in the ring → when it was submitted, GPU-seconds it needs near
    offered: float = 0.0  # Σ of the latter

    def arrive(self, time: float, gpu_seconds: float) -> None:
        place = self.arrived % RECENT
        before = self.came.get(place)
        self.came[place] = (time, gpu_seconds)
        self.offered += gpu_seconds - (0.0 if before is None else before[1])
        self.arrived += 1

    @property
    def first_came(self) -> float:
        """When the first of those that count was submitted."""
        return self.came[self.arrived % RECENT if self.arrived >= RECENT else 0][0]

    def go_on(self, now: float) -> bool:
        """Whether jobs still come, as far as can be told: a batch is over when it is there."""
        last, silence = self.silence
        return now - last < silence

    @property
    def silence(self) -> tuple[float, float]:
        """When the last one was submitted, and so many seconds later nobody comes any more."""
        if not self.arrived:
            return 0.0, -math.inf
        last = self.came[(self.arrived - 1) % RECENT][0]
        return last, _SILENCE * (last - self.first_came) / min(self.arrived, RECENT)

    def offered_per_second(self, now: float) -> float:
        """GPU-seconds near that come per second; nothing as long as nobody can tell."""
        span = now - self.first_came if self.arrived >= _FEW else 0.0
        return self.offered / span if span > 0 else 0.0
