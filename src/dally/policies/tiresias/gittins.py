"""The Gittins index over a distribution of total GPU time: who is likeliest to end soonest per GPU-second spent.

G(a) = sup over Δ > 0 of P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a] (Tiresias, NSDI'19, section 3.2), with
a the GPU-seconds a job has had and S the GPU-seconds it takes in all. S is an empirical distribution: samples of
finished jobs, kept sorted with their running sums, so that P and E of any window are two look-ups.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from pathlib import Path
from typing import Final

from dally.core.errors import UserError

RELEASED_DELTA: Final = 3250  # GPU-seconds; fixed in the released simulator


class Distribution:
    """Total GPU time of jobs as samples."""

    def __init__(self, samples: Iterable[float] = ()) -> None:
        self.samples = sorted(samples)
        total = len(self.samples)
        # of the first i samples
        sums = self._sums = [0.0, *accumulate(self.samples)]
        # GPU-seconds that stopping every job at the i-th sample would take
        cost = self._cost = [sums[i] + (self.samples[i - 1] * (total - i) if i else 0.0) for i in range(total + 1)]
        # the point after i on the upper hull of the points (cost, i) from i on
        following = self._next = [0] * (total + 1)
        for i in range(total - 1, 0, -1):
            at = i + 1
            while (after := following[at]) and (
                (at - i) * (cost[after] - cost[at]) <= (after - at) * (cost[at] - cost[i])
            ):
                at = after
            following[i] = at

    def until(self, attained: float, limit: float) -> float:
        """The index for one Δ: the limit of the job's queue minus what it has had."""
        above = bisect_right(self.samples, attained)
        count = len(self.samples) - above
        if count == 0 or limit <= attained:
            return 0.0
        inside = bisect_right(self.samples, limit)
        spent = self._sums[inside] - self._sums[above] + limit * (len(self.samples) - inside) - attained * count
        return (inside - above) / spent if spent > 0 else 0.0

    def supremum(self, attained: float) -> float:
        """The index with the best Δ. Between two samples the ratio only falls with Δ, so the best Δ ends at one:
        it is the steepest line from (what has been spent, jobs ended) to a point further on, a tangent to a hull.
        """
        above = bisect_right(self.samples, attained)
        total = len(self.samples)
        if above == total:
            return 0.0
        spent = self._sums[above] + attained * (total - above)
        at = above + 1
        best = _steep(at - above, self._cost[at] - spent)
        while at := self._next[at]:
            value = _steep(at - above, self._cost[at] - spent)
            if value < best:
                break
            best = value
        return best


def _steep(ended: int, spent: float) -> float:
    return ended / spent if spent > 0 else float("inf")


class ReleasedIndex:
    """The released simulator's index: Δ fixed, E over S instead of S − a, rounded as Python 2 rounds.

    It is worked out once per sample, for the whole stretch of service up to that sample.
    """

    def __init__(self, samples: Iterable[float], delta: int = RELEASED_DELTA) -> None:
        self.samples = sorted(int(value) for value in samples)
        sums = [0, *accumulate(self.samples)]
        total = len(self.samples)
        self._index: list[float] = []
        for value in self.samples:
            above = bisect_right(self.samples, value - 1)
            until = value - 1 + delta
            # the largest sample counts as one that never ends: its own rule, kept
            inside = total - 1 if until > self.samples[-1] - 1 else bisect_right(self.samples, until)
            chance = _rounded((inside - above) / (total - above), 5)
            expected = (sums[inside] - sums[above] + delta * (total - inside)) // (total - above)
            self._index.append(_rounded(chance * 1_000_000 / expected, 4))
        self._ends = [float(value) for value in self.samples]  # compared with service, which is no whole number

    def __call__(self, attained: float) -> float:
        at = bisect_right(self._ends, attained)
        return self._index[at] if at < len(self._index) else 0.0

    def next_change(self, attained: float) -> float | None:
        """The service at which the index is another one; None where it stays 0."""
        at = bisect_right(self._ends, attained)
        return self._ends[at] if at < len(self._ends) else None


def _rounded(value: float, digits: int) -> float:
    """Half away from zero."""
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def read_distribution(path: Path) -> list[float]:
    """GPU-seconds per job from a CSV with a column `duration`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if "duration" not in (rows.fieldnames or ()):
                raise UserError(f"{path}, line 1: a distribution needs a column 'duration'")
            found = []
            for row in rows:
                text = row["duration"]
                try:
                    value = float(text)
                except (TypeError, ValueError):
                    value = float("nan")
                if not 0 < value < float("inf"):
                    raise UserError(f"{path}, line {rows.line_num}: duration {text!r} is not a number above 0")
                found.append(value)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"distribution {path} cannot be read: {reason}") from error
    if not found:
        raise UserError(f"{path} has no durations: the Gittins index needs at least one")
    return found
