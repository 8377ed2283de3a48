"""What a claim is: its cells, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from speed.cells import Cell, Row
from speed.plots import Points

POLICIES = (
    "fifo",
    "fifo[backfill=true]",
    "smallest",
    "srtf",
    "las",
    "tiresias",
    "gandiva",
    "gavel",
    "slurm",
    "dally[timers=auto]",
    "dally",
)
JOBS = (1_000, 10_000, 100_000, 1_000_000)
CLUSTERS = {
    64: "1x8x8",
    256: "4x8x8",
    640: "8x10x8",
    2_560: "16x20x8",
    10_240: "32x40x8",
    40_960: "64x80x8",
    65_536: "64x128x8",
}
LOADS = (0.5, 0.7, 0.9, 1.0, 1.1, 1.3)
QUEUEING = 640  # GPUs on which jobs queue at load 0.9
SEED = 1


class Asked(NamedTuple):
    """What somebody wants of a claim now: the rest is for another time."""

    policies: Sequence[str]
    builds: Sequence[str]
    most: int  # jobs of a cell


@dataclass(frozen=True, slots=True)
class Shown:
    table: list[list[str]]  # the first line is the head
    ratio: str  # the one figure to look at, in a sentence
    lines: Mapping[str, Points] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    title: str
    cells: Callable[[Asked], list[Cell]]
    show: Callable[[list[Row]], Shown]


def groups(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["policy"], row["build"]), []).append(row)
    return found
