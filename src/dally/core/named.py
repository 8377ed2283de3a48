"""Named tuples are made in one step where there is a compiled build, and the usual way where there is none.

An event makes five to seven of them, and the usual way is a Python function for each: a tenth of a compiled run. Only
Dally's own classes and those of policies are changed, in how they are called and in nothing else (core/named.c).
"""

from __future__ import annotations

from collections.abc import Callable


def quicken_named_tuples(more: tuple[str, ...] = ()) -> int:
    """Of those known by now, in Dally's modules and `more`; returns how many. Every one of them once."""
    quicken = _native()
    if quicken is None:
        return 0
    return sum(quicken(each) for each in tuple.__subclasses__() if _plain(each, ("dally", *more)))


def _native() -> Callable[[type], bool] | None:
    try:
        from dally.core.named_native import quicken  # type: ignore[import-not-found]
    except ImportError:  # pure Python
        return None
    return quicken  # type: ignore[no-any-return]


def _plain(cls: type, packages: tuple[str, ...]) -> bool:
    """Whether it is one of ours, made by `NamedTuple` and nothing else."""
    own = cls.__module__.partition(".")[0] in packages and "_fields" in cls.__dict__
    return own and cls.__new__.__module__ == f"namedtuple_{cls.__name__}"
