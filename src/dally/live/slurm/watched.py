"""An attempt that the Slurm engine watches, and how that engine behaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from dally.core.records import dataclass
from dally.live.local.watched import Watched
from dally.live.slurm.folder import SlurmFolder
from dally.live.slurm.verdict import Told


@dataclass(frozen=True, slots=True)
class SlurmRules:
    """How the engine behaves, where one may want it otherwise."""

    options: tuple[str, ...] = ()  # of every `sbatch`: partition, account, memory and CPUs per GPU, …
    srun: tuple[str, ...] = ()  # of every `srun`
    python: str | None = None  # the interpreter on the nodes; None: the service's own
    poll: float = 1.0  # seconds between two looks at the queue, at least
    share: float = 0.1  # of the time that looking may take: a slow controller is asked less often
    nodes_every: float = 5.0  # seconds between two looks at nodes and reservations
    start_timeout: float = 60.0  # seconds a released job may wait in Slurm's queue before it is taken back
    before_reservations: float = 3600.0  # seconds before a reservation from which on its nodes get nothing new
    stubborn: float = 10.0  # seconds after its grace that an attempt has before Slurm is told to end it
    settle: float = 5.0  # seconds that what Slurm gave up has to obey before it counts as gone
    silence: float = 120.0  # seconds after which a node of several that says nothing of its ranks is taken to be gone
    linger: float = 60.0  # seconds at most that we wait for a lock that somebody holds though Slurm says he is gone
    log_size: int = 8_000_000
    log_files: int = 8
    keep: float = 7 * 86400.0
    steps_every: float = 1.0

    @property
    def reservations(self) -> frozenset[str]:
        """Those we are in."""
        return frozenset(name for option in self.options if option.startswith("--reservation=")
                         for name in option.partition("=")[2].split(","))  # fmt: skip


@dataclass(slots=True)
class Submission:
    """What is to be handed to `sbatch`."""

    script: str
    options: Sequence[str]
    tried: bool = False  # and no answer came: the next listing says whether it is there


class SlurmWatched(Watched):
    """An attempt whose end has not been reported."""

    __slots__ = ("alive_since", "asked_since", "cause", "deadline", "gone_since", "id", "nudge", "over_since",
                 "released", "requeued", "submission", "waits_since")  # fmt: skip
    folder: SlurmFolder

    def __init__(self, folder: SlurmFolder, order: dict[str, Any], submission: Submission | None = None) -> None:
        super().__init__(folder, order)
        self.submission = submission  # None: was handed in, by this engine or another
        self.id = folder.read_id()
        self.released = False
        self.nudge = False  # its wish has changed and its batch process is to be told
        self.cause = ""  # why this engine ends it
        self.requeued = False
        self.deadline: float | None = None  # when Slurm is told to end it
        self.alive_since: float | None = None  # that Slurm says it has its nodes
        self.asked_since: float | None = None  # that it was asked to leave, while it runs
        self.waits_since: float | None = None  # that it is released and pending
        self.over_since: float | None = None  # that its record is complete and Slurm says it runs
        self.gone_since: float | None = None  # that Slurm has given it up

    @property
    def key(self) -> tuple[str, int]:
        return self.folder.job, self.folder.attempt

    @property
    def nodes(self) -> list[str]:
        return list(self.order.get("nodes", ()))

    def told(self, given_up: bool) -> Told:
        return Told(self.asked, self.cause, self.requeued, given_up, self.folder.complaint())

    def since(self, name: str) -> float:
        """Seconds since the first look that found it so."""
        if getattr(self, name) is None:
            setattr(self, name, time.monotonic())
        found: float = getattr(self, name)
        return time.monotonic() - found


    def anew_after_silence(self) -> None:
        """Nobody could do anything while the controller was away: what is given time begins again."""
        self.alive_since = self.waits_since = self.over_since = self.gone_since = None


@dataclass(slots=True)
class Chores:
    """What Slurm is to be told after a look, each in one command for all."""

    release: list[SlurmWatched] = field(default_factory=list)
    nudge: list[SlurmWatched] = field(default_factory=list)
    cancel: list[int] = field(default_factory=list)
