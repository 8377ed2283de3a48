"""Dally's timers over time, from the journal: what the policy says jobs of a demand wait, whenever it says so anew.

The policy states its timers in the reason of every demand that was offered GPUs too far apart. A reason is written
when it changes, so the entries are the steps of a curve. While nobody declines anything, nothing is said.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from dally.core.journal import Entry
from dally.core.plan import Demand, Wait
from dally.core.reasons import Token
from dally.core.units import seconds

_TIMER = re.compile(r"([\d.]+ (?:ms|s|min|h|d)|without limit) for one (\w+)")


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

    def __call__(self, now: float, entry: Entry) -> None:
        if not isinstance(entry, Wait) or not isinstance(entry.who, Demand):
            return
        if entry.reason.token is not Token.WAITING_FOR_LOCALITY:
            return
        gpus = entry.who.gpus
        for text, level in _TIMER.findall(entry.reason.sentence):
            wait = math.inf if text == "without limit" else seconds(text)
            if self._now.get((gpus, level)) != wait:
                self._now[gpus, level] = wait
                self.timers.append(Timer(now, gpus, level, wait))
