"""Long columns of numbers, a few bytes each. One by one each would take as long as the event it is of: the latest wait
in a list, and are packed by the thousand."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Any, Final

_BY: Final = 1024
_FLOATS, _INTS = Struct(f"{_BY}d"), Struct(f"{_BY}q")


class Floats:
    """A column of floats."""

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
            self._packed.frombytes(_FLOATS.pack(*self._latest))
            self._latest = []
        self._latest.append(value)

    def all(self) -> array[float]:
        """To be read, until something is appended."""
        self._packed.extend(self._latest)
        self._latest = []
        return self._packed


class Ints:
    """A column of integers of 64 bits."""

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
            self._packed.frombytes(_INTS.pack(*self._latest))
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
