"""How packed jobs slow each other by a table of throughputs: a pair's rate there over the rate alone.

What the table does not have is taken from the catalog. A pair in which the table gives one of the two a rate of 0
did not run, mostly for want of memory, and does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from dally.catalog.interference import CatalogInterference
from dally.catalog.throughputs import Pair, Throughputs

if TYPE_CHECKING:
    from dally.core.job import Job


class TabledInterference:
    """Implements `core.sharing.Interference`. A gang beside another of its size is one entry of the table."""

    def __init__(self, table: Throughputs) -> None:
        self.table, self._catalog = table, CatalogInterference()

    def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        """Rate alone over rate in company. Only pairs are measured: what several neighbours add is taken to add up."""
        alone = self.table.rate(job.model, job.gpus, gpu_type)
        total = 1.0
        for other in others:
            pair = self._pair(job, other, gpu_type)
            if pair is None or not alone or pair[0] <= 0:
                return self._catalog.slowdown(job, others, gpu_type)
            total += max(0.0, alone / pair[0] - 1.0)
        return total

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        """None where every pair of these was measured making progress; more than two must fit by the catalog too."""
        for first, second in combinations(jobs, 2):
            pair = self._pair(first, second, gpu_type)
            if pair is None:
                return self._catalog.fits(jobs, gpu_type)
            if min(pair) <= 0:
                return f"{self.table.source} says that {first.id} and {second.id} do not run together on a {gpu_type}"
        return self._catalog.fits(jobs, gpu_type) if len(jobs) != 2 else None

    def _pair(self, job: Job, other: Job, gpu_type: str) -> Pair | None:
        return self.table.pair(job.model, other.model, job.gpus, gpu_type) if job.gpus == other.gpus else None
