"""Shortest remaining time first: the yardstick of schedulers that know the future. Preemptive."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.memory import Memory
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.core.remaining import remaining_time
from dally.core.states import State
from dally.core.told import DURATIONS
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank
from dally.policies.options import option
from dally.policies.placing import RuleName
from dally.policies.preempting import Preempting, preempting, with_leases


class Srtf(RankedPolicy):
    """Least remaining time first, by the estimates the world supplies."""

    title = "srtf"
    source = "`shortest` and `shortest-gpu` of the released Tiresias simulator"
    preempts = True
    uses = frozenset({DURATIONS})

    @dataclass(frozen=True, slots=True)
    class Options:
        gpu_time: bool = option(False, "weigh the remaining time by the GPUs (remaining service)")
        placement: RuleName = option("consolidated", "where a gang goes")
        preempt: Preempting = preempting()

    def rank(self, view: View, memory: Memory, job: ActiveJob, now: float) -> Rank:
        weight = float(job.gpus) if self.options.gpu_time else 1.0
        left = remaining_time(view.estimates, job, now)
        # Equal remaining times, as in the released simulator, whose list is sorted anew at each event and
        # keeps its order among equals: who stood still comes before who shrank to the same value just now,
        # and a newcomer comes last.
        since = job.last_change
        if job.state is State.RUNNING:
            if left == float("inf"):  # nothing is known of it: it keeps what it has before others of its kind
                return Rank(left, -weight, then=-float("inf"), then_slope=1.0)
            at_once = since == job.job.submit_time
            # While it runs, what remains shrinks with the clock: remaining(t) = finish − t. Who had its GPUs for some
            # time before it began stood still until now: else it would lose them to its equal, and that one to it.
            stood = now - since if job.work_at(now) == job.work_done else 0.0
            return Rank(weight * (now + left), -weight, then=-stood, then_slope=1.0,
                        tie=(-1.0, weight, since if at_once else -since))  # fmt: skip
        return Rank(weight * left, then=since, tie=(0.0 if job.preemptions else 1.0,))

    def plan(self, view: View, memory: Memory, now: float) -> Plan:
        return with_leases(plan_by_rank(view, now, self.place, preempt=True), view, self.options.preempt)
