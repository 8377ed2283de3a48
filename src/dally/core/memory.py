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


class Draft:
    """The undo log of one memory; `log` is None while nothing is being tried."""

    __slots__ = ("log",)

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] | None = None


class Table(dict[K, V], Generic[K, V]):
    """A dictionary whose values are immutable: a value is changed by putting another in its place."""

    __slots__ = ("_copied_for", "_draft")

    def __init__(self, draft: Draft, items: Iterable[tuple[K, V]] = ()) -> None:
        super().__init__(items)
        self._draft = draft
        self._copied_for: object = None  # the draft in which something was taken out already

    def __setitem__(self, key: K, value: V) -> None:
        log = self._draft.log
        if log is not None and self._copied_for is not log:
            log.append((self, key, dict.get(self, key, _ABSENT)))
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        log = self._draft.log
        if log is not None:
            self._copy_for(log)
        dict.__delitem__(self, key)

    def _copy_for(self, log: list[tuple[Any, ...]]) -> None:
        """What is put back one by one would stand at the end: the order is restored from a copy. One per draft is
        enough, and nothing else need be logged after it."""
        if self._copied_for is not log:
            self._copied_for = log
            log.append((self, _ABSENT, dict(self)))

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
            self._copy_for(log)
        dict.clear(self)

    def update(self, *others: Any, **named: Any) -> None:
        new = dict(*others, **named)
        log = self._draft.log
        if log is not None and self._copied_for is not log:
            log.append((self, _MANY, {key: dict.get(self, key, _ABSENT) for key in new}))
        dict.update(self, new)

    def popitem(self) -> tuple[K, V]:
        key = next(reversed(self))
        return key, self.pop(key)

    def __ior__(self, other: Any) -> Table[K, V]:  # type: ignore[override,misc]
        self.update(other)
        return self

    def _undo(self, key: K, value: Any) -> None:
        if key is _MANY:
            for each, old in value.items():
                self._undo(each, old)
        elif key is _ABSENT:
            dict.clear(self)
            dict.update(self, value)
        elif value is _ABSENT:
            dict.__delitem__(self, key)
        else:
            dict.__setitem__(self, key, value)


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
