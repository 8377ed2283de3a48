"""Cluster presets: the `clusters` section of the catalog's data files, a user's own included."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dally.catalog.entries import Entry
from dally.catalog.store import Section, _entries, _folders


def preset_names() -> list[str]:
    return list(_presets(_folders()))


def preset_entry(text: str) -> Entry | None:
    """The entry of a preset by name or alias; None where there is none."""
    section = _presets(_folders())
    # `4x8x8` must stay a shape even if somebody's preset is called `4-x-8-x-8`: no loose matches for digits.
    if text in section:
        return section[text]
    name = section.resolve(text) if any(char.isalpha() and char not in "xX" for char in text) else None
    return None if name is None or "=" in text else section[name]


@lru_cache(maxsize=8)
def _presets(folders: tuple[Path, ...]) -> Section[Entry]:
    return Section("cluster", _entries("clusters", folders), lambda _, entry: entry)
