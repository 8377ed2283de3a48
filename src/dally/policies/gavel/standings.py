"""Allocation and time received of every job in arrays that one sort per round reads: a cache of the memory's tables."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from dally.policies.gavel.allocation.problem import Fractions
from dally.policies.gavel.known import Known
from dally.policies.gavel.memory import Edition, PaperMemory, Seconds

Floats = NDArray[np.float64]


class Standings:
    """What is changed here by a plan is written to the memory, too, and carries its edition: a plan that is thrown
    away leaves the memory with the edition before, and these arrays are made anew from the tables."""

    def __init__(self, columns: int) -> None:
        self.edition: Edition | None = None
        self.ids: list[str] = []
        self.index: dict[str, int] = {}
        self.gpus: list[int] = []
        self.share = np.zeros((0, columns))  # X
        self.received = np.zeros((0, columns))  # seconds since the last allocation
        self.runs = np.zeros((0, columns), dtype=bool)  # whether it makes progress there at all

    @classmethod
    def read(cls, memory: PaperMemory, known: Callable[[str], Known]) -> Standings:
        made = cls(len(memory.columns))
        made.edition = memory.edition
        made.ids = list(memory.share)
        made.index = {job_id: place for place, job_id in enumerate(made.ids)}
        all_known = [known(job_id) for job_id in made.ids]
        made.gpus = [each.gpus for each in all_known]
        shape = (len(made.ids), len(memory.columns))
        made.share = np.array(list(memory.share.values()), dtype=float).reshape(shape)
        made.runs = np.array([each.rates for each in all_known], dtype=float).reshape(shape) > 0
        made.received = np.zeros(shape)
        for job_id, seconds in memory.received.items():
            made.received[made.index[job_id]] = seconds
        return made

    # --- jobs come and go ---------------------------------------------------------------------------------

    def add(self, known: Known, share: Fractions) -> None:
        place = len(self.ids)
        if place == len(self.share):
            more = max(16, place)
            blank = np.zeros((more, self.share.shape[1]))
            self.share, self.received = np.vstack([self.share, blank]), np.vstack([self.received, blank])
            self.runs = np.vstack([self.runs, blank.astype(bool)])
        self.ids.append(known.id)
        self.index[known.id] = place
        self.gpus.append(known.gpus)
        self.share[place], self.received[place] = share, 0.0
        self.runs[place] = [rate > 0 for rate in known.rates]

    def remove(self, memory: PaperMemory, job_ids: Collection[str]) -> None:
        """Those who have gone; the others keep their order."""
        for job_id in job_ids:
            del memory.share[job_id]
            memory.received.pop(job_id, None)
        keep = [place for place, job_id in enumerate(self.ids) if job_id not in job_ids]
        self.ids, self.gpus = [self.ids[p] for p in keep], [self.gpus[p] for p in keep]
        self.index = {job_id: place for place, job_id in enumerate(self.ids)}
        self.share, self.received, self.runs = self.share[keep], self.received[keep], self.runs[keep]

    # --- time -----------------------------------------------------------------------------------------------

    def book(self, memory: PaperMemory, running: dict[str, int], seconds: float) -> None:
        """Time received by those who ran, each in its column."""
        index = self.index
        rows = [index[job_id] for job_id in running]
        self.received[rows, list(running.values())] += seconds
        memory.received.update(zip(running, map(tuple, self.received[rows].tolist()), strict=True))

    def allocate(self, memory: PaperMemory, found: Floats) -> None:
        """Another allocation: all time received counts from here on."""
        count = len(self.ids)
        self.share[:count] = found
        self.received[:count] = 0.0
        memory.received.clear()
        memory.share.update(zip(self.ids, map(tuple, self.share[:count].tolist()), strict=True))

    def inherit(self, memory: PaperMemory, job_id: str, share: Fractions, received: Seconds | None) -> None:
        """What it was owed and got in company counts as its own."""
        place = self.index[job_id]
        self.share[place] += share
        memory.share[job_id] = tuple(self.share[place].tolist())
        if received is not None:
            self.received[place] += received
            memory.received[job_id] = tuple(self.received[place].tolist())

    def order(self, half_round: float, conserving: bool) -> list[int]:
        """(job, column) cells as job × columns + column, the most behind first.

        Time received counts from half a round up: who has had none is first among its like, but a sliver of an
        allocation does not count as infinitely far behind.
        """
        count = len(self.ids)
        behind = self.share[:count] / (self.received[:count] + half_round)
        behind = np.where(self.runs[:count], behind, -1.0).ravel()
        order = np.argsort(-behind, kind="stable")
        wanted = int(np.count_nonzero(behind >= 0.0 if conserving else behind > 0.0))
        found: list[int] = order[:wanted].tolist()
        return found
