"""The readers, one module per family: a module here with a `READERS` tuple is found and used."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from dally.traces.readers.reader import Reader

__all__ = ["Reader", "all_readers"]


@cache
def all_readers() -> dict[str, Reader]:
    """Every reader by its name, in the order of their modules' names."""
    readers: dict[str, Reader] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for reader in getattr(importlib.import_module(f"{__name__}.{module}"), "READERS", ()):
            readers[reader.name] = reader
    return readers
