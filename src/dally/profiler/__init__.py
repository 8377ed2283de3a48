"""Stash: where a training job stalls, what would help, and what to rent. Measured profiles are models."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dally.profiler.document import Profile, read_profile, write_profile
    from dally.profiler.inprocess import profile

_HOME = {"Profile": "document", "read_profile": "document", "write_profile": "document", "profile": "inprocess"}

__all__ = ["Profile", "profile", "read_profile", "write_profile"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
