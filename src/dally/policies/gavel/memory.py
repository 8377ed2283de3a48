"""What Gavel remembers from one plan to the next: who was allocated how much time, what it got of it, and since when.

Everything else is worked out from the view: rates, who is movable, on which GPU type a job runs.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from dally.core.memory import Memory, Table
from dally.policies.gavel.allocation.problem import Fractions, Row
from dally.policies.gavel.allocation.warmth import COLD, Warmth
from dally.policies.gavel.columns import Column
from dally.policies.gavel.estimator import Measured

Seconds = tuple[float, ...]  # one per column


class Edition(NamedTuple):
    """A new one, by identity, with everything a plan writes into the standings: lists made from another are void."""

    written: float


class Isolated(NamedTuple):
    """How a job would have fared alone on its part of the cluster (finish-time fairness)."""

    left: float = 0.0  # steps, at the last allocation
    rate: float = 0.0  # alone, from then on
    so_far: float = 0.0  # seconds its finished steps would have taken


Kind = tuple[str | None, int, str | None]  # of jobs: model, gang size, GPU type asked for


class Together(NamedTuple):
    """Two kinds on the same GPUs: what each keeps of its rate alone, per GPU type (0: not there), and the gain."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    gain: float  # rates over rates alone beyond 1, averaged over the GPUs of the cluster


class PaperMemory(Memory):
    """Of the rounds as published."""

    version: ClassVar[int] = 2
    columns: tuple[Column, ...] = ()  # what the figures of the tables below stand for, in order
    share: Table[str, Fractions]  # X of everybody under allocation, in order of arrival
    gone: Table[str, bool]  # ended since the last round began; they leave the tables when it ends
    running: Table[str, int]  # job → the column its time counts in; jobs in pairs are in `pairs`
    pairs: Table[Row, int]
    pair_share: Table[Row, Fractions]
    pair_received: Table[Row, Seconds]
    beside: Table[tuple[Kind, Kind], Together]
    strangers: Table[str, bool]  # found on GPUs with others, in a way that is not ours
    isolated: Table[str, Isolated]
    received: Seconds = ()  # since the last allocation, of all in `share` one after the other; of those beyond, nothing
    measured: tuple[Measured, ...] = ()  # in order of the first measurement
    began: float = 0.0  # the round
    boundary: float = 0.0  # the end of the round in which it became quiet
    ends: float | None = None  # when something is done next; None: nobody is there
    quiet: bool = False  # the rounds to come would deal what this one did, until somebody comes or goes
    allocated_at: float | None = None
    changed: bool = False  # somebody came or went since
    came: bool = False  # since the last plan: somebody came
    freed: bool = False  # …, GPUs came back
    restless: bool = False  # …, by a fault or a repair
    warmth: Warmth = COLD
    notes: tuple[str, ...] = ()
    edition: Edition = Edition(0.0)


class Standing(NamedTuple):
    """One job as the released scheduler keeps it."""

    time: Seconds  # per GPU type since the last reset, from half a round up
    deficit: Seconds
    done: float = 0.0  # whole steps it is credited with
    isolated: Isolated = Isolated()


class Turn(NamedTuple):
    """A job's part of a round of the released scheduler."""

    kind: int
    steps: float
    end: float
    start_at: float


class Span(NamedTuple):
    start: float
    end: float


class ReleasedMemory(Memory):
    """Of the released simulator's rounds."""

    kinds: tuple[str, ...] = ()  # GPU types in its order
    jobs: Table[str, Standing]
    came: Table[str, bool]  # since the round began
    allocation: Table[str, Fractions]
    worker_time: Seconds = ()
    last_reset: float = 0.0
    changed: bool = False
    round: Span | None = None
    turns: Table[str, Turn]  # of that round
    round_end: float | None = None  # of the last round there was
    late: float = 0.0  # how long the boundary waits next for somebody who should have ended
    places: Table[str, int]  # of blind first come, first served: who has a place on which type
    shuffled: int = 0  # random words drawn so far: to put the types in order
    drawn: int = 0  # …, and to choose among them
