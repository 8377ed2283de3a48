"""The innermost steps: heaps and sorted lists of tuples that begin with numbers, the plain way into a dictionary, named
tuples and records. Where there is a compiled build they go without Python's general ways (core/native.c)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from dally.core.records import MADE

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

__all__ = ["NATIVE", "heappop", "heappush", "heapreplace", "place_of", "put", "quicken"]

_seen: set[type] = set()


def quicken(more: tuple[str, ...] = ()) -> int:
    """Named tuples of Dally's modules and `more` are made, and their fields and those of records read, in one step from
    here on, and nothing else about them changes. An event makes five to seven named tuples, each through a Python
    function, and compiled code reads fifty fields through the general look-up of any attribute. Every class once;
    returns how many are new."""
    if NATIVE is None:  # pure Python
        return 0
    own = ("dally", *more)
    new = [each for each in tuple.__subclasses__() if each not in _seen and _plain(each, own)]
    for each in new:
        NATIVE.made(each)
    new += [each for each in MADE if each not in _seen]
    for each in new:
        NATIVE.read(each)
    _seen.update(new)
    return len(new)


def _plain(cls: type, packages: tuple[str, ...]) -> bool:
    """Whether it is one of ours, made by `NamedTuple` and nothing else."""
    own = cls.__module__.partition(".")[0] in packages and "_fields" in cls.__dict__
    return own and cls.__new__.__module__ == f"namedtuple_{cls.__name__}"
