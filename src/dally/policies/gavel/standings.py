"""Allocation and time received of the pairs there are, and the order of jobs and pairs alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dally.policies.gavel.job_standings import Standings
from dally.policies.gavel.memory import PaperMemory

Floats = NDArray[np.float64]


class PairStandings:
    """Allocation and time received of the pairs that were allocated any, as `Standings` has them for jobs."""

    def __init__(self, memory: PaperMemory) -> None:
        width = len(memory.columns)
        self.rows = list(memory.pair_share)
        self.share: Floats = np.array(list(memory.pair_share.values()), dtype=float).reshape(len(self.rows), width)
        nothing = (0.0,) * width
        received = [memory.pair_received.get(row, nothing) for row in self.rows]
        self.received: Floats = np.array(received, dtype=float).reshape(len(self.rows), width)

    def of(self, job_id: str) -> Floats:
        """Time it is allocated in company, by column."""
        found: Floats = self.share[[place for place, row in enumerate(self.rows) if job_id in row]].sum(axis=0)
        return found


def order_all(jobs: Standings, pairs: PairStandings, half_round: float, conserving: bool) -> list[int]:
    """(unit, column) cells as unit × columns + column, the most behind first; pairs are numbered after the jobs."""
    together = np.where(pairs.share > 0, pairs.share / (pairs.received + half_round), -1.0)
    behind = np.concatenate([np.array(jobs.behind(half_round)), together.ravel()])
    wanted = int(np.count_nonzero(behind >= 0.0 if conserving else behind > 0.0))
    found: list[int] = np.argsort(-behind, kind="stable")[:wanted].tolist()
    return found
