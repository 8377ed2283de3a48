"""What a ledger keeps of jobs that have ended: figures in columns (`rows` makes rows of them for whoever asks).

A job that lives is a `Row`, an object of forty fields. A million of those that have ended would be a gigabyte; their
figures in arrays are a fifth of it, and go into tables and plots as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isnan
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from dally.core.placement import Placement

if TYPE_CHECKING:
    from dally.core.row import Row

OUTCOMES = ("finished", "failed", "cancelled", "rejected", "unfinished")
# of a row, in the order in which they lie in the arrays
TIMES = ("first_start", "first_minibatches", "end")  # NaN: it has not happened
SUMS = ("submit", "running", "suspended", "comm", "neighbour_loss", "lost", "gpu_seconds", "comm_gpu_seconds",
        "lost_gpu_seconds", "suspensions")  # fmt: skip
COUNTS = ("gpus", "preemptions", "migrations", "resizes", "packs", "unpacks", "interruptions", "failed_starts")
FLOATS = TIMES + SUMS
INTS = (*COUNTS, "level", "outcome")  # level −1: it never ran; the outcome by its number in `OUTCOMES`
_WIDE: Final = len(FLOATS)
_NARROW: Final = len(INTS)
_NO_FLOATS: Final = array("d", [0.0] * _WIDE)
_NO_INTS: Final = array("i", [0] * _NARROW)
_OF_LIVES: Final = ("floats", "ids", "ints", "models", "tenants", "users")
_OF_STRETCHES: Final = ("_ends", "_rows", "_same", "_starts", "lanes", "placements")
_BY: Final = 1024  # one by one each number would take as long as the event it is of: they are packed by the thousand
_FLOATS_BY, _INTS_BY = Struct(f"{_BY}d"), Struct(f"{_BY}q")


class Floats:
    """A long column of floats. The latest wait in a list."""

    __slots__ = ("_latest", "_packed")

    def __init__(self) -> None:
        self._packed = array("d")
        self._latest: list[float] = []

    # From process to process; compiled, nothing would go along by itself.
    def __reduce__(self) -> tuple[Any, ...]:
        return Floats, (), self.all()

    def __setstate__(self, state: array[float]) -> None:
        self._packed = state

    def __len__(self) -> int:
        return len(self._packed) + len(self._latest)

    def __bool__(self) -> bool:
        return len(self) > 0

    def append(self, value: float) -> None:
        if len(self._latest) == _BY:
            self._packed.frombytes(_FLOATS_BY.pack(*self._latest))
            self._latest = []
        self._latest.append(value)

    def all(self) -> array[float]:
        """To be read, until something is appended."""
        self._packed.extend(self._latest)
        self._latest = []
        return self._packed


class Ints:
    """The same of integers of 64 bits."""

    __slots__ = ("_latest", "_packed")

    def __init__(self) -> None:
        self._packed = array("q")
        self._latest: list[int] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Ints, (), self.all()

    def __setstate__(self, state: array[int]) -> None:
        self._packed = state

    def append(self, value: int) -> None:
        if len(self._latest) == _BY:
            self._packed.frombytes(_INTS_BY.pack(*self._latest))
            self._latest = []
        self._latest.append(value)

    def change_last(self, value: int) -> None:
        if self._latest:
            self._latest[-1] = value
        else:
            self._packed[-1] = value

    def all(self) -> array[int]:
        """To be read, until something is appended."""
        self._packed.extend(self._latest)
        self._latest = []
        return self._packed


class Lives:
    """One entry per job, in order of submission: `floats` and `ints` hold as many values per job as `FLOATS` and
    `INTS` have names."""

    __slots__ = _OF_LIVES

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.models: list[str | None] = []
        self.users: list[str | None] = []
        self.tenants: list[str | None] = []
        self.floats, self.ints = array("d"), array("i")

    # With a ledger, from process to process; compiled, nothing would go along by itself.
    def __reduce__(self) -> tuple[Any, ...]:
        return Lives, (), tuple(getattr(self, name) for name in _OF_LIVES)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(_OF_LIVES, state, strict=True):
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return bool(self.ids)

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


class Stretches:
    """A sequence of segments, in columns. Equal placements are one object: a cluster has fewer of them than a trace has
    jobs."""

    __slots__ = _OF_STRETCHES

    def __init__(self) -> None:
        self._rows, self._starts, self._ends = Ints(), Floats(), Floats()
        self.placements: list[Placement] = []
        self.lanes: dict[int, Lane] = {}  # of those who were not alone
        self._same: dict[Placement, Placement] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Stretches, (), tuple(getattr(self, name) for name in _OF_STRETCHES)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(_OF_STRETCHES, state, strict=True):
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.placements)

    def __bool__(self) -> bool:
        return len(self.placements) > 0

    @property
    def rows(self) -> array[int]:
        """Numbers of the jobs."""
        return self._rows.all()

    @property
    def starts(self) -> array[float]:
        return self._starts.all()

    @property
    def ends(self) -> array[float]:
        return self._ends.all()

    def put(self, row: int, start: float, end: float, placement: Placement, lane: Lane) -> None:
        if lane is not ALONE and (lane.turns > 1 or lane.packed > 1):
            self.lanes[len(self.placements)] = lane
        self._rows.append(row)
        self._starts.append(start)
        self._ends.append(end)
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
