"""Who comes first on a GPU type in a round of the released scheduler: all jobs at once, in arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dally.policies.gavel.allocation.problem import Fractions
from dally.policies.gavel.central import Floats
from dally.policies.gavel.known import Known
from dally.policies.gavel.memory import ReleasedMemory, Standing

FEW = 64  # jobs that are looked at first: a round has room for few of the many that wait for it


class Rows:
    """What the memory has of every job, a row each and in its order: a cache of its tables, which are looked at anew
    every time. A row is written again where the object in the table is another one."""

    def __init__(self, kinds: int, known: Callable[[str], Known]) -> None:
        self._known, self._nothing = known, (0.0,) * kinds
        self._ids: list[str] = []
        self._standings: list[Standing] = []
        self._promised_to: list[str] = []
        self._promises: list[Fractions] = []
        self.gpus: list[int] = []
        self.runs = np.zeros((0, kinds), dtype=bool)  # whether it makes progress there at all
        self.promised = np.zeros((0, kinds))  # share of its time on each GPU type
        self.times, self.deficits = np.zeros((0, kinds)), np.zeros((0, kinds))

    def read(self, memory: ReleasedMemory) -> None:
        ids = list(memory.jobs)
        if ids != self._ids:
            self._follow(memory, ids)
        promised_to, promises = list(memory.allocation), list(memory.allocation.values())
        if promised_to != self._promised_to or promises != self._promises:
            self._promised_to, self._promises = promised_to, promises
            self.promised = self._table([memory.allocation.get(job_id, self._nothing) for job_id in ids])
        standings = list(memory.jobs.values())
        pairs = zip(standings, self._standings, strict=True)
        written = [place for place, (one, other) in enumerate(pairs) if one is not other]
        if 8 * len(written) > len(ids):
            self.times = self._table([each.time for each in standings])
            self.deficits = self._table([each.deficit for each in standings])
        else:
            for place in written:
                self.times[place], self.deficits[place] = standings[place].time, standings[place].deficit
        self._standings = standings

    def _follow(self, memory: ReleasedMemory, ids: list[str]) -> None:
        """Jobs came, at the end, or went: rows of the others stay."""
        places = [place for place, job_id in enumerate(self._ids) if job_id in memory.jobs]
        if ids[: len(places)] != [self._ids[place] for place in places]:
            places = []  # somebody who went is back
        new = ids[len(places) :]
        known = [self._known(job_id) for job_id in new]
        standings = [memory.jobs[job_id] for job_id in new]
        self._ids = ids
        self._standings = [self._standings[place] for place in places] + standings
        self.gpus = [self.gpus[place] for place in places] + [each.gpus for each in known]
        self.runs = np.vstack([self.runs[places], self._table([each.rates for each in known]) > 0])
        promised = [memory.allocation.get(job_id, self._nothing) for job_id in new]
        self.promised = np.vstack([self.promised[places], self._table(promised)])
        self.times = np.vstack([self.times[places], self._table([each.time for each in standings])])
        self.deficits = np.vstack([self.deficits[places], self._table([each.deficit for each in standings])])

    def _table(self, rows: Sequence[Sequence[float]]) -> Floats:
        return np.array(rows, dtype=float).reshape(-1, len(self._nothing))

    def ranked(self, kind: int, of_all: float, *, only_promised: bool, few: int | None = None) -> list[int]:
        return ranked(self.promised[:, kind], self.times[:, kind], self.deficits[:, kind], of_all, self.runs[:, kind],
                      only_promised=only_promised, few=few)  # fmt: skip


def ranked(promised: Floats, times: Floats, deficits: Floats, of_all: float, runs: NDArray[np.bool_], *,
           only_promised: bool, few: int | None = None) -> list[int]:  # fmt: skip
    """Places of those who run there: by priority, deficit and promise, the largest first; else in order of arrival.
    With `few`, of more than twice as many, so many of the first or some more."""
    priority = _priorities(promised, times, of_all)
    places = np.flatnonzero(runs & (priority > 0) if only_promised else runs)
    priority = priority[places]
    if few is not None and len(places) > 2 * few:
        among = priority >= np.partition(priority, -few)[-few]
        places, priority = places[among], priority[among]
    order = np.lexsort((-promised[places], -deficits[places], -priority))
    found: list[int] = places[order].tolist()
    return found


def _priorities(promised: Floats, times: Floats, of_all: float) -> Floats:
    """Time promised over the share of the time received; who is promised nothing has none."""
    if of_all <= 0:
        return promised * 1e9
    share = times / of_all
    if share.min(initial=np.inf) > 0:
        return promised / share
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(promised == 0, 0.0, np.where(share > 0, promised / share, promised * 1e9))
