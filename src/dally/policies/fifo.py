"""First in, first out: the order of submission. Blocks at the head unless `backfill` lets others pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.memory import Memory, NoMemory
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.core.told import DURATIONS
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank, plan_in_order
from dally.policies.limits import Limits
from dally.policies.options import option
from dally.policies.placing import RuleName
from dally.policies.reserving import Reserving, hear_limits, plan_reserving
from dally.policies.reserving_places import Later


class Fifo(RankedPolicy):
    """Order of submission, never preempts."""

    title = "fifo"
    source = "YARN capacity scheduler's FIFO queue, as in Tiresias (NSDI'19) section 2"

    @dataclass(frozen=True, slots=True)
    class Options:
        backfill: bool | Literal["any", "easy", "conservative"] = option(
            False, "who may pass a job that does not fit: nobody (false), all that fit (true, any), those that do not "
            "delay the first that does not fit (easy) or anybody before them (conservative), as their limits have it",
            source="easy: Lifka (JSSPP'95); conservative: Mu'alem and Feitelson (TPDS 2001)")  # fmt: skip
        placement: RuleName = option("consolidated", "where a gang goes")

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        kind = options.backfill
        self.reserving: Reserving | None = kind if kind in ("easy", "conservative") else None
        if self.reserving is not None:
            self.uses = frozenset({DURATIONS})
        self._later: Later | None = None  # a table that is filled anew at every use

    def new_memory(self) -> Memory:
        return NoMemory() if self.reserving is None else Limits()

    def hear(self, view: View, memory: Memory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        if isinstance(memory, Limits):
            hear_limits(view, memory, entries)
        return ()

    def _room(self, view: View) -> Later:
        if self._later is None or self._later.topology is not view.topology:
            self._later = Later(view.topology)
        return self._later

    def rank(self, view: View, memory: Memory, job: ActiveJob, now: float) -> Rank:
        return Rank(job.job.submit_time)

    def plan(self, view: View, memory: Memory, now: float) -> Plan:
        if self.reserving is not None:
            assert isinstance(memory, Limits)
            return plan_reserving(view, memory, now, self.place, self.reserving, lambda: self._room(view))
        if self.options.backfill:
            return plan_by_rank(view, now, self.place, preempt=False)
        return plan_in_order(view, now, self.place)
