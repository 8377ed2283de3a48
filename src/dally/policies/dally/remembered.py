"""All that waiting by value remembers, in one memory, and what timers do. Never compiled: a memory's fields are its
annotations, and those of the records in it say how it is saved. What is done with it is (`Arrivals`, `Beliefs`, …)."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.memory import Memory, Order, Table
from dally.core.plan import Demand


class ArrivalsMemory(Memory):
    arrived: int = 0
    came: Table[int, tuple[float, float]]  # place in the ring → when it was submitted, GPU-seconds it needs near
    offered: float = 0.0  # Σ of the latter


class BeliefsMemory(Memory):
    declared: int = 0  # finished jobs that declared their work
    squared_errors: float = 0.0  # of the logarithms of what they declared
    finished: int = 0
    log_work: float = 0.0  # Σ logarithm of the work of finished jobs
    log_work_squared: float = 0.0
    finished_by_demand: Table[Demand, tuple[int, float]]  # jobs of a demand, Σ logarithm of their work


class Expected(NamedTuple):
    """The end expected of a job, the GPUs that come free then, and its number."""

    end: float
    gpus: int
    number: int


class EndsMemory(Memory):
    ends: Table[str, Expected]
    ends_in_order: Order[tuple[float, int, str]]  # end, number of the job, its id
    held: int = 0  # GPUs of these jobs
    held_until: float = 0.0  # Σ GPUs · end, as it was added up


class Waits(NamedTuple):
    """A waiting job. What it needs is worked out when it enters the queue, by what is believed then."""

    size: float  # what orders it
    need: float | None  # seconds it would run near; None where nobody declares it
    gpus: int
    tier: int | None = None  # which it waits for, where it declined something further out
    since: float = 0.0
    expected: float = 0.0  # the wait it expected


class QueueMemory(Memory):
    waits: Table[str, Waits | None]  # None: was given GPUs, and nothing has been heard of it since
    longest: Order[tuple[float, str]]  # need and id of those that declare it
    backlog: float = 0.0  # Σ need · GPUs, as it was added up


class ValueMemory(ArrivalsMemory, BeliefsMemory, EndsMemory, QueueMemory):
    """What comes, what is believed of jobs, when running ones end, who waits for what; and, per demand and tier, how
    much longer than expected openings took (others are faster, jobs run longer than declared)."""

    late: Table[tuple[Demand, int], float]
    forecasts: Table[tuple[Demand, int], tuple[int, int]]  # of openings: how many came true, of how many
    starves: str = ""  # the job that GPUs were last kept for
    apart: Table[str, bool]  # running jobs that could be nearer together when they got their GPUs
    paces: Table[str, float]  # of jobs that have not ended: work a second near, as believed when they last queued


History = tuple[tuple[float, float], ...]  # when an offer of one tier was taken, after how many leases; oldest first


class Histories(Memory):
    """The waits at which offers were taken, per demand and tier. Those that have left the window may still be in it."""

    taken: Table[Demand, tuple[History, ...]]
