"""Policies that packages have registered: the entry points of a group, read from the files that hold them.

`importlib.metadata` reads the same, and brings the email package along, a tenth of a small run. It is asked where
something on the path is more than a folder: an archive, or a finder of its own.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

GROUP = "dally.policies"


def registered() -> dict[str, str]:
    """`module:attribute` by the name of the policy; of packages found twice the first on the path counts."""
    folders = [path or os.curdir for path in sys.path]
    others = [finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_distributions")]
    if others or any(os.path.isfile(folder) for folder in folders):
        from importlib import metadata

        return {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}
    return _read(tuple(folders), tuple(map(_changed, folders)))


def load(value: str) -> Any:
    """What `module:attribute` names."""
    module, _, attribute = value.partition("[")[0].partition(":")
    found: Any = import_module(module.strip())
    for part in filter(None, attribute.strip().split(".")):
        found = getattr(found, part)
    return found


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _read(folders: tuple[str, ...], changed: tuple[int, ...]) -> dict[str, str]:
    """Asked again only where a folder of the path has changed since."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for folder in folders:
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))
        except OSError:
            continue
        for name in names:
            package = name.partition("-")[0].removesuffix(".egg").lower().replace("-", "_").replace(".", "_")
            if package not in seen:
                seen.add(package)
                found |= _entries(os.path.join(folder, name, "entry_points.txt"))
    return found


def _entries(path: str) -> dict[str, str]:
    """Those of our group in one file: `name = module:attribute` under `[dally.policies]`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return {}
    if GROUP not in text:
        return {}
    found, section = {}, ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip()
    return found
