"""Allocation and time received of every job in lists that one sort per round reads: a cache of the memory's tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dally.policies.gavel.allocation.problem import Fractions
from dally.policies.gavel.known import Known
from dally.policies.gavel.memory import Edition, PaperMemory, Seconds


class Standings:
    """What is changed here by a plan is written to the memory, too, and carries its edition: a plan that is thrown
    away leaves the memory with the edition before, and these lists are made anew from the tables.

    A cell is a job in a column: cell = place of the job × columns + column."""

    def __init__(self, columns: int) -> None:
        self.edition: Edition | None = None
        self.ids: list[str] = []
        self.index: dict[str, Known] = {}  # each knows its place
        self.gpus: list[int] = []
        self.known: list[Known] = []
        self.width = columns
        self.share: list[float] = []  # X of every cell
        self.received: list[float] = []  # seconds since the last allocation, in every cell
        self.runs: list[bool] = []  # whether the job makes progress there at all, in every cell

    @staticmethod
    def read(memory: PaperMemory, known: Sequence[Known]) -> Standings:
        """`known`: of everybody who is in the memory, in its order."""
        made = Standings(len(memory.columns))
        made.edition = memory.edition
        for each, share in zip(known, memory.share.values(), strict=True):
            made.add(each, share)
        made.received[: len(memory.received)] = memory.received
        return made

    # --- jobs come and go ---------------------------------------------------------------------------------

    def add(self, known: Known, share: Fractions) -> None:
        known.place = len(self.ids)
        self.index[known.id] = known
        self.ids.append(known.id)
        self.gpus.append(known.gpus)
        self.known.append(known)
        self.share.extend(share)
        for rate in known.rates:
            self.received.append(0.0)
            self.runs.append(rate > 0)

    def remove(self, memory: PaperMemory, job_ids: Collection[str]) -> None:
        """Those who have gone; the others keep their order."""
        width = self.width
        places = [self.index.pop(job_id).place for job_id in job_ids]
        places.sort(reverse=True)  # from the back: places before stay what they are
        for place in places:
            first = place * width
            del memory.share[self.ids[place]]
            del self.ids[place], self.gpus[place], self.known[place]
            del self.share[first : first + width], self.received[first : first + width]
            del self.runs[first : first + width]
        if places:
            for place in range(places[-1], len(self.known)):
                self.known[place].place = place
        memory.received = tuple(self.received)

    # --- time -----------------------------------------------------------------------------------------------

    def book(self, memory: PaperMemory, running: dict[str, int], seconds: float) -> None:
        """Time received by those who ran, each in its column."""
        index, received, width = self.index, self.received, self.width
        columns = list(running.values())  # a table's own ways to go over it cost more than what is done with it
        for at, job_id in enumerate(list(running)):
            cell = index[job_id].place * width + columns[at]
            received[cell] = received[cell] + seconds
        memory.received = tuple(received)

    def allocate(self, memory: PaperMemory, found: Sequence[Fractions]) -> None:
        """Another allocation: all time received counts from here on."""
        share, before = self.share, memory.share
        others: dict[str, Fractions] = {}  # than before
        cell = 0
        for place, fractions in enumerate(found):
            job_id = self.ids[place]
            if before[job_id] != fractions:
                others[job_id] = fractions
                for fraction in fractions:
                    share[cell] = fraction
                    cell += 1
            else:
                cell += self.width
        self.received = [0.0] * len(share)
        memory.received = ()
        if others:
            before.update(others)

    def inherit(self, memory: PaperMemory, job_id: str, share: Fractions, received: Seconds | None) -> None:
        """What it was owed and got in company counts as its own."""
        first = self.index[job_id].place * self.width
        for column, fraction in enumerate(share):
            self.share[first + column] += fraction
        memory.share[job_id] = tuple(self.share[first : first + self.width])
        if received is not None:
            for column, seconds in enumerate(received):
                self.received[first + column] += seconds
            memory.received = tuple(self.received)

    def all_served(self, running: dict[str, int]) -> bool:
        """Whether everybody is allocated all of its time in the column it runs in, and nothing elsewhere."""
        for job_id, column in running.items():
            if self.share[self.index[job_id].place * self.width + column] != 1.0:
                return False
        return len(self.share) - self.share.count(0.0) <= len(self.ids)

    def behind(self, half_round: float) -> list[float]:
        """Priorities of all cells; −1 where a job makes no progress."""
        share, received = self.share, self.received
        found: list[float] = []
        for cell, runs in enumerate(self.runs):
            found.append(share[cell] / (received[cell] + half_round) if runs else -1.0)
        return found

    def order(self, half_round: float, conserving: bool) -> list[int]:
        """Cells, the most behind first.

        Time received counts from half a round up: who has had none is first among its like, but a sliver of an
        allocation does not count as infinitely far behind.
        """
        share, received, runs = self.share, self.received, self.runs
        cells: list[int] = []
        ahead: list[float] = []
        for cell, fraction in enumerate(share):
            priority = fraction / (received[cell] + half_round) if runs[cell] else -1.0
            ahead.append(-priority)
            if priority > 0.0 or (conserving and priority >= 0.0):
                cells.append(cell)
        cells.sort(key=ahead.__getitem__)
        return cells
