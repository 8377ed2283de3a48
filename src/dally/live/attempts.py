"""An attempt of a job, from the decision to start it to its end, and the terms on which a job is tried again."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from dally.core.placement import Placement
from dally.core.records import dataclass

SAVED = 143  # a job that saved its checkpoint and left: 128 + SIGTERM


class Key(NamedTuple):
    job: str
    number: int


class Leaving(Enum):
    """Why an attempt was asked to leave: decides what its end means."""

    NOT = "it was not"
    PREEMPTED = "preempted"
    MOVES = "moves"  # another attempt follows at once
    REQUEUED = "requeued by its owner"
    MACHINE_GONE = "a machine it was to run on is gone"
    UNWANTED = "nobody waits for it"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job may ask of the world besides being run."""

    retries: int | None = None  # crashes, and starts that fail, that it survives; None: as the rules have it
    requeue_on: tuple[int, ...] = ()  # exit codes with which it asks to be run again; they count against nothing


class Attempt:
    """What the world knows of one."""

    __slots__ = ("adopted", "began", "follows", "key", "leaving", "moves_to", "placement", "saved")

    def __init__(self, key: Key, placement: Placement) -> None:
        self.key, self.placement = key, placement
        self.began = False
        self.adopted = False  # whether a service before this one decided it, and may not have come to start it
        self.leaving = Leaving.NOT
        self.moves_to: Attempt | None = None  # what follows when it has left
        self.follows: Key | None = None  # whose end nothing says but that this one begins
        self.saved = 0.0  # work its last checkpoint holds, as far as it said

    @property
    def job(self) -> str:
        return self.key.job
