"""The backfill scheduler's map of the future: which nodes nobody has reserved yet, stretch by stretch of time.

A reservation takes its nodes whole, whatever part of them the job will use: that is Slurm's way, and the reason why
small jobs on shared nodes are kept back more than their GPUs would ask for. Times are on a grid of `bf_resolution`,
rounded down.
"""

from __future__ import annotations

from itertools import pairwise


class Stretch:
    __slots__ = ("begin", "end", "open")

    def __init__(self, begin: float, end: float, nodes: int) -> None:
        self.begin, self.end = begin, end
        self.open = nodes  # bit set of those that are not reserved


class Space:
    """Stretches of time in order, from now to the end of the window."""

    def __init__(self, now: float, window: float, resolution: float, nodes: int) -> None:
        self.resolution = resolution
        self.stretches = [Stretch(self.grid(now), self.grid(now + window), nodes)]

    def grid(self, time: float) -> float:
        return time // self.resolution * self.resolution if self.resolution else time

    def opening(self, start: float, end: float, nodes: int) -> tuple[int, float | None]:
        """Of these nodes, those open from start to end; and when to look again: the end of the first stretch after
        which others are open than in it."""
        later: float | None = None
        found = nodes
        last = len(self.stretches) - 1
        for index, stretch in enumerate(self.stretches):
            if stretch.end > start and later is None and index < last:
                after = self.stretches[index + 1].open & nodes
                if after & ~(found & stretch.open):
                    later = stretch.end
            if stretch.end <= start:
                continue
            if stretch.begin > end:
                break
            found &= stretch.open
        return found, later

    def overlaps(self, nodes: int, start: float, end: float) -> bool:
        """Whether somebody has reserved one of these nodes for a part of this time."""
        return any(nodes & ~stretch.open for stretch in self.stretches if stretch.end > start and stretch.begin < end)

    def reserve(self, nodes: int, start: float, end: float) -> None:
        """The nodes are for one job from start to end, on the grid, for at least one unit of it."""
        begin = max(self.grid(start), self.stretches[0].begin)
        end = max(self.grid(end), begin + self.resolution)
        if begin >= self.stretches[-1].end:
            return
        found: list[Stretch] = []
        for stretch in self.stretches:
            for left, right in _cut(stretch.begin, stretch.end, begin, end):
                taken = left >= begin and right <= end
                open_to = stretch.open & ~nodes if taken else stretch.open
                if found and found[-1].open == open_to:
                    found[-1].end = right
                else:
                    found.append(Stretch(left, right, open_to))
        self.stretches = found


def _cut(begin: float, end: float, *at: float) -> list[tuple[float, float]]:
    """A stretch of time in pieces; what is empty is left out."""
    marks = [begin, *(time for time in at if begin < time < end), end]
    return [(left, right) for left, right in pairwise(marks) if left < right]
