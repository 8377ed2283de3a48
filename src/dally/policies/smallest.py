"""Smallest gang first: fewest GPUs, then order of arrival. Preemptive."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.memory import Memory
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank
from dally.policies.options import option
from dally.policies.placing import RuleName
from dally.policies.preempting import Preempting, preempting, with_leases


class Smallest(RankedPolicy):
    """Fewest GPUs first; a smaller newcomer takes GPUs from larger running jobs."""

    title = "smallest"
    source = "`sjf` of the released Tiresias simulator"
    preempts = True

    @dataclass(frozen=True, slots=True)
    class Options:
        placement: RuleName = option("consolidated", "where a gang goes")
        preempt: Preempting = preempting()

    def rank(self, view: View, memory: Memory, job: ActiveJob, now: float) -> Rank:
        return Rank(float(job.gpus))

    def plan(self, view: View, memory: Memory, now: float) -> Plan:
        return with_leases(plan_by_rank(view, now, self.place, preempt=True), view, self.options.preempt)
