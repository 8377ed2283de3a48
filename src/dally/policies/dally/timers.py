"""How long a job waits for near GPUs: timers that are given, or tuned from the waits that were worth it.

Timers are counted in leases, as in the paper; outside this module they are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from dally.core.plan import Demand
from dally.policies.dally.remembered import Histories, History

NO_LIMIT = "without limit"  # of a timer that never runs out
_ROUNDING: Final = 1e-9  # a mean of equal delays must not be rounded up to the next lease


class Timers:
    """A class, not a protocol: they are asked for every demand that waits, at every event."""

    def waits(self, memory: Histories, demand: Demand, now: float) -> tuple[float, ...]:
        """Seconds a job waits for each tier but the outermost before it takes the next one."""
        raise NotImplementedError

    def accepted(self, memory: Histories, demand: Demand, tier: int, starvation: float, now: float) -> None:
        """An offer of a tier was taken after so many seconds of starvation."""
        raise NotImplementedError

    def changes_at(self, memory: Histories, demand: Demand, now: float) -> float:
        """When the timers become others by themselves."""
        raise NotImplementedError


class Fixed(Timers):
    """The same timers for all demands and for ever: manual ones, 0 (no-wait) or ∞ (fully consolidated)."""

    def __init__(self, leases: Sequence[float], lease: float, tiers: int) -> None:
        self._waits = tuple(lease * t for t in continued(leases, tiers))

    def waits(self, memory: Histories, demand: Demand, now: float) -> tuple[float, ...]:
        return self._waits

    def accepted(self, memory: Histories, demand: Demand, tier: int, starvation: float, now: float) -> None:
        pass

    def changes_at(self, memory: Histories, demand: Demand, now: float) -> float:
        return math.inf


class _Tuned(NamedTuple):
    """The timers of a demand as long as these histories and what has left the window stay the same."""

    taken: tuple[History, ...]
    begin: float
    end: float
    waits: tuple[float, ...]


class AutoTuner(Timers):
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
        self._none: tuple[History, ...] = ((),) * tiers
        self._known: dict[Demand, _Tuned] = {}

    def waits(self, memory: Histories, demand: Demand, now: float) -> tuple[float, ...]:
        return self._tuned(memory, demand, now).waits

    def changes_at(self, memory: Histories, demand: Demand, now: float) -> float:
        """When the oldest of the waits that count leaves the window."""
        return self._tuned(memory, demand, now).end

    def accepted(self, memory: Histories, demand: Demand, tier: int, starvation: float, now: float) -> None:
        if starvation < self.lease or tier >= len(self.floors):
            return  # it was served at once, or took whatever there was: says nothing about a wait
        histories = list(memory.taken.get(demand, self._none))
        histories[tier] = (*self._inside(histories[tier], now), (now, starvation / self.lease))
        memory.taken[demand] = tuple(histories)

    def _tuned(self, memory: Histories, demand: Demand, now: float) -> _Tuned:
        taken = memory.taken.get(demand, self._none)
        known = self._known.get(demand)
        if known is None or known.taken is not taken or not known.begin <= now < known.end:  # objects
            known = self._known[demand] = self._tune(taken, now)
        return known

    def _tune(self, taken: tuple[History, ...], now: float) -> _Tuned:
        begin, end = -math.inf, math.inf
        waits = []
        for history, floor, ceiling in zip(taken, self.floors, self.ceilings, strict=True):
            inside = self._inside(history, now)
            if len(inside) < len(history):
                begin = max(begin, history[len(history) - len(inside) - 1][0] + self.span)
            if inside:
                end = min(end, inside[0][0] + self.span)
            statistic = _statistic([delay for _, delay in inside], self.sigmas)
            waits.append(self.lease * min(ceiling, max(floor, math.ceil(statistic - _ROUNDING))))
        return _Tuned(taken, begin, end, tuple(waits))

    def _inside(self, history: History, now: float) -> History:
        """What has not left the window."""
        gone = 0
        while gone < len(history) and history[gone][0] + self.span <= now:
            gone += 1
        return history[gone:] if gone else history


def _statistic(delays: Sequence[float], sigmas: float) -> float:
    """mean + 2σ with the population's σ; 0 where there is no history."""
    if not delays:
        return 0.0
    mean = math.fsum(delays) / len(delays)
    return mean + sigmas * math.sqrt(math.fsum((delay - mean) ** 2 for delay in delays) / len(delays))


def continued(leases: Sequence[float], tiers: int) -> list[float]:
    """As many timers as there are tiers to wait at; each one not given is twice the one before."""
    found = list(leases[:tiers])
    while len(found) < tiers:
        found.append(2 * found[-1])
    return found
