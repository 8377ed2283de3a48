"""What memories are made of: tables and orders that a draft can be undone on (`core.memory`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar, overload

from dally.core.inner import place_of, put
from dally.core.records import MADE

K = TypeVar("K")
V = TypeVar("V")

ABSENT: Final[Any] = object()
_MANY: Final[Any] = object()  # in the log: a table's entries that were written at once
TAKEN: Final[Any] = object()  # an entry that was taken out, with its number
_ALL: Final[Any] = object()  # all entries of a table that was emptied
# A dictionary's own, looked up once: tables are written to at every event.
_put: Final[Any] = put
_take: Final[Any] = dict.pop  # of all that take something out, what costs least to call
_get: Final[Any] = dict.get


class Draft:
    """The undo log of one memory; `log` is None while nothing is being tried."""

    __slots__ = ("before", "log")

    def __init__(self) -> None:
        self.log: list[tuple[Any, Any, Any]] | None = None  # owner, what of it, what it was
        self.before: dict[str, Any] = {}  # the memory's plain values when the draft began

    def begin(self, values: dict[str, Any]) -> None:
        """Tables and orders write down what a plan changes of them. Plain values are few, and written often: it is
        cheaper to remember them all here than to look at every one that is set."""
        assert self.log is None, "drafts do not nest"
        self.log, self.before = [], values.copy()

    def keep(self) -> None:
        """The plan is committed: so is what was written for it."""
        self.log = None


class Table(dict[K, V], Generic[K, V]):
    """A dictionary whose values are immutable: a value is changed by putting another in its place.

    What a draft takes out and puts back would stand at the end. So from the first time that a draft takes anything out,
    a table numbers its keys in their order; a draft that is dropped sorts by the numbers, and one that is kept, which
    is nearly every one, has cost no more than what it changed."""

    __slots__ = ("_astray", "_draft", "_last", "_numbers")

    def __init__(self, draft: Draft, items: Iterable[tuple[K, V]] = ()) -> None:
        super().__init__(items)
        self._draft = draft
        self._numbers: dict[K, int] | None = None
        self._last = 0
        self._astray = False

    def _number(self, key: K) -> None:
        assert self._numbers is not None
        self._last += 1
        self._numbers[key] = self._last

    def __setitem__(self, key: K, value: V) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, key, _get(self, key, ABSENT)))
        if self._numbers is not None and key not in self._numbers:
            self._number(key)
        _put(self, key, value)

    def __delitem__(self, key: K) -> None:
        log, numbers = self._draft.log, self._numbers
        if log is not None:
            if numbers is None:
                numbers = self._count()
            log.append((self, TAKEN, (key, self[key], numbers[key])))
        _take(self, key)
        if numbers is not None:
            del numbers[key]

    def _count(self) -> dict[K, int]:
        self._last = len(self)
        self._numbers = dict(zip(self, range(1, len(self) + 1), strict=True))
        return self._numbers

    def pop(self, key: K, default: Any = ABSENT) -> Any:
        value = _get(self, key, ABSENT)
        if value is not ABSENT:
            del self[key]
            return value
        if default is ABSENT:
            raise KeyError(key)
        return default

    def setdefault(self, key: K, default: Any = None) -> V:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, _ALL, (dict(self), self._numbers, self._last)))
        dict.clear(self)
        self._numbers = None

    def update(self, *others: Any, **named: Any) -> None:
        new = dict(*others, **named)
        log, numbers = self._draft.log, self._numbers
        if log is not None:
            log.append((self, _MANY, {key: _get(self, key, ABSENT) for key in new}))
        if numbers is not None:
            for key in new:
                if key not in numbers:
                    self._number(key)
        dict.update(self, new)

    def popitem(self) -> tuple[K, V]:
        key = next(reversed(self))
        return key, self.pop(key)

    def __ior__(self, other: Any) -> Table[K, V]:  # type: ignore[override,misc]
        self.update(other)
        return self

    def undo(self, key: Any, value: Any) -> None:
        """Back to what an entry of the log says."""
        if key is _MANY:  # objects
            for each, old in value.items():
                self.undo(each, old)
        elif key is _ALL:  # objects
            dict.clear(self)
            dict.update(self, value[0])
            self._numbers, self._last = value[1], value[2]
        elif key is TAKEN:
            back, old, number = value
            _put(self, back, old)
            assert self._numbers is not None
            self._numbers[back] = number
            self._astray = True
        elif value is ABSENT:
            _take(self, key)
            if self._numbers is not None:
                self._numbers.pop(key, None)
        else:
            _put(self, key, value)

    def undone(self) -> None:
        """Everything of a draft has been undone: what was put back goes to its place."""
        if self._astray and (numbers := self._numbers) is not None:
            found = sorted(self.items(), key=lambda item: numbers[item[0]])
            dict.clear(self)
            dict.update(self, found)
        self._astray = False

    def fill(self, items: Any) -> None:
        """With what was saved, whatever is being tried."""
        dict.update(self, items)


class Order(Generic[V]):
    """Different entries (tuples) in ascending order."""

    # A plain list inside: to move the 8 bytes of each of 10,000 entries takes less than to look for a piece of it.
    __slots__ = ("_draft", "_entries")

    def __init__(self, draft: Draft, entries: Iterable[V] = ()) -> None:
        self._draft = draft
        self._entries: list[Any] = sorted(entries)

    def __class_getitem__(cls, inside: Any) -> Any:
        return GenericAlias(cls, inside)

    def add(self, value: V) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, False, value))
        self._entries.insert(place_of(self._entries, value), value)

    def remove(self, value: V) -> None:
        entries = self._entries
        at = place_of(entries, value)
        if at == len(entries) or entries[at] != value:
            raise ValueError(f"{value!r} is not in the order")
        entries.pop(at)
        log = self._draft.log
        if log is not None:
            log.append((self, True, value))

    def discard(self, value: V) -> None:
        if value in self:
            self.remove(value)

    def pop(self, index: int = -1) -> V:
        value: V = self._entries[index]
        self.remove(value)
        return value

    def update(self, values: Iterable[V]) -> None:
        for value in values:
            self.add(value)

    def clear(self) -> None:
        for value in list(self._entries):
            self.remove(value)

    def undo(self, removed: bool, value: Any) -> None:
        """Back to what an entry of the log says."""
        if removed:
            self._entries.insert(place_of(self._entries, value), value)
        else:
            self._entries.pop(place_of(self._entries, value))

    def fill(self, values: Iterable[V]) -> None:
        """With what was saved, whatever is being tried."""
        self._entries = sorted([*self._entries, *values])

    # --- what a sorted list can be asked ------------------------------------------------------------------------

    def irange(self, minimum: Any = None, maximum: Any = None, inclusive: tuple[bool, bool] = (True, True),
               reverse: bool = False) -> Iterator[V]:  # fmt: skip
        """Those between two values; both count themselves, unless `inclusive` says otherwise."""
        entries = self._entries
        first, last = 0, len(entries)
        if minimum is not None:
            first = bisect_left(entries, minimum) if inclusive[0] else bisect_right(entries, minimum)
        if maximum is not None:
            last = bisect_right(entries, maximum) if inclusive[1] else bisect_left(entries, maximum)
        found = entries[first:last]
        return reversed(found) if reverse else iter(found)

    def bisect_left(self, value: Any) -> int:
        return bisect_left(self._entries, value)

    def bisect_right(self, value: Any) -> int:
        return bisect_right(self._entries, value)

    def index(self, value: V) -> int:
        at = place_of(self._entries, value)
        if at == len(self._entries) or self._entries[at] != value:
            raise ValueError(f"{value!r} is not in the order")
        return at

    def __contains__(self, value: object) -> bool:
        entries = self._entries
        at = place_of(entries, value)
        return at < len(entries) and bool(entries[at] == value)

    @overload
    def __getitem__(self, at: int) -> V: ...
    @overload
    def __getitem__(self, at: slice) -> list[V]: ...
    def __getitem__(self, at: int | slice) -> V | list[V]:
        found: V | list[V] = self._entries[at]
        return found

    def __iter__(self) -> Iterator[V]:
        return iter(self._entries)

    def __reversed__(self) -> Iterator[V]:
        found: Iterator[V] = reversed(self._entries)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Order):
            return bool(self._entries == other._entries)
        return bool(self._entries == other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Order({self._entries!r})"


MADE.append(Table)  # its own few fields are read at every write
