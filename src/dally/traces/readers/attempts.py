"""Several attempts at one job: where in its total work each attempt but the last one ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def failure_points(lengths: Sequence[float]) -> tuple[float, ...]:
    """Cumulative fractions of the total run time at which attempts ended, strictly between 0 and 1.

    Attempts of no length add nothing: a job that died at once did no work that could be lost.
    """
    total = sum(lengths)
    if total <= 0:
        return ()
    points = (done / total for done in accumulate(lengths[:-1]))
    return tuple(sorted({point for point in points if 0 < point < 1}))
