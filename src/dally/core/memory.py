"""What a policy remembers: plain data that a plan may write to as on a draft, kept if the plan is, else dropped.

Outside a draft a write is a fact (the policy heard of something that happened). Inside one it belongs to the plan in
the making: `keep` makes it part of the memory together with the plan, `drop` leaves no trace of it, not even in the
order of a table. What can be worked out again from the view and the memory (sorted lanes, warm solvers, look-up
tables) is no memory: it is kept by the policy as a cache, and nothing but speed may depend on it. A cache that has to
follow a plan in the making is made of tables on the memory's `draft`: undone with it, never saved.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar, get_origin, get_type_hints

from dally.core.plain import Names, from_plain, to_plain
from dally.core.tables import TAKEN, Draft, Order, Table

__all__ = ["Draft", "Memory", "NoMemory", "Order", "Table"]

M = TypeVar("M", bound="Memory")


class Memory:
    """Base of all memories. Its fields are annotated in the class body: plain immutable values with a default, and
    `Table`s and `Order`s, which begin empty. What may be saved is what `core.plain` can write."""

    version: ClassVar[int] = 1  # raised when the fields mean something else: an older one is then not loaded
    _hints: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        self._draft = Draft()
        for name, hint in self.fields().items():
            kind = get_origin(hint) or hint
            setattr(self, name, kind(self._draft) if kind is Table or kind is Order else getattr(type(self), name))

    @classmethod
    def fields(cls) -> dict[str, Any]:
        if "_hints" not in cls.__dict__:
            hints = get_type_hints(cls)
            cls._hints = {name: hint for name, hint in hints.items()
                          if not name.startswith("_") and get_origin(hint) is not ClassVar}  # fmt: skip
        return cls._hints

    # --- drafts --------------------------------------------------------------------------------------------

    @property
    def draft(self) -> Draft:
        """For a policy's own indexes, `Table(memory.draft)`: what a plan writes to them goes the way of the memory."""
        return self._draft

    def begin(self) -> None:
        """What is written from now on belongs to a plan in the making."""
        self._draft.begin(self.__dict__)

    def keep(self) -> None:
        """The plan is committed, and with it what was written."""
        self._draft.keep()

    def drop(self) -> None:
        """The plan is thrown away: everything is as it was."""
        draft = self._draft
        log, draft.log = draft.log, None
        if log is None:
            return
        for owner, key, value in reversed(log):
            owner.undo(key, value)
        for owner, key, _ in log:
            if key is TAKEN:
                owner.undone()
        self.__dict__.clear()
        self.__dict__.update(draft.before)

    # --- from process to process ------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.fields()}
        return {name: dict(value) if isinstance(value, Table) else list(value) if isinstance(value, Order) else value
                for name, value in plain.items()}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        Memory.__init__(self)
        for name, value in state.items():
            kept = getattr(self, name)
            if isinstance(kept, (Table, Order)):
                kept.fill(value)
            else:
                setattr(self, name, value)

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
            setattr(memory, name, kind(memory._draft, value) if kind is Table or kind is Order else value)
        return memory


class NoMemory(Memory):
    """Of policies that look at the view alone."""
