"""The engine: what really starts and stops jobs, and tells what became of them. As narrow as it can be.

An engine is told to start or stop an *attempt* of a job and answers in its own time through `observe`. It decides
nothing, remembers no plans, and may be slow, refuse, repeat itself or report what happened long ago: every report
names the attempt it is about, so that what is late is known to be late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dally.core.placement import Placement


@dataclass(frozen=True, slots=True)
class Program:
    """What a job runs: a command with its environment, and how it is asked to leave."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None
    grace: float = 10.0  # seconds between being asked to leave and being put out


class Order(NamedTuple):
    """Start this attempt of a job on these GPUs."""

    job: str
    attempt: int
    placement: Placement
    machines: tuple[str, ...]  # names of the machines of the placement, in its order
    program: Program


class Began(NamedTuple):
    """The attempt runs."""

    job: str
    attempt: int


class NotBegun(NamedTuple):
    """The attempt could not be started, and never will be."""

    job: str
    attempt: int
    cause: str


class Exited(NamedTuple):
    """The attempt is over and its GPUs are free. `code` is as the system gives it: negative for a signal."""

    job: str
    attempt: int
    code: int


class Vanished(NamedTuple):
    """The attempt is gone, and nobody knows how it ended."""

    job: str
    attempt: int
    cause: str


class Stepped(NamedTuple):
    """What the job says of itself: how long its steps take, how much of one is exposed communication, and how much work
    it has done and saved (in the unit of its declaration)."""

    job: str
    attempt: int
    step_time: float
    exposed: float = 0.0
    speed: float | None = None  # work per second; None: a second of running is a second of work
    saved: float | None = None


Report = Began | NotBegun | Exited | Vanished | Stepped


class Engine(Protocol):
    """Start, stop, observe."""

    @property
    def shares(self) -> bool:
        """Whether several jobs can hold the same GPUs in turns."""
        ...

    def start(self, order: Order) -> None:
        """Begin to start an attempt. Never raises for what is wrong with the job: that is reported."""
        ...

    def stop(self, job: str, attempt: int, grace: float) -> None:
        """Ask the attempt to leave; put it out after the grace. Of an attempt that is over: nothing."""
        ...

    def observe(self, patience: float) -> Sequence[Report]:
        """What became known since the last call; waits for so many seconds at most if there is nothing yet."""
        ...

    def wake(self) -> None:
        """End an `observe` that waits, from any thread."""
        ...

    def running(self) -> Mapping[str, int]:
        """Attempts that really run at this moment, by job."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...
