"""A trace in memory: jobs, the truth about each, and an honest account of what reading it took."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import NamedTuple

from dally.core.job import Job, Truth
from dally.core.records import dataclass


class Problem(NamedTuple):
    """One thing wrong with one row: what it was, where, and whether the row was dropped for it."""

    line: int | None  # line of the file, counted from 1, where the format has lines
    job: str | None
    reason: str
    dropped: bool


@dataclass(slots=True)
class Trace:
    """Jobs in order of submission with `truths[i]` belonging to `jobs[i]`; time 0 is the first submission
    unless the format counts from an origin of its own."""

    name: str
    format: str
    jobs: list[Job]
    truths: list[Truth]
    dropped: Counter[str] = field(default_factory=Counter)  # reason → rows left out
    repaired: Counter[str] = field(default_factory=Counter)  # reason → rows kept after a change
    notes: list[str] = field(default_factory=list)  # what a reader of the results should know
    origin: str | None = None  # wall-clock time of second 0, ISO 8601, where known
    problems: list[Problem] = field(default_factory=list)  # every row behind `dropped` and `repaired`

    def __len__(self) -> int:
        return len(self.jobs)
