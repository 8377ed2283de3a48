"""Who comes first on a GPU type in a round of the released scheduler: all jobs at once, in arrays."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dally.policies.gavel.central import Floats
from dally.policies.gavel.memory import Standing


def figures(standings: Iterable[Standing]) -> tuple[Floats, Floats]:
    """Times and deficits of jobs, a row each."""
    times, deficits = zip(*[(each.time, each.deficit) for each in standings], strict=True)
    return np.array(times), np.array(deficits)


def ranked(promised: Floats, times: Floats, deficits: Floats, of_all: float, runs: NDArray[np.bool_], *,
           only_promised: bool) -> list[int]:  # fmt: skip
    """Places of those who run there: by priority, deficit and promise, the largest first; else in order of arrival."""
    priority = _priorities(promised, times, of_all)
    order = np.lexsort((-promised, -deficits, -priority))
    able = runs & (priority > 0) if only_promised else runs
    found: list[int] = order[able[order]].tolist()
    return found


def _priorities(promised: Floats, times: Floats, of_all: float) -> Floats:
    """Time promised over the share of the time received; who is promised nothing has none."""
    if of_all <= 0:
        return promised * 1e9
    share = times / of_all
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(promised == 0, 0.0, np.where(share > 0, promised / share, promised * 1e9))
