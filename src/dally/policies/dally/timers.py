"""How long a job waits for near GPUs: timers that are given, or tuned from the waits that were worth it.

Timers are counted in leases, as in the paper; outside this module they are seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from dally.core.plan import Demand

_ROUNDING = 1e-9  # a mean of equal delays must not be rounded up to the next lease


class Timers(Protocol):
    def waits(self, demand: Demand, now: float) -> tuple[float, ...]:
        """Seconds a job waits for each tier but the outermost before it takes the next one."""
        ...

    def accepted(self, demand: Demand, tier: int, starvation: float, now: float) -> None:
        """An offer of a tier was taken after so many seconds of starvation."""
        ...

    def changes_at(self, demand: Demand) -> float:
        """When the timers become others by themselves."""
        ...


class Fixed:
    """The same timers for all demands and for ever: manual ones, 0 (no-wait) or ∞ (fully consolidated)."""

    def __init__(self, leases: Sequence[float], lease: float, tiers: int) -> None:
        self._waits = tuple(lease * t for t in continued(leases, tiers))

    def waits(self, demand: Demand, now: float) -> tuple[float, ...]:
        return self._waits

    def accepted(self, demand: Demand, tier: int, starvation: float, now: float) -> None:
        pass

    def changes_at(self, demand: Demand) -> float:
        return math.inf


class _History:
    """Delays, in leases, at which offers of one tier were taken, inside a sliding window of time."""

    __slots__ = ("_entries", "_statistic", "span")

    def __init__(self, span: float) -> None:
        self.span = span
        self._entries: deque[tuple[float, float]] = deque()  # when, delay
        self._statistic: float | None = None

    def add(self, now: float, delay: float) -> None:
        self._entries.append((now, delay))
        self._statistic = None

    def leaves_at(self) -> float:
        return self._entries[0][0] + self.span if self._entries else math.inf

    def statistic(self, now: float, sigmas: float) -> float:
        """mean + 2σ with the population's σ; 0 where there is no history."""
        while self._entries and self.leaves_at() <= now:
            self._entries.popleft()
            self._statistic = None
        if self._statistic is None:
            delays = [delay for _, delay in self._entries]
            mean = math.fsum(delays) / len(delays) if delays else 0.0
            variance = math.fsum((delay - mean) ** 2 for delay in delays) / len(delays) if delays else 0.0
            self._statistic = mean + sigmas * math.sqrt(variance)
        return self._statistic


class AutoTuner:
    """T = min(ceiling, max(floor, ⌈mean + 2σ⌉)) leases, per demand and tier (arXiv 2401.16492, auto-tuner).

    Floors are 6 and 12 leases, ceilings ⌈0.8 H⌉ and H with H the window; ours for further tiers: the floor
    doubles, the ceiling stays at H.
    """

    def __init__(self, lease: float, window: int, tiers: int, floors: Sequence[float], ceilings: Sequence[float],
                 sigmas: float) -> None:  # fmt: skip
        self.lease, self.sigmas, self.span = lease, sigmas, window * lease
        self.floors = continued(floors, tiers)
        shares = [*ceilings, *[ceilings[-1]] * tiers][:tiers]
        self.ceilings = [float(math.ceil(share * window - _ROUNDING)) for share in shares]
        self._histories: dict[Demand, list[_History]] = {}

    def waits(self, demand: Demand, now: float) -> tuple[float, ...]:
        histories = self._histories.get(demand)
        statistics = [h.statistic(now, self.sigmas) for h in histories] if histories else [0.0] * len(self.floors)
        return tuple(
            self.lease * min(ceiling, max(floor, math.ceil(statistic - _ROUNDING)))
            for statistic, floor, ceiling in zip(statistics, self.floors, self.ceilings, strict=True)
        )

    def accepted(self, demand: Demand, tier: int, starvation: float, now: float) -> None:
        if starvation < self.lease or tier >= len(self.floors):
            return  # it was served at once, or took whatever there was: says nothing about a wait
        if demand not in self._histories:
            self._histories[demand] = [_History(self.span) for _ in self.floors]
        self._histories[demand][tier].add(now, starvation / self.lease)

    def changes_at(self, demand: Demand) -> float:
        return min((history.leaves_at() for history in self._histories.get(demand, ())), default=math.inf)


def continued(leases: Sequence[float], tiers: int) -> list[float]:
    """As many timers as there are tiers to wait at; each one not given is twice the one before."""
    found = list(leases[:tiers])
    while len(found) < tiers:
        found.append(2 * found[-1])
    return found
