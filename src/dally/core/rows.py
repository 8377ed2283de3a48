"""A ledger's jobs as rows again, for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from dally.core.ledger import Ledger
    from dally.core.row import Row


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
