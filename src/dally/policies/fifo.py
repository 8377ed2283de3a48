"""First in, first out: the order of submission. Blocks at the head unless `backfill` lets others pass."""

from __future__ import annotations

from dataclasses import dataclass

from dally.core.active import ActiveJob
from dally.core.memory import Memory
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank, plan_in_order
from dally.policies.options import option
from dally.policies.placing import RuleName


class Fifo(RankedPolicy):
    """Order of submission, never preempts."""

    title = "fifo"
    source = "YARN capacity scheduler's FIFO queue, as in Tiresias (NSDI'19) section 2"

    @dataclass(frozen=True, slots=True)
    class Options:
        backfill: bool = option(False, "jobs that fit may pass one that does not")
        placement: RuleName = option("consolidated", "where a gang goes")

    def rank(self, view: View, memory: Memory, job: ActiveJob, now: float) -> Rank:
        return Rank(job.job.submit_time)

    def plan(self, view: View, memory: Memory, now: float) -> Plan:
        if self.options.backfill:
            return plan_by_rank(view, now, self.place, preempt=False)
        return plan_in_order(view, now, self.place)
