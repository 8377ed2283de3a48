"""The innermost steps: heaps and sorted lists of tuples that begin with numbers, and the plain way into a dictionary.
Where there is a compiled build they go without the general way to compare and to call (core/native.c)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


def _native() -> Any:
    try:
        return import_module("dally.core.native")
    except ImportError:  # pure Python
        return None


NATIVE = _native()

if TYPE_CHECKING:

    def heappush(heap: list[T], item: T) -> None: ...
    def heappop(heap: list[T]) -> T: ...
    def heapreplace(heap: list[T], item: T) -> T: ...
    def place_of(entries: list[T], entry: T) -> int:
        """Where it stands in ascending order, or would, no two being equal."""

    def put(into: dict[Any, Any], key: Any, value: Any) -> None:
        """Whatever a class derived from it makes of that."""
elif NATIVE is not None:
    heappush, heappop, heapreplace = NATIVE.heappush, NATIVE.heappop, NATIVE.heapreplace
    place_of, put = NATIVE.place_of, NATIVE.put
else:
    from bisect import bisect_left as place_of
    from heapq import heappop, heappush, heapreplace

    put = dict.__setitem__

__all__ = ["NATIVE", "heappop", "heappush", "heapreplace", "place_of", "put"]
