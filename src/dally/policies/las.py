"""Least attained service: who has had the fewest GPU-seconds goes first. Needs no knowledge of the future."""

from __future__ import annotations

import math

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.memory import Memory
from dally.core.plan import Plan, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.core.states import State
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank
from dally.policies.options import option
from dally.policies.placing import RuleName
from dally.policies.preempting import Preempting, preempting, with_leases


class Las(RankedPolicy):
    """Least attained GPU-time first, continuous. A job keeps its GPUs for at least one quantum, and loses them only to
    one that has had less than its part of the job's GPU-time (`ratio`): among equals nobody swaps for nothing.

    So of two jobs in a row, each of which took GPUs from the next, the next had `ratio` times as much, and such a row
    has at most 1 + log(largest GPU-time / (quantum × GPUs)) / log(ratio) preemptions (docs/policies.md).
    """

    title = "las"
    source = "2D-LAS before discretisation, Tiresias (NSDI'19) section 3.2"
    preempts = True

    @dataclass(frozen=True, slots=True)
    class Options:
        quantum: float = option(360.0, "shortest time between getting GPUs and losing them", unit="s",
                                source="round length of Gavel (OSDI'20)")  # fmt: skip
        placement: RuleName = option("consolidated", "where a gang goes")
        preempt: Preempting = preempting()
        ratio: float = option(2.0, "GPUs are taken only from jobs that have had at least so many times the GPU-time of "
                              "who asks; 1: any more is enough")  # fmt: skip

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if not 1 <= options.ratio < math.inf:
            raise UserError(f"policy 'las': ratio is 1 or above, not {options.ratio:g}")

    def rank(self, view: View, memory: Memory, job: ActiveJob, now: float) -> Rank:
        attained = job.attained_at(now)
        if job.state is State.RUNNING:
            ratio: float = self.options.ratio  # what runs stands where it would be with a part of its GPU-time
            return Rank((attained - job.gpus * now) / ratio, job.gpus / ratio)
        return Rank(attained)

    def plan(self, view: View, memory: Memory, now: float) -> Plan:
        quantum = self.options.quantum or None
        plan = plan_by_rank(view, now, self.place, preempt=True, lease=quantum)
        if quantum and view.waiting.buckets and view.preemptible.buckets:
            # running jobs fall behind waiting ones as time passes, not only when something happens
            turn = (now // quantum + 1) * quantum
            plan.append(WakeAt(turn if turn > now else turn + quantum))  # rounding may give `now` itself
        return with_leases(plan, view, self.options.preempt)
