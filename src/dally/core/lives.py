"""What a ledger keeps of jobs that have ended: figures in columns, and a row again for whoever asks.

A job that lives is a `Row`, an object of forty fields. A million of those that have ended would be a gigabyte; their
figures in arrays are a fifth of it, and go into tables and plots as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from dally.core.placement import Placement

if TYPE_CHECKING:
    from dally.core.ledger import Ledger
    from dally.core.row import Row

OUTCOMES = ("finished", "failed", "cancelled", "rejected", "unfinished")
# of a row, in the order in which they lie in the arrays
TIMES = ("first_start", "first_minibatches", "end")  # NaN: it has not happened
SUMS = ("submit", "running", "suspended", "comm", "neighbour_loss", "lost", "gpu_seconds", "comm_gpu_seconds",
        "lost_gpu_seconds", "suspensions")  # fmt: skip
COUNTS = ("gpus", "preemptions", "migrations", "resizes", "packs", "unpacks", "interruptions", "failed_starts")
FLOATS = TIMES + SUMS
INTS = (*COUNTS, "level", "outcome")  # level −1: it never ran; the outcome by its number in `OUTCOMES`
_WIDE, _NARROW = len(FLOATS), len(INTS)
_NO_FLOATS, _NO_INTS = array("d", [0.0] * _WIDE), array("i", [0] * _NARROW)


class Lives:
    """One entry per job, in order of submission: `floats` and `ints` hold as many values per job as `FLOATS` and
    `INTS` have names."""

    __slots__ = ("floats", "ids", "ints", "models", "tenants", "users")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.models: list[str | None] = []
        self.users: list[str | None] = []
        self.tenants: list[str | None] = []
        self.floats, self.ints = array("d"), array("i")

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, row: Row) -> int:
        """A place for a job that begins to live; its figures come with `Row.put`."""
        self.ids.append(row.job_id)
        self.models.append(row.model)
        self.users.append(row.user)
        self.tenants.append(row.tenant)
        self.floats.extend(_NO_FLOATS)
        self.ints.extend(_NO_INTS)
        return len(self.ids) - 1

    def fill(self, number: int, row: Row) -> Row:
        """The row with the figures that were put."""
        row.number, row.job_id = number, self.ids[number]
        row.model, row.user, row.tenant = self.models[number], self.users[number], self.tenants[number]
        at = number * _WIDE
        start, minibatches, end, *sums = self.floats[at : at + _WIDE]
        row.first_start = None if isnan(start) else start
        row.first_minibatches = None if isnan(minibatches) else minibatches
        row.end = None if isnan(end) else end
        (row.submit, row.running, row.suspended, row.comm, row.neighbour_loss, row.lost, row.gpu_seconds,
         row.comm_gpu_seconds, row.lost_gpu_seconds, row.suspensions) = sums  # fmt: skip
        at = number * _NARROW
        (row.gpus, row.preemptions, row.migrations, row.resizes, row.packs, row.unpacks, row.interruptions,
         row.failed_starts, level, outcome) = self.ints[at : at + _NARROW]  # fmt: skip
        row.level = None if level < 0 else level
        row.outcome = OUTCOMES[outcome]
        return row

    def taken(self, numbers: Sequence[int], floats: bytes, ints: bytes) -> Lives:
        """Those of these numbers, whose figures are handed over: they are cut out where there is NumPy."""
        some = Lives()
        for name in ("ids", "models", "users", "tenants"):
            values: list[Any] = getattr(self, name)
            setattr(some, name, [values[number] for number in numbers])
        some.floats.frombytes(floats)
        some.ints.frombytes(ints)
        return some


class Rows(Sequence["Row"]):
    """A row per job, in order of submission: of one that lives the row itself, of one that has ended a new one with
    its figures."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __len__(self) -> int:
        return len(self._ledger.lives)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        numbers = range(len(self))[at]
        return self._ledger.numbered(numbers) if isinstance(numbers, int) else list(map(self._ledger.numbered, numbers))

    def __iter__(self) -> Iterator[Row]:
        return map(self._ledger.numbered, range(len(self)))


class Lane(NamedTuple):
    """A job's place on GPUs it shares: its turn, and its place in the turn."""

    turn: int = 0
    turns: int = 1
    place: int = 0  # among those packed in the turn
    packed: int = 1  # how many they are


ALONE = Lane()


class Segment(NamedTuple):
    """A stretch of time a job spent on one placement, in one place among those it shared it with."""

    row: int
    start: float
    end: float
    placement: Placement
    lane: Lane = ALONE


class Stretches(Sequence[Segment]):
    """Segments in columns. Equal placements are one object: a cluster has fewer of them than a trace has jobs."""

    __slots__ = ("_same", "ends", "lanes", "placements", "rows", "starts")

    def __init__(self) -> None:
        self.rows, self.starts, self.ends = array("i"), array("d"), array("d")
        self.placements: list[Placement] = []
        self.lanes: dict[int, Lane] = {}  # of those who were not alone
        self._same: dict[Placement, Placement] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, row: int, start: float, end: float, placement: Placement, lane: Lane) -> None:
        if lane is not ALONE and (lane.turns > 1 or lane.packed > 1):
            self.lanes[len(self.rows)] = lane
        self.rows.append(row)
        self.starts.append(start)
        self.ends.append(end)
        self.placements.append(self._same.setdefault(placement, placement))

    def taken(self, places: Sequence[int], rows: Sequence[int]) -> Stretches:
        """Those in these places, of jobs that have these numbers elsewhere."""
        some = Stretches()
        some.rows.extend(rows)
        some.starts.extend(map(self.starts.__getitem__, places))
        some.ends.extend(map(self.ends.__getitem__, places))
        some.placements.extend(map(self.placements.__getitem__, places))
        if self.lanes:
            some.lanes = {at: self.lanes[place] for at, place in enumerate(places) if place in self.lanes}
        return some

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        index = range(len(self))[at]
        return Segment(self.rows[index], self.starts[index], self.ends[index], self.placements[index],
                       self.lanes.get(index, ALONE))  # fmt: skip

    def __iter__(self) -> Iterator[Segment]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stretches) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
