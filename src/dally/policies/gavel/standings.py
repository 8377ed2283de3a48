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
        self.width = columns
        self.share = np.zeros((0, columns))  # X
        self.received: list[float] = []  # seconds since the last allocation, job × columns + column
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
        made.received = [0.0] * (len(made.ids) * made.width)
        for job_id, seconds in memory.received.items():
            first = made.index[job_id] * made.width
            made.received[first : first + made.width] = seconds
        return made

    # --- jobs come and go ---------------------------------------------------------------------------------

    def add(self, known: Known, share: Fractions) -> None:
        place = len(self.ids)
        if place == len(self.share):
            more = max(16, place)
            blank = np.zeros((more, self.share.shape[1]))
            self.share = np.vstack([self.share, blank])
            self.runs = np.vstack([self.runs, blank.astype(bool)])
        self.ids.append(known.id)
        self.index[known.id] = place
        self.gpus.append(known.gpus)
        self.share[place] = share
        self.received += [0.0] * self.width
        self.runs[place] = [rate > 0 for rate in known.rates]

    def remove(self, memory: PaperMemory, job_ids: Collection[str]) -> None:
        """Those who have gone; the others keep their order."""
        for job_id in job_ids:
            del memory.share[job_id]
            memory.received.pop(job_id, None)
        keep = [place for place, job_id in enumerate(self.ids) if job_id not in job_ids]
        self.ids, self.gpus = [self.ids[p] for p in keep], [self.gpus[p] for p in keep]
        self.index = {job_id: place for place, job_id in enumerate(self.ids)}
        received, width = self.received, self.width
        self.received = [received[cell] for p in keep for cell in range(p * width, (p + 1) * width)]
        self.share, self.runs = self.share[keep], self.runs[keep]

    # --- time -----------------------------------------------------------------------------------------------

    def book(self, memory: PaperMemory, running: dict[str, int], seconds: float) -> None:
        """Time received by those who ran, each in its column."""
        index, received, width = self.index, self.received, self.width
        booked: dict[str, Seconds] = {}
        for job_id, column in running.items():
            first = index[job_id] * width
            received[first + column] += seconds
            booked[job_id] = tuple(received[first : first + width])
        memory.received.update(booked)

    def allocate(self, memory: PaperMemory, found: Floats) -> None:
        """Another allocation: all time received counts from here on."""
        count = len(self.ids)
        self.share[:count] = found
        self.received = [0.0] * len(self.received)
        memory.received.clear()
        memory.share.update(zip(self.ids, map(tuple, self.share[:count].tolist()), strict=True))

    def inherit(self, memory: PaperMemory, job_id: str, share: Fractions, received: Seconds | None) -> None:
        """What it was owed and got in company counts as its own."""
        place = self.index[job_id]
        self.share[place] += share
        memory.share[job_id] = tuple(self.share[place].tolist())
        if received is not None:
            first = place * self.width
            for column, seconds in enumerate(received):
                self.received[first + column] += seconds
            memory.received[job_id] = tuple(self.received[first : first + self.width])

    def all_served(self, running: dict[str, int]) -> bool:
        """Whether everybody is allocated all of its time in the column it runs in, and nothing elsewhere."""
        if np.count_nonzero(self.share[: len(self.ids)]) > len(self.ids):
            return False
        places = [self.index[job_id] for job_id in running]
        return bool((self.share[places, list(running.values())] == 1.0).all())

    def behind(self, half_round: float) -> Floats:
        """Priorities of all (job, column) cells; −1 where a job makes no progress."""
        count = len(self.ids)
        received = np.array(self.received).reshape(count, self.width)
        found: Floats = np.where(self.runs[:count], self.share[:count] / (received + half_round), -1.0).ravel()
        return found

    def order(self, half_round: float, conserving: bool) -> list[int]:
        """(job, column) cells as job × columns + column, the most behind first.

        Time received counts from half a round up: who has had none is first among its like, but a sliver of an
        allocation does not count as infinitely far behind.
        """
        behind = self.behind(half_round)
        order = np.argsort(-behind, kind="stable")
        wanted = int(np.count_nonzero(behind >= 0.0 if conserving else behind > 0.0))
        found: list[int] = order[:wanted].tolist()
        return found


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
    behind = np.concatenate([jobs.behind(half_round), together.ravel()])
    wanted = int(np.count_nonzero(behind >= 0.0 if conserving else behind > 0.0))
    found: list[int] = np.argsort(-behind, kind="stable")[:wanted].tolist()
    return found
