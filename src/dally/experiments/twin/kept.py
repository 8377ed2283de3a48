"""Replays on disk as soon as they have come to their end: a twin that was stopped goes on from them.

A trip makes the same replays in the same order from the same inputs and code, which the folder's claim vouches for. So
a replay is found again by its number in that order and its policy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dally.core.records import dataclass
from dally.simulator.digests import text_digest

if TYPE_CHECKING:
    from dally.experiments.twin.replaying import Replay


@dataclass(slots=True)
class Shelf:
    """Where the replays of one trip are put; `found`: policies that were not run again."""

    folder: Path
    turns: int = 0
    found: list[str] = field(default_factory=list)

    def turn(self, policies: list[str]) -> list[Slot]:
        """The places for the next replays of the trip."""
        self.turns += 1
        return [Slot(self.folder / f"{self.turns:03}-{text_digest(policy)[:16]}.json") for policy in policies]


@dataclass(frozen=True, slots=True)
class Slot:
    path: Path

    def put(self, replay: Replay) -> None:
        """Called in the process that ran it: nothing that happens to another one can lose it."""
        content = asdict(replay) | {"lives": {"wait": list(replay.lives.wait), "jct": list(replay.lives.jct)}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        part.write_text(json.dumps(content), encoding="utf-8")
        part.replace(self.path)

    def find(self, jobs: int) -> Replay | None:
        """None where there is none, or one that cannot be read: it is made again."""
        from dally.experiments.twin.replaying import Lives, Replay

        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            lives = {name: np.array(values, dtype=np.float64) for name, values in content.pop("lives").items()}
            found = Replay(**content | {"lives": Lives(**lives), "notes": tuple(content["notes"])})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return found if len(found.lives.wait) == len(found.lives.jct) == jobs else None


_SHELF: ContextVar[Shelf | None] = ContextVar("shelf", default=None)


@contextmanager
def kept_in(folder: Path) -> Iterator[Shelf]:
    """Replays made in here are kept in `folder`, and found there."""
    shelf = Shelf(folder)
    before = _SHELF.set(shelf)
    try:
        yield shelf
    finally:
        _SHELF.reset(before)


def current_shelf() -> Shelf | None:
    return _SHELF.get()
