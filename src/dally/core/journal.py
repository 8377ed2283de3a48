"""The ordered record of everything that happened and was decided. Everything else reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dally.core.events import Event
from dally.core.plan import Action, Stop
from dally.core.reasons import Reason


class Rejected(NamedTuple):
    """The scheduler turned a job away at the door."""

    job: str
    reason: Reason


class Leaving(NamedTuple):
    """A preempted job keeps these many GPUs, promised to nobody yet, until its checkpoint is saved."""

    job: str
    gpus: int


class Odd(NamedTuple):
    """A report that does not fit: of an unknown job, a second time, too late. It changed nothing."""

    event: Event
    why: str


class Refused(NamedTuple):
    """The policy's plan broke a rule and was not carried out; nothing of it was."""

    policy: str
    job: str
    rule: str


class LetIn(NamedTuple):
    """A job that its queue's share or limits kept back is shown to the policy from here on."""

    job: str


class InCharge(NamedTuple):
    """From here on this policy decides."""

    policy: str


Happened = Event | Odd
Decided = Action | Stop | Rejected | Leaving | LetIn | Refused | InCharge
Entry = Happened | Decided


class Instant(NamedTuple):
    """One trip: what happened at a time, and what was decided because of it. Whole or not at all.

    `decided` is None where nobody was asked: the world's immediate answers to the decisions before."""

    time: float
    happened: Sequence[Happened]
    decided: Sequence[Decided] | None

    def entries(self) -> Iterator[Entry]:
        yield from self.happened
        yield from self.decided or ()


Sink = Callable[[Instant], None]


class Journal:
    """Hands every instant to its sinks, in order: the store, a file, the metrics, a dashboard, a test's list. The one
    that may fail comes first: an instant that could not be written has not happened for the others."""

    __slots__ = ("instants", "sinks")

    def __init__(self, *sinks: Sink) -> None:
        self.sinks = list(sinks)
        self.instants = 0

    def write(self, instant: Instant) -> None:
        for sink in self.sinks:
            sink(instant)
        self.instants += 1


def one_by_one(see: Callable[[float, Entry], None]) -> Sink:
    """A sink for those who look at entries one at a time."""

    def sink(instant: Instant) -> None:
        for entry in instant.entries():
            see(instant.time, entry)

    return sink


def flat(instants: Iterable[Instant]) -> Iterator[tuple[float, Entry]]:
    """Entries one by one, each with its time."""
    for instant in instants:
        for entry in instant.entries():
            yield instant.time, entry
