"""One job's life in figures, as long as it lives: what the ledger books to. Columns keep it afterwards (`lives`)."""

from __future__ import annotations

from array import array
from math import nan
from struct import Struct
from typing import Any, Final

from dally.core.job import Job
from dally.core.lives import ALONE, FLOATS, INTS, OUTCOMES
from dally.core.placement import Placement

MINIBATCHES: Final = 100  # how soon a user gets a first impression: time until so many are done (Gandiva, OSDI'18)
_ROUNDING: Final = 1e-9
_NOBODY: Final = Job("", 0.0, 0)
_FLOATS, _INTS = Struct(f"{len(FLOATS)}d"), Struct(f"{len(INTS)}i")
_NUMBER: Final = {name: number for number, name in enumerate(OUTCOMES)}

FIELDS: Final = (
    "_delay_left", "_exposed", "_fraction", "_gpus", "_lane", "_minibatches", "_neighbours", "_placed",
    "_placement", "_round", "_since", "_step", "comm", "comm_gpu_seconds", "end", "failed_starts",
    "first_minibatches", "first_start", "gpu_seconds", "gpus", "interruptions", "job_id", "level", "lost",
    "lost_gpu_seconds", "migrations", "model", "neighbour_loss", "number", "outcome", "packs", "preemptions",
    "resizes", "running", "submit", "suspended", "suspensions", "tenant", "unpacks", "user"
)  # fmt: skip


class Row:
    """One job's life in figures; times in seconds, NaN-free: what has not happened is None."""

    __slots__ = FIELDS

    def __init__(self, job: Job) -> None:
        self.number = -1  # among the jobs of the ledger, in order of submission
        self.job_id, self.submit, self.gpus = job.id, job.submit_time, job.gpus
        self.model, self.user, self.tenant = job.model, job.user, job.tenant
        self.first_start: float | None = None
        self.first_minibatches: float | None = None  # when its first 100 mini-batches were done
        self.end: float | None = None
        self.outcome = "unfinished"  # finished, failed, cancelled, rejected
        self.running = 0.0  # seconds it held GPUs, be it alone or with others
        self.suspended = 0.0  # of these, seconds in which it was another's turn
        self.comm = 0.0  # of these, seconds of communication that nothing hid
        self.neighbour_loss = 0.0  # of these, seconds lost to other jobs on its links
        self.lost = 0.0  # of these, seconds of loading and hand-over
        # Its part of the GPUs' time: of GPUs it shares, its turn's, divided evenly among those packed in it. So the
        # parts of all jobs add up to the GPUs that were held.
        self.gpu_seconds = self.comm_gpu_seconds = self.lost_gpu_seconds = 0.0
        self.level: int | None = None  # outermost level it was placed at
        self.preemptions = self.migrations = self.resizes = self.packs = self.unpacks = 0
        self.interruptions = self.failed_starts = 0
        self.suspensions = 0.0  # turns that ended while it was not alone: its time over the length of a round
        self._placement: Placement | None = None
        self._placed = 0.0  # when it got its present GPUs, or its present place on them
        self._lane = ALONE
        self._since = 0.0  # up to when the figures are booked
        self._exposed = 0.0
        self._neighbours = 1.0
        self._delay_left = 0.0
        self._fraction = 1.0
        self._gpus = 0.0  # GPUs whose time is its part
        self._round = 0.0  # seconds from one of its turns to the next; 0: it takes no turns
        self._step = 0.0
        self._minibatches = 0.0

    # With a ledger, from process to process.
    def __reduce__(self) -> tuple[Any, ...]:
        return Row, (_NOBODY,), self.__getstate__()

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in FIELDS)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(FIELDS, state, strict=True):
            setattr(self, name, value)

    @classmethod
    def empty(cls) -> Row:
        """Nobody's: `Lives.fill` makes it somebody's."""
        return cls(_NOBODY)

    def put(self, floats: array[float], ints: array[int]) -> None:
        """Its figures into its places of the columns, in the order of `lives.FLOATS` and `lives.INTS`."""
        _FLOATS.pack_into(floats, self.number * _FLOATS.size,
                          nan if self.first_start is None else self.first_start,
                          nan if self.first_minibatches is None else self.first_minibatches,
                          nan if self.end is None else self.end,
                          self.submit, self.running, self.suspended, self.comm, self.neighbour_loss, self.lost,
                          self.gpu_seconds, self.comm_gpu_seconds, self.lost_gpu_seconds, self.suspensions)  # fmt: skip
        _INTS.pack_into(ints, self.number * _INTS.size, self.gpus, self.preemptions, self.migrations, self.resizes,
                        self.packs, self.unpacks, self.interruptions, self.failed_starts,
                        -1 if self.level is None else self.level, _NUMBER[self.outcome])  # fmt: skip

    @property
    def jct(self) -> float | None:
        return None if self.end is None else self.end - self.submit

    @property
    def queueing(self) -> float | None:
        """Seconds without GPUs between submission and end."""
        return None if self.end is None else self.end - self.submit - self.running

    def book(self, now: float) -> None:
        """Account for the time since the last change on GPUs."""
        held = now - self._since
        if held <= 0:
            return
        self._since = now
        self.running += held
        waited = min(held, self._delay_left)
        self._delay_left -= waited
        self.lost += waited
        worked = held - waited
        self.gpu_seconds += held * self._gpus
        self.lost_gpu_seconds += waited * self._gpus
        self.comm_gpu_seconds += worked * self._exposed * self._gpus
        if self._round:
            self.suspended += held * (1.0 - self._fraction)
            self.suspensions += held / self._round
            worked *= self._fraction
        self.comm += worked * self._exposed
        self.neighbour_loss += worked * (1.0 - 1.0 / self._neighbours)
        if self.first_minibatches is None and self._step > 0:
            before, self._minibatches = self._minibatches, self._minibatches + worked / self._step
            if self._minibatches >= MINIBATCHES - _ROUNDING:
                needed = (MINIBATCHES - before) * self._step / self._fraction
                self.first_minibatches = min(now, now - held + waited + needed)
