"""The ledger: the journal summed up per job and over time. Every metric, table and plot starts here."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Instant, Leaving, Rejected
from dally.core.lives import ALONE, Floats, Ints, Lane, Lives, Segment, Stretches
from dally.core.placement import Placement, level_of
from dally.core.row import MINIBATCHES, Row
from dally.core.rows import Rows
from dally.core.sharing import Group, Groups, Share
from dally.core.topology import Topology

__all__ = ["ALONE", "MINIBATCHES", "Lane", "Ledger", "Row", "Rows", "Segment"]


class Ledger:
    """A journal sink. Feed it entries as they are written or read back; it never looks at anything else."""

    def __init__(self, topology: Topology, *, segments: bool = True) -> None:
        self.topology = topology
        self.lives = Lives()
        self.segments = Stretches()
        self.keeps_segments = segments
        self._time, self._busy, self._queue = Floats(), Ints(), Ints()  # after each change
        self._changed: float | None = None  # when they last did
        self.deepest_pack = 1  # jobs that ran at once on the same GPUs, at most
        self.lost_work_gpu_seconds = 0.0  # GPU time of work that faults threw away
        self.outages: list[tuple[str, float, float]] = []  # machine, since when, until when
        self._down: dict[str, float] = {}
        self.leaving_gpu_seconds = 0.0  # GPUs kept busy by checkpoints of preempted jobs
        self.first_submit: float | None = None
        self.last_end: float | None = None
        self._live: dict[str, Row] = {}  # jobs that have not ended
        self._index: dict[str, int] = {}  # of all jobs, as far as `_indexed`: made where somebody asks for an ended one
        self._indexed = 0
        self._leaving: dict[str, tuple[float, int]] = {}
        self._busy_now = self._queue_now = 0
        self._groups: Groups | None = None  # from the first share on
        self._sinks = self._by_kind()

    def _by_kind(self) -> dict[type, Callable[[float, Any], None]]:
        """What books an entry of which kind."""
        return {
            ev.Arrived: self._arrived, ev.Measured: self._measured, pl.Start: self._start, pl.Preempt: self._preempt,
            pl.Migrate: self._migrate, pl.Resize: self._resize, pl.Reshare: self._reshare,
            ev.Finished: self._ended, ev.Failed: self._ended, ev.Cancelled: self._ended,
            ev.Interrupted: self._interrupted, ev.StartFailed: self._start_failed, ev.Yielded: self._yielded,
            Rejected: self._rejected, Leaving: self._left_behind, ev.MachineDown: self._machine_down,
            ev.MachineUp: self._machine_up,
        }  # fmt: skip

    # A run travels from process to process, and is kept in a file; compiled, nothing of it would go along by itself.
    def __reduce__(self) -> tuple[Any, ...]:
        return Ledger, (self.topology,), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._sinks = self._by_kind()

    def __call__(self, instant: Instant) -> None:
        # They are tuples already, and compiled code goes through a tuple by number.
        self._see(instant.time, tuple(instant.happened))
        if instant.decided:
            self._see(instant.time, tuple(instant.decided))

    def _see(self, now: float, entries: tuple[Any, ...]) -> None:
        sinks = self._sinks
        for entry in entries:
            kind = type(entry)
            if kind is _MEASURED:  # objects; four kinds are most of what is written, and a call by table costs
                self._measured(now, entry)
            elif kind is _START:  # objects
                self._start(now, entry)
            elif kind is _FINISHED:  # objects
                self._ended(now, entry)
            elif kind is _ARRIVED:  # objects
                self._arrived(now, entry)
            else:
                sink = sinks.get(kind)
                if sink is not None:
                    sink(now, entry)

    @property
    def rows(self) -> Rows:
        return Rows(self)

    @property
    def time(self) -> array[float]:
        """When GPUs held or jobs waiting changed."""
        return self._time.all()

    @property
    def busy(self) -> array[int]:
        """GPUs held from then on."""
        return self._busy.all()

    @property
    def queue(self) -> array[int]:
        """Jobs waiting from then on."""
        return self._queue.all()

    def row(self, job_id: str) -> Row:
        """To be read; of an ended job, its figures."""
        row = self._live.get(job_id)
        if row is None:
            for number in range(self._indexed, len(self.lives)):
                self._index[self.lives.ids[number]] = number
            self._indexed = len(self.lives)
            row = self.numbered(self._index[job_id])
        return row

    def _row(self, job_id: str) -> Row:
        """To be changed: what a world says of a job after its end still counts."""
        row = self._live.get(job_id)
        if row is None:
            row = self._live[job_id] = self.row(job_id)
        return row

    def numbered(self, number: int) -> Row:
        """The row of the job with this number."""
        row = self._live.get(self.lives.ids[number])
        return row if row is not None and row.number == number else self.lives.fill(number, Row.empty())

    def of_some(self, lives: Lives, segments: Stretches, first_submit: float | None,
                last_end: float | None) -> Ledger:  # fmt: skip
        """These jobs alone, and for everything else what is booked here."""
        some = Ledger(self.topology, segments=self.keeps_segments)
        some.__setstate__({**self.__getstate__(), "lives": lives, "segments": segments, "first_submit": first_submit,
                           "last_end": last_end, "_live": {}, "_index": {}, "_indexed": 0})  # fmt: skip
        return some

    def settle(self) -> None:
        """The figures of those who live, as they are now, beside those of the ended."""
        for row in self._live.values():
            row.put(self.lives.floats, self.lives.ints)

    def _by_number(self) -> list[Row]:
        return sorted(self._live.values(), key=attrgetter("number"))

    def _over(self, row: Row) -> None:
        """It has ended: its figures are enough."""
        row.put(self.lives.floats, self.lives.ints)
        del self._live[row.job_id]

    def close(self, now: float) -> None:
        """The run stops here: book what still holds GPUs."""
        for row in self._by_number():
            if row._placement is not None:
                self._off(now, row)
        for machine in list(self._down):
            self._machine_up(now, ev.MachineUp(machine))

    def _machine_down(self, now: float, event: ev.MachineDown) -> None:
        self._down.setdefault(event.machine, now)

    def _machine_up(self, now: float, event: ev.MachineUp) -> None:
        since = self._down.pop(event.machine, None)
        if since is not None:
            self.outages.append((event.machine, since, now))

    def _arrived(self, now: float, event: ev.Arrived) -> None:
        row = Row(event.job)
        row.number = self.lives.add(row)
        before = self._live.get(row.job_id)
        if before is not None:  # the name again: a new life
            before.put(self.lives.floats, self.lives.ints)
        self._live[row.job_id] = row
        if self.first_submit is None:
            self.first_submit = now
        self._level(now, 0, 1)

    @property
    def shared(self) -> bool:
        """Whether anybody ever held GPUs under terms of a share."""
        return self._groups is not None

    def _start(self, now: float, action: pl.Start) -> None:
        row = self._row(action.job)
        if row.first_start is None:
            row.first_start = now
        self._level(now, self._on(now, row, action.placement, action.share), -1)

    def _migrate(self, now: float, action: pl.Migrate) -> None:
        row = self._row(action.job)
        row.migrations += 1
        self._move(now, row, action.placement, action.share)

    def _resize(self, now: float, action: pl.Resize) -> None:
        row = self._row(action.job)
        row.resizes += 1
        self._move(now, row, action.placement, None)

    def _move(self, now: float, row: Row, placement: Placement, share: Share | None) -> None:
        freed = self._off(now, row)
        more = self._on(now, row, placement, share) - freed
        if more:
            self._level(now, more, 0)

    def _reshare(self, now: float, action: pl.Reshare) -> None:
        row, groups = self._row(action.job), self._kept_groups()
        packed = len(groups.of(action.job).turn(action.job)) > 1
        if action.share.beside is None:
            row.unpacks += packed
        elif action.share.beside not in groups.of(action.job).turn(action.job):
            row.packs += 1
        self._share_out(now, groups.reshare(action.job, action.share))

    def _preempt(self, now: float, action: pl.Preempt) -> None:
        row = self._row(action.job)
        row.preemptions += 1
        self._level(now, -self._off(now, row), 1)

    def _start_failed(self, now: float, event: ev.StartFailed) -> None:
        row = self._row(event.job)
        row.failed_starts += 1
        if row._placement is not None:
            self._level(now, -self._off(now, row), 1)

    def _interrupted(self, now: float, event: ev.Interrupted) -> None:
        row = self._row(event.job)
        row.interruptions += 1
        self.lost_work_gpu_seconds += event.lost
        self._leaving_done(now, event.job)
        if row._placement is not None:
            self._level(now, -self._off(now, row), 1)

    def _left_behind(self, now: float, entry: Leaving) -> None:
        self._leaving[entry.job] = (now, entry.gpus)

    def _yielded(self, now: float, event: ev.Yielded) -> None:
        self._leaving_done(now, event.job)

    def _leaving_done(self, now: float, job_id: str) -> None:
        left = self._leaving.pop(job_id, None)
        if left is not None:
            self.leaving_gpu_seconds += (now - left[0]) * left[1]

    def _measured(self, now: float, event: ev.Measured) -> None:
        row = self._row(event.job)
        if row._placement is None:
            return
        row.book(now)
        row._exposed, row._neighbours, row._step = event.exposed, event.neighbours, event.step_time
        row._delay_left = max(row._delay_left, event.delay)

    def _ended(self, now: float, event: ev.Finished | ev.Failed | ev.Cancelled) -> None:
        row = self._row(event.job)
        if row.outcome != "unfinished":
            return
        row.outcome = "finished" if type(event) is _FINISHED else type(event).__name__.lower()
        row.end = now
        self._leaving_done(now, event.job)
        if row._placement is not None:
            self._level(now, -self._off(now, row), 0)
        else:
            self._level(now, 0, -1)
        if row.outcome == "finished":
            self.last_end = now
        self._over(row)

    def _rejected(self, now: float, entry: Rejected) -> None:
        row = self._row(entry.job)
        row.outcome = "rejected"
        self._level(now, 0, -1)
        self._over(row)

    def _on(self, now: float, row: Row, placement: Placement, share: Share | None) -> int:
        """Put a job on GPUs; returns how many nobody held before."""
        row._placement, row._placed, row._since, row._lane = placement, now, now, ALONE
        row._exposed, row._neighbours, row._delay_left, row._step = 0.0, 1.0, 0.0, 0.0
        row._fraction, row._gpus, row._round = 1.0, float(placement.gpus), 0.0
        level = level_of(placement, self.topology)
        row.level = level if row.level is None else max(row.level, level)
        if share is None and self._groups is None:
            return placement.gpus
        groups = self._kept_groups(but=row)
        row.packs += share is not None and share.beside is not None
        if groups.enter(row.job_id, placement, share):
            return placement.gpus
        self._share_out(now, groups.of(row.job_id))
        return 0

    def _off(self, now: float, row: Row) -> int:
        """Take a job off its GPUs; returns how many nobody holds any more."""
        row.book(now)
        placement = row._placement
        assert placement is not None
        self._end_stretch(now, row)
        row._placement = None
        if self._groups is None:
            return placement.gpus
        group = self._groups.leave(row.job_id)
        self._share_out(now, group)
        return 0 if group else placement.gpus

    def _kept_groups(self, but: Row | None = None) -> Groups:
        """Groups are kept from the first share on: until then everybody is alone on his GPUs."""
        if self._groups is None:
            self._groups = Groups()
            for row in self._by_number():
                if row._placement is not None and row is not but:  # objects
                    self._groups.enter(row.job_id, row._placement)
        return self._groups

    def _share_out(self, now: float, group: Group) -> None:
        """Who is on these GPUs, or in which turn, has changed."""
        weights = [group.weight(turn) for turn in group.turns]
        for number, turn in enumerate(group.turns):
            fraction = weights[number] / sum(weights)
            self.deepest_pack = max(self.deepest_pack, len(turn))
            for place, member in enumerate(turn):
                row = self._row(member)
                row.book(now)
                lane = Lane(number, len(weights), place, len(turn))
                if lane != row._lane:
                    if now > row._placed:
                        self._end_stretch(now, row)
                    row._lane, row._placed = lane, now
                row._fraction = fraction
                row._gpus = group.placement.gpus * fraction / len(turn)
                row._round = sum(weights) * group.quantum if len(weights) > 1 else 0.0

    def _end_stretch(self, now: float, row: Row) -> None:
        if self.keeps_segments:
            assert row._placement is not None
            self.segments.put(row.number, row._placed, now, row._placement, row._lane)

    def _level(self, now: float, busy: int, queue: int) -> None:
        self._busy_now += busy
        self._queue_now += queue
        if now == self._changed:
            self._busy.change_last(self._busy_now)
            self._queue.change_last(self._queue_now)
        else:
            self._changed = now
            self._time.append(now)
            self._busy.append(self._busy_now)
            self._queue.append(self._queue_now)


_MEASURED: Final = ev.Measured
_ARRIVED: Final = ev.Arrived
_FINISHED: Final = ev.Finished
_START: Final = pl.Start
_FIELDS = (
    "_busy", "_busy_now", "_changed", "_down", "_groups", "_index", "_indexed", "_leaving", "_live", "_queue",
    "_queue_now", "_time", "deepest_pack", "first_submit", "keeps_segments", "last_end", "leaving_gpu_seconds",
    "lives", "lost_work_gpu_seconds", "outages", "segments", "topology",
)  # fmt: skip
