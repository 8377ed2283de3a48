"""Times that depend on how slow the links are: upper envelopes of lines, in a max-plus algebra of two operations.

The end of a step is the longest path through its operations. With every collective a line in the slowness of
the links, a longest path is a maximum of lines; those that never win are dropped as they appear, and a handful is
left. Evaluating a step under contention is then a few multiplications.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from dally.network.nccl import Cost, Phase, Rate

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
        self.compiled: tuple[tuple[float, tuple[tuple[float, Phase], ...]], ...] = ()

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

    def compile(self, levels: int) -> None:
        """Prepare `compiled`: per rate, its seconds per byte alone and its phases.

        Of a phase, the longest that no neighbour can change (a GPU's own port, its slot), and the rest by level.
        """
        self.compiled = tuple(
            (alone, tuple(_phase(phase, levels) for phase in rate))
            for rate, alone in zip(self.known, self.alone, strict=True)
        )

    @property
    def width(self) -> int:
        """How many slopes a line has."""
        return len(self.alone)

    def slack(self, levels: int) -> list[float]:
        """Per level, how many times slower its ports may become at no cost: in every phase something else takes as
        long. Where a rate is not what its phases come to, to the last bit, nothing is said (0)."""
        room = [inf] * levels
        for alone, phases in self.compiled:
            per_byte = 0.0
            for fixed, pairs in phases:
                longest = max([fixed, *(c for _, c in pairs)])
                per_byte += longest
                for level, c in pairs:
                    if c > 0:
                        room[level] = min(room[level], max(1.0, longest / c * _LESS))
            if per_byte > alone:
                return [0.0] * levels
        return room


_LESS: Final = 1.0 - 1e-12  # so that no rounding takes what has no room to spare for what has


def _phase(phase: Phase, levels: int) -> tuple[float, Phase]:
    fixed = max((c for level, c in phase if level == 0 or level >= levels), default=0.0)
    return fixed, tuple((level, c) for level, c in phase if 0 < level < levels)


def at(seconds: float, rates: int) -> Lines:
    """A time that no link can change."""
    return [(seconds, (0.0,) * rates)]


def after(lines: Lines, work: Work) -> Lines:
    """The end of work that begins at `lines`."""
    seconds, slopes = work
    if not slopes:
        return [(value + seconds, bytes_) for value, bytes_ in lines]
    if len(slopes) == 1:
        (s,) = slopes
        return [(value + seconds, (x + s,)) for value, (x,) in lines]
    if len(slopes) == 2:
        s, t = slopes
        return [(value + seconds, (x + s, y + t)) for value, (x, y) in lines]
    return [
        (value + seconds, tuple([a + b for a, b in zip(bytes_, slopes, strict=True)])) for value, bytes_ in lines
    ]


def latest(a: Lines, b: Lines) -> Lines:
    """The later of two times, for every slowness of the links of at least 1."""
    if len(a) == len(b) == 1:
        if _beats(a[0], b[0]):
            return a
        if _beats(b[0], a[0]):
            return b
        return a + b
    both = sorted(a + b, reverse=True)  # largest value first: one further down must rise faster than all above
    rates = len(both[0][1])
    if rates == 1:
        return _hull(both)
    kept = _unbeaten_of_two(both) if rates == 2 else _unbeaten(both)
    return kept if len(kept) <= _MOST_LINES else _sampled(kept)


def _unbeaten(ordered: Lines) -> Lines:
    """Without lines that one further up, whose value is no smaller, is never below."""
    kept: Lines = []
    for line in ordered:
        for winner in kept:
            for x, y in zip(winner[1], line[1], strict=True):
                if x < y:
                    break
            else:
                break
        else:
            kept.append(line)
    return kept


def _unbeaten_of_two(ordered: Lines) -> Lines:
    """The same with two rates, where cold steps of large models spend most of their time."""
    kept: Lines = []
    firsts: list[float] = []  # slopes of the lines that are kept
    seconds: list[float] = []
    for line in ordered:
        first, second = line[1]
        for place in range(len(firsts)):
            if firsts[place] >= first and seconds[place] >= second:
                break
        else:
            firsts.append(first)
            seconds.append(second)
            kept.append(line)
    return kept


def _hull(ordered: Lines) -> Lines:
    """With one rate the upper envelope is a convex hull: a line is kept where it is ever the highest."""
    kept: Lines = []
    v0 = s0 = v1 = s1 = 0.0  # of the last but one that is kept, and of the last: cold steps spend their time here
    for line in ordered:
        new, slope = line[0], line[1][0]
        if kept and slope <= s1:
            continue
        # The last one is of no use if the new line overtakes the one before it sooner than the last does.
        while len(kept) > 1 and not (v0 - new) * (s1 - s0) > (v0 - v1) * (slope - s0):
            kept.pop()
            v1, s1 = v0, s0
            if len(kept) > 1:
                before = kept[-2]
                v0, s0 = before[0], before[1][0]
        kept.append(line)
        v0, s0, v1, s1 = v1, s1, new, slope
    return kept


_MOST_LINES: Final = 12
_EXCESS = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)  # longest path × this is added to what is sent at a rate


def _sampled(ordered: Lines) -> Lines:
    """With several rates, the lines that are highest somewhere on a grid; exact without neighbours. `ordered`: largest
    value first.

    A maximum of fewer lines is never above the true one and still rises with every rate.
    """
    rates = len(ordered[0][1])
    longest = ordered[0][0]
    values = [line[0] for line in ordered]
    columns = [[line[1][rate] for line in ordered] for rate in range(rates)]
    steepest = [max(column) for column in columns]
    scale = [longest / max(slope, 1e-9) for slope in steepest]
    kept: dict[Line, None] = {ordered[0]: None}
    for column, slope, unit in zip(columns, steepest, scale, strict=True):
        for excess in _EXCESS:
            kept[ordered[_highest(values, column, unit * excess, slope)]] = None
    for excess in _EXCESS:
        kept[ordered[_highest_of_all(values, columns, [unit * excess for unit in scale], steepest)]] = None
    return list(kept)


def _highest(values: list[float], slopes: list[float], extra: float, steepest: float) -> int:
    """The first line that is highest where a byte takes `extra` longer. Values descend, so that below some value not
    even the steepest line could be."""
    best, found = values[0] + slopes[0] * extra, 0
    lift = steepest * extra
    for place in range(1, len(values)):
        value = values[place]
        if value + lift <= best:
            break
        time = value + slopes[place] * extra
        if time > best:
            best, found = time, place
    return found


def _highest_of_all(values: list[float], columns: list[list[float]], extras: list[float],
                    steepest: list[float]) -> int:  # fmt: skip
    """The same where bytes at every rate take longer."""
    lift = 0.0
    for rate in range(len(extras)):
        lift += steepest[rate] * extras[rate]
    best, found = -1.0, 0
    for place in range(len(values)):
        value = values[place]
        if value + lift <= best:
            break
        more = 0.0
        for rate in range(len(extras)):
            more += columns[rate][place] * extras[rate]
        if value + more > best:
            best, found = value + more, place
    return found


def _beats(one: Line, other: Line) -> bool:
    if one[0] < other[0]:
        return False
    for x, y in zip(one[1], other[1], strict=True):  # noqa: SIM110 (a generator costs more than what it looks at)
        if x < y:
            return False
    return True


def value(lines: Lines) -> float:
    """Without neighbours."""
    return max(line[0] for line in lines)
