"""What a policy remembers: plain data that a plan may write to as on a draft, kept if the plan is, else dropped.

Outside a draft a write is a fact (the policy heard of something that happened). Inside one it belongs to the plan in
the making: `keep` makes it part of the memory together with the plan, `drop` leaves no trace of it, not even in the
order of a table. What can be worked out again from the view and the memory (sorted lanes, warm solvers, look-up
tables) is no memory: it is kept by the policy as a cache, and nothing but speed may depend on it. A cache that has to
follow a plan in the making is made of tables on the memory's `draft`: undone with it, never saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar, get_origin, get_type_hints

from sortedcontainers import SortedList

from dally.core.plain import Names, from_plain, to_plain

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound="Memory")

_ABSENT: Any = object()
_MANY: Any = object()  # in the log: a table's entries that were written at once
_TAKEN: Any = object()  # an entry that was taken out, with its number
_ALL: Any = object()  # all entries of a table that was emptied


class Draft:
    """The undo log of one memory; `log` is None while nothing is being tried."""

    __slots__ = ("log",)

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] | None = None


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
            log.append((self, key, dict.get(self, key, _ABSENT)))
        if self._numbers is not None and key not in self._numbers:
            self._number(key)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        log, numbers = self._draft.log, self._numbers
        if log is not None:
            if numbers is None:
                numbers = self._count()
            log.append((self, _TAKEN, (key, self[key], numbers[key])))
        dict.__delitem__(self, key)
        if numbers is not None:
            del numbers[key]

    def _count(self) -> dict[K, int]:
        self._last = len(self)
        self._numbers = dict(zip(self, range(1, len(self) + 1), strict=True))
        return self._numbers

    def pop(self, key: K, default: Any = _ABSENT) -> Any:
        if key in self:
            value = self[key]
            del self[key]
            return value
        if default is _ABSENT:
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
            log.append((self, _MANY, {key: dict.get(self, key, _ABSENT) for key in new}))
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

    def _undo(self, key: Any, value: Any) -> None:
        if key is _MANY:
            for each, old in value.items():
                self._undo(each, old)
        elif key is _ALL:
            dict.clear(self)
            dict.update(self, value[0])
            self._numbers, self._last = value[1:]
        elif key is _TAKEN:
            back, old, number = value
            dict.__setitem__(self, back, old)
            assert self._numbers is not None
            self._numbers[back] = number
            self._astray = True
        elif value is _ABSENT:
            dict.__delitem__(self, key)
            if self._numbers is not None:
                self._numbers.pop(key, None)
        else:
            dict.__setitem__(self, key, value)

    def _undone(self) -> None:
        """Everything of a draft has been undone: what was put back goes to its place."""
        if self._astray and (numbers := self._numbers) is not None:
            found = sorted(self.items(), key=lambda item: numbers[item[0]])
            dict.clear(self)
            dict.update(self, found)
        self._astray = False


class Order(SortedList, Generic[V]):  # type: ignore[misc]
    """Different entries (tuples) in ascending order."""

    def __new__(cls, *_: Any, **__: Any) -> Any:  # SortedList chooses a class by its key; there is none here
        return object.__new__(cls)

    def __init__(self, draft: Draft, entries: Iterable[V] = ()) -> None:
        super().__init__(entries)
        self._draft = draft

    def add(self, value: V) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, False, value))
        super().add(value)

    def remove(self, value: V) -> None:
        super().remove(value)
        log = self._draft.log
        if log is not None:
            log.append((self, True, value))

    def discard(self, value: V) -> None:
        if value in self:
            self.remove(value)

    def _undo(self, removed: bool, value: V) -> None:
        if removed:
            SortedList.add(self, value)
        else:
            SortedList.remove(self, value)


class Memory:
    """Base of all memories. Its fields are annotated in the class body: plain immutable values with a default, and
    `Table`s and `Order`s, which begin empty. What may be saved is what `core.plain` can write."""

    version: ClassVar[int] = 1  # raised when the fields mean something else: an older one is then not loaded
    _hints: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        object.__setattr__(self, "_draft", Draft())
        for name, hint in self.fields().items():
            kind = get_origin(hint) or hint
            if kind is Table or kind is Order:
                object.__setattr__(self, name, kind(self._draft))
            else:
                object.__setattr__(self, name, getattr(type(self), name))

    _draft: Draft

    @classmethod
    def fields(cls) -> dict[str, Any]:
        if "_hints" not in cls.__dict__:
            hints = get_type_hints(cls)
            cls._hints = {name: hint for name, hint in hints.items()
                          if not name.startswith("_") and get_origin(hint) is not ClassVar}  # fmt: skip
        return cls._hints

    def __setattr__(self, name: str, value: Any) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, name, getattr(self, name)))
        object.__setattr__(self, name, value)

    def _undo(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    # --- drafts --------------------------------------------------------------------------------------------

    @property
    def draft(self) -> Draft:
        """For a policy's own indexes, `Table(memory.draft)`: what a plan writes to them goes the way of the memory."""
        return self._draft

    def begin(self) -> None:
        assert self._draft.log is None, "drafts do not nest"
        self._draft.log = []

    def keep(self) -> None:
        """The plan is committed: so is what was written for it."""
        self._draft.log = None

    def drop(self) -> None:
        """The plan is thrown away: everything is as it was."""
        log, self._draft.log = self._draft.log, None
        for owner, key, value in reversed(log or ()):
            owner._undo(key, value)
        for owner, key, _ in log or ():
            if key is _TAKEN:
                owner._undone()

    # --- from process to process ------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.fields()}
        return {name: dict(value) if isinstance(value, Table) else list(value) if isinstance(value, Order) else value
                for name, value in plain.items()}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        Memory.__init__(self)
        for name, value in state.items():
            kept = getattr(self, name)
            if isinstance(kept, Table):
                dict.update(kept, value)
            elif isinstance(kept, Order):
                SortedList.update(kept, value)
            else:
                object.__setattr__(self, name, value)

    # --- saved and loaded ----------------------------------------------------------------------------------

    def save(self, names: Names) -> dict[str, Any]:
        """As plain data, machines by name."""
        plain = {name: to_plain(getattr(self, name), hint, names) for name, hint in self.fields().items()}
        return {"version": self.version, **plain}

    @classmethod
    def load(cls: type[M], plain: dict[str, Any], names: Names) -> M:
        """The memory that was saved. What names machines that are there no more is left out of its table or order."""
        memory = cls()
        for name, hint in cls.fields().items():
            if name not in plain:
                continue
            kind = get_origin(hint) or hint
            value = from_plain(plain[name], hint, names)
            if kind is Table or kind is Order:
                object.__setattr__(memory, name, kind(memory._draft, value))
            else:
                object.__setattr__(memory, name, value)
        return memory


class NoMemory(Memory):
    """Of policies that look at the view alone."""
