"""Times that depend on how slow the links are: upper envelopes of lines, in a max-plus algebra of two operations.

The end of a step is the longest path through its operations. With every collective a line in the slowness of
the links, a longest path is a maximum of lines; those that never win are dropped as they appear, and a handful is
left. Evaluating a step under contention is then a few multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dally.network.nccl import Cost, Rate, rate_at

Line = tuple[float, tuple[float, ...]]  # seconds without neighbours; bytes that pass at each rate
Lines = list[Line]  # their maximum


class Work(NamedTuple):
    """Something that takes time: seconds without neighbours, and its bytes at each rate."""

    seconds: float
    slopes: tuple[float, ...] = ()


class Rates:
    """The rates (seconds per byte) that occur in one step, numbered."""

    def __init__(self) -> None:
        self.known: dict[Rate, int] = {}
        self.alone: list[float] = []

    def number(self, cost: Cost) -> int:
        index = self.known.setdefault(cost.rate, len(self.known))
        if index == len(self.alone):
            self.alone.append(cost.alone)
        return index

    def work(self, cost: Cost, size: float, times: float = 1.0) -> Work:
        """`times` collectives of `size` bytes; all costs must have been numbered before."""
        slopes = [0.0] * len(self.alone)
        slopes[self.known[cost.rate]] = size * times
        return Work(times * (cost.latency + size * cost.alone), tuple(slopes))

    def slower(self, slower: Sequence[float]) -> list[float]:
        """Seconds per byte lost to neighbours, per rate."""
        return [rate_at(rate, slower) - alone for rate, alone in zip(self.known, self.alone, strict=True)]


def at(seconds: float, rates: int) -> Lines:
    """A time that no link can change."""
    return [(seconds, (0.0,) * rates)]


def after(lines: Lines, work: Work) -> Lines:
    """The end of work that begins at `lines`."""
    seconds, slopes = work
    if not slopes:
        return [(value + seconds, bytes_) for value, bytes_ in lines]
    return [
        (value + seconds, tuple(a + b for a, b in zip(bytes_, slopes, strict=True))) for value, bytes_ in lines
    ]


def latest(a: Lines, b: Lines) -> Lines:
    """The later of two times, for every slowness of the links of at least 1."""
    if len(a) == len(b) == 1:
        if _beats(a[0], b[0]):
            return a
        if _beats(b[0], a[0]):
            return b
        return a + b
    kept: Lines = []
    # Largest value first: a line further down survives only where it rises faster than all above it.
    for line in sorted(a + b, reverse=True):
        if not any(_beats(winner, line) for winner in kept):
            kept.append(line)
    return kept


def _beats(one: Line, other: Line) -> bool:
    return one[0] >= other[0] and all(x >= y for x, y in zip(one[1], other[1], strict=True))


def value(lines: Lines) -> float:
    """Without neighbours."""
    return max(line[0] for line in lines)
