"""Cluster presets: the `clusters` section of the catalog's data files, a user's own included."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dally.catalog.clusters.shorthand import is_shape
from dally.catalog.entries import Entry
from dally.catalog.store import Section, _entries, _folders


def preset_names() -> list[str]:
    return list(_presets(_folders()))


def preset_entry(text: str) -> Entry | None:
    """The entry of a preset by name or alias; None where there is none."""
    section = _presets(_folders())
    if text in section:
        return section[text]
    # Loose spelling is for names: a path, pools or a shape must not be taken for a preset that reads alike.
    if any(mark in text for mark in "/\\=") or is_shape(text):
        return None
    name = section.resolve(text)
    return None if name is None else section[name]


@lru_cache(maxsize=8)
def _presets(folders: tuple[Path, ...]) -> Section[Entry]:
    return Section("cluster", _entries("clusters", folders), lambda _, entry: entry)
