"""Named tuples and records are made and read in one step where there is a compiled build, else the usual way.

An event makes five to seven named tuples, each through a Python function, and compiled code reads fifty fields of them
and of records through the general look-up of any attribute: a fifth of a compiled run. Only Dally's own classes and
those of policies are changed, in how long that takes and in nothing else (core/native.c).
"""

from __future__ import annotations

from dally.core.inner import NATIVE
from dally.core.records import MADE

_seen: set[type] = set()


def quicken(more: tuple[str, ...] = ()) -> int:
    """Of the classes known by now: Dally's records, and named tuples of Dally's modules and `more`, every one of them
    once; returns how many are new."""
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
