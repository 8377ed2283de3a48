"""The ordered record of everything that happened and was decided. Everything else reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dally.core.events import Event
from dally.core.plan import Action
from dally.core.reasons import Reason


class Rejected(NamedTuple):
    """The scheduler turned a job away at the door."""

    job: str
    reason: Reason


class Leaving(NamedTuple):
    """A preempted job keeps these many GPUs, promised to nobody yet, until its checkpoint is saved."""

    job: str
    gpus: int


Entry = Event | Action | Rejected | Leaving
Sink = Callable[[float, Entry], None]


class Journal:
    """Hands every entry to its sinks, in order: a file, the metrics, a dashboard, a test's list."""

    __slots__ = ("entries", "sinks")

    def __init__(self, *sinks: Sink) -> None:
        self.sinks = list(sinks)
        self.entries = 0

    def write(self, now: float, entry: Entry) -> None:
        self.entries += 1
        for sink in self.sinks:
            sink(now, entry)
