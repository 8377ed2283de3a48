"""The ledger: the journal summed up per job and over time. Every metric, table and plot starts here."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Entry, Leaving, Rejected
from dally.core.placement import Placement
from dally.core.topology import Topology


class Row:
    """One job's life in figures; times in seconds, NaN-free: what has not happened is None."""

    __slots__ = ("_delay_left", "_exposed", "_neighbours", "_placed", "_placement", "_since", "comm", "end",
                 "first_start", "gpus", "job_id", "level", "lost", "migrations", "model", "neighbour_loss",
                 "outcome", "preemptions", "running", "submit", "tenant", "user")  # fmt: skip

    def __init__(self, event: ev.Arrived) -> None:
        job = event.job
        self.job_id, self.submit, self.gpus = job.id, job.submit_time, job.gpus
        self.model, self.user, self.tenant = job.model, job.user, job.tenant
        self.first_start: float | None = None
        self.end: float | None = None
        self.outcome = "unfinished"  # finished, failed, cancelled, rejected
        self.running = 0.0  # seconds it held GPUs
        self.comm = 0.0  # of these, seconds of communication that nothing hid
        self.neighbour_loss = 0.0  # of these, seconds lost to other jobs on its links
        self.lost = 0.0  # of these, seconds of loading and hand-over
        self.level: int | None = None  # outermost level it was placed at
        self.preemptions = self.migrations = 0
        self._placement: Placement | None = None
        self._placed = 0.0  # when it got its present GPUs
        self._since = 0.0  # up to when the figures are booked
        self._exposed = 0.0
        self._neighbours = 1.0
        self._delay_left = 0.0

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
        self.comm += worked * self._exposed
        self.neighbour_loss += worked * (1.0 - 1.0 / self._neighbours)


class Segment(NamedTuple):
    """A stretch of time a job spent on one placement."""

    row: int
    start: float
    end: float
    placement: Placement


class Ledger:
    """A journal sink. Feed it entries as they are written or read back; it never looks at anything else."""

    def __init__(self, topology: Topology, *, segments: bool = True) -> None:
        self.topology = topology
        self.rows: list[Row] = []
        self.segments: list[Segment] = []
        self.keeps_segments = segments
        self.time, self.busy, self.queue = array("d"), array("q"), array("q")  # after each change
        self.leaving_gpu_seconds = 0.0  # GPUs kept busy by checkpoints of preempted jobs
        self.entries = 0
        self.first_submit: float | None = None
        self.last_end: float | None = None
        self._index: dict[str, int] = {}
        self._leaving: dict[str, tuple[float, int]] = {}
        self._busy_now = self._queue_now = 0
        self._sinks = {
            ev.Arrived: self._arrived, ev.Measured: self._measured, pl.Start: self._start, pl.Preempt: self._preempt,
            pl.Migrate: self._migrate, ev.Finished: self._ended, ev.Failed: self._ended, ev.Cancelled: self._ended,
            ev.Interrupted: self._interrupted, ev.Yielded: self._yielded, Rejected: self._rejected,
            Leaving: self._left_behind,
        }  # fmt: skip

    def __call__(self, now: float, entry: Entry) -> None:
        self.entries += 1
        sink = self._sinks.get(type(entry))
        if sink is not None:
            sink(now, entry)  # type: ignore[operator]

    def row(self, job_id: str) -> Row:
        return self.rows[self._index[job_id]]

    def close(self, now: float) -> None:
        """The run stops here: book what still holds GPUs."""
        for row in self.rows:
            if row._placement is not None:
                self._off(now, row)

    def _arrived(self, now: float, event: ev.Arrived) -> None:
        self._index[event.job.id] = len(self.rows)
        self.rows.append(Row(event))
        if self.first_submit is None:
            self.first_submit = now
        self._level(now, 0, 1)

    def _start(self, now: float, action: pl.Start) -> None:
        row = self.row(action.job)
        if row.first_start is None:
            row.first_start = now
        self._on(now, row, action.placement)
        self._level(now, row.gpus, -1)

    def _migrate(self, now: float, action: pl.Migrate) -> None:
        row = self.row(action.job)
        row.migrations += 1
        self._off(now, row)
        self._on(now, row, action.placement)

    def _preempt(self, now: float, action: pl.Preempt) -> None:
        row = self.row(action.job)
        row.preemptions += 1
        self._off(now, row)
        self._level(now, -row.gpus, 1)

    def _interrupted(self, now: float, event: ev.Interrupted) -> None:
        row = self.row(event.job)
        self._leaving_done(now, event.job)
        if row._placement is not None:
            self._off(now, row)
            self._level(now, -row.gpus, 1)

    def _left_behind(self, now: float, entry: Leaving) -> None:
        self._leaving[entry.job] = (now, entry.gpus)

    def _yielded(self, now: float, event: ev.Yielded) -> None:
        self._leaving_done(now, event.job)

    def _leaving_done(self, now: float, job_id: str) -> None:
        left = self._leaving.pop(job_id, None)
        if left is not None:
            self.leaving_gpu_seconds += (now - left[0]) * left[1]

    def _measured(self, now: float, event: ev.Measured) -> None:
        row = self.row(event.job)
        if row._placement is None:
            return
        row.book(now)
        row._exposed, row._neighbours = event.exposed, event.neighbours
        row._delay_left = max(row._delay_left, event.delay)

    def _ended(self, now: float, event: ev.Finished | ev.Failed | ev.Cancelled) -> None:
        row = self.row(event.job)
        if row.outcome != "unfinished":
            return
        row.outcome = type(event).__name__.lower()
        row.end = now
        self._leaving_done(now, event.job)
        if row._placement is not None:
            self._off(now, row)
            self._level(now, -row.gpus, 0)
        else:
            self._level(now, 0, -1)
        if row.outcome == "finished":
            self.last_end = now

    def _rejected(self, now: float, entry: Rejected) -> None:
        self.row(entry.job).outcome = "rejected"
        self._level(now, 0, -1)

    def _on(self, now: float, row: Row, placement: Placement) -> None:
        row._placement, row._placed, row._since = placement, now, now
        row._exposed, row._neighbours, row._delay_left = 0.0, 1.0, 0.0
        level = placement.level(self.topology)
        row.level = level if row.level is None else max(row.level, level)

    def _off(self, now: float, row: Row) -> None:
        row.book(now)
        assert row._placement is not None
        if self.keeps_segments:
            self.segments.append(Segment(self._index[row.job_id], row._placed, now, row._placement))
        row._placement = None

    def _level(self, now: float, busy: int, queue: int) -> None:
        self._busy_now += busy
        self._queue_now += queue
        if self.time and self.time[-1] == now:
            self.busy[-1], self.queue[-1] = self._busy_now, self._queue_now
        else:
            self.time.append(now)
            self.busy.append(self._busy_now)
            self.queue.append(self._queue_now)
