"""Jobs that are in memory: what was handed in, how that reads, and their ids in order. Safe from any thread."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort

from dally.live.spec import JobSpec
from dally.store.database import Submission


class Roster:
    """Those who have not ended, and a few that have just done so."""

    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self.submissions: dict[str, Submission] = {}
        self._order: list[tuple[int, int, str]] = []  # the same jobs by id
        self._turn = threading.Lock()

    def add(self, submission: Submission, spec: JobSpec) -> None:
        with self._turn:
            if submission.id not in self.submissions:
                insort(self._order, (*id_order(submission.id), submission.id))
            self.specs[submission.id] = spec
            self.submissions[submission.id] = submission

    def remove(self, job: str) -> None:
        with self._turn:
            at = bisect_left(self._order, (*id_order(job), job))
            del self._order[at], self.specs[job], self.submissions[job]

    def after(self, job: str | None) -> list[str]:
        """In the order of their ids, from the one after this on."""
        with self._turn:
            first = 0 if job is None else bisect_right(self._order, (*id_order(job), job))
            return [id for _, _, id in self._order[first:]]

    def members(self, array: str) -> list[str]:
        """Of an array, in order; none of anything else."""
        if not array.isdecimal():
            return []
        with self._turn:
            first, last = (bisect_left(self._order, (int(array) + more, -1, "")) for more in (0, 1))
            return [id for _, _, id in self._order[first:last]]


def id_order(job: str) -> tuple[int, int]:
    """Ids count: 9 before 10, 42_9 before 42_10."""
    number, _, member = job.partition("_")
    return int(number), int(member or -1)
