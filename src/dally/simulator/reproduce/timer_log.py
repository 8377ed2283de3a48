"""Dally's timers over time, from the journal: what the policy says jobs of a demand wait, whenever it says so anew.

The policy states its timers in the reason of every demand that was offered GPUs too far apart. A reason is written
when it changes, so the entries are the steps of a curve. While nobody declines anything, nothing is said.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dally.core.journal import Instant
from dally.core.plan import Demand, Wait
from dally.core.reasons import Reason, Token


class Timer(NamedTuple):
    """From this time on jobs of so many GPUs wait so long for a place inside one domain of a level."""

    time: float
    gpus: int
    level: str
    wait: float


class TimerLog:
    """A journal sink."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self._now: dict[tuple[int, str], float] = {}

    def __call__(self, instant: Instant) -> None:
        for entry in instant.decided or ():
            if isinstance(entry, Wait) and isinstance(entry.who, Demand):
                self._said(instant.time, entry.who.gpus, entry.reason)

    def _said(self, now: float, gpus: int, reason: Reason) -> None:
        """The evidence of such a reason: levels, and after each its timer in seconds, or a word where it never ends."""
        if reason.token is not Token.WAITING_FOR_LOCALITY:
            return
        for level, timer in zip(reason.evidence[::2], reason.evidence[1::2], strict=False):
            wait = math.inf if isinstance(timer, str) else timer
            if self._now.get((gpus, str(level))) != wait:
                self._now[gpus, str(level)] = wait
                self.timers.append(Timer(now, gpus, str(level), wait))
