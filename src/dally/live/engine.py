"""The engine: what really starts and stops jobs, and tells what became of them. As narrow as it can be.

An engine is told to start or stop an *attempt* of a job and answers in its own time through `observe`. It decides
nothing, remembers no plans, and may be slow, refuse, repeat itself or report what happened long ago: every report
names the attempt it is about, so that what is late is known to be late. Attempts outlive the engine: whoever comes
after it asks about each with `adopt`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from signal import Signals
from typing import Literal, NamedTuple, Protocol

from dally.core.placement import Placement
from dally.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """What a job runs: a command with its environment, and how it is asked to leave."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None
    grace: float = 10.0  # seconds between being asked to leave and being put out
    signal: str = "TERM"  # how it is asked to leave
    processes: Literal["machine", "gpu"] = "machine"  # one process per machine of the placement, or per GPU
    checkpoint: str | None = None  # directory of its checkpoints; None: the engine chooses one
    time_limit: float | None = None  # seconds one attempt may run; then it is asked to leave, and put out
    output: str | None = None  # file that gets what it prints; None: the attempt's own, rotated
    reference: float | None = None  # seconds a step takes at full speed, where a profile says so

    def checked(self) -> Signals:
        """The signal it is asked with. Raises ValueError for what no engine can start."""
        if not self.command:
            raise ValueError("it has no command")
        try:
            return Signals["SIG" + self.signal.upper().removeprefix("SIG")]
        except KeyError:
            raise ValueError(f"there is no signal {self.signal!r}") from None


class Order(NamedTuple):
    """Start this attempt of a job on these GPUs."""

    job: str
    attempt: int
    placement: Placement
    machines: tuple[str, ...]  # names of the machines of the placement, in its order
    program: Program
    restarts: int = 0  # attempts of this job that began before
    name: str = ""  # what people call the job


class Began(NamedTuple):
    """The attempt runs."""

    job: str
    attempt: int


class NotBegun(NamedTuple):
    """The attempt could not be started, and never will be. `void`: not through any fault of the job's; whoever was to
    start it did not come to it."""

    job: str
    attempt: int
    cause: str
    void: bool = False


class Exited(NamedTuple):
    """The attempt is over and its GPUs are free. `code` is as the system gives it: negative for a signal."""

    job: str
    attempt: int
    code: int
    cause: str = ""  # why the engine itself ended it: its time limit
    asked: bool = False  # whether it was asked to leave, and not by this engine: by one before it


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


class Standing(NamedTuple):
    """How a machine stands, from an engine whose machines are somebody else's to drain, and that others use too. Said
    of every machine once, and when it changes."""

    machine: str  # its whole name
    state: Literal["up", "drained", "down"]
    withheld: int = 0  # GPUs that others have


AttemptReport = Began | NotBegun | Exited | Vanished | Stepped
Report = AttemptReport | Standing


class Engine(Protocol):
    """Start, stop, observe; and take up what an engine before this one started.

    `Began` of an attempt is always reported before its `Exited` or `Vanished`, also where the engine learns of both
    at once. A report may come twice.
    """

    @property
    def shares(self) -> bool:
        """Whether several jobs can hold the same GPUs in turns: whether it can `suspend` and `resume`."""
        ...

    @property
    def even(self) -> bool:
        """Whether a gang over several machines must have as many GPUs on each of them."""
        ...

    def start(self, order: Order) -> None:
        """Begin to start an attempt. Never raises for what is wrong with the job: that is reported."""
        ...

    def stop(self, job: str, attempt: int, grace: float) -> None:
        """Ask the attempt to leave; put it out after the grace (0: at once). Of one that is over: nothing. One that has
        not begun yet never will."""
        ...

    def suspend(self, job: str, attempt: int) -> None:
        """Halt all its processes where they are. It keeps its GPUs' memory, and can be asked to leave all the same."""
        ...

    def resume(self, job: str, attempt: int) -> None:
        """Let a suspended attempt go on."""
        ...

    def adopt(self, job: str, attempt: int) -> None:
        """This attempt was recorded as started, by this engine or another: find out what became of it, and watch it on.
        Answered through `observe`; by `NotBegun` only if it never began *and never will*, whoever may still try."""
        ...

    def forget(self, job: str, attempt: int) -> None:
        """The end of this attempt is on record elsewhere: what was kept to tell it may go. Its output stays."""
        ...

    def observe(self, patience: float) -> Sequence[Report]:
        """What became known since the last call; waits for so many seconds at most if there is nothing yet."""
        ...

    def wake(self) -> None:
        """End an `observe` that waits, from any thread."""
        ...

    def running(self) -> Mapping[str, int]:
        """Attempts that really run at this moment, by job, whoever started them."""
        ...

    def close(self) -> None:
        """Let go: attempts go on without this engine, for another one to adopt."""
        ...

    def clear(self) -> None:
        """Put out everything that runs, whoever started it; return when it is gone."""
        ...
