"""The index without queues: least attained service, or highest Gittins index with the best Δ, at every moment.

What the queues are there to avoid: any two jobs of about equal service take turns for ever. A quantum keeps a job
on its GPUs for a while once it has them, and is also how often running jobs are looked at while others wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.plan import Plan, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import State
from dally.policies.tiresias.memory import Placing, Service


class Continuous:
    """`service` is None for least attained service, else the Gittins index decides and service breaks ties."""

    def __init__(self, quantum: float, placing: Placing, service: Service | None) -> None:
        self.quantum = quantum
        self.placing = placing
        self.service = service
        self._next_look = 0.0

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        attained = job.attained_at(now)
        line, slope = attained, 0.0
        if job.state is State.RUNNING:
            slope = float(job.gpus)
            line -= slope * now
        if self.service is None:
            return self.placing.ranked(job, Rank(line, slope))
        index = self.service.known.supremum(attained)
        return self.placing.ranked(job, Rank(-index, then=line, then_slope=slope))

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        everybody = self.placing.refresh(view)
        if self.service is not None:
            everybody |= self.service.refresh(view)
        if everybody:
            return [*view.waiting, *view.preemptible]
        if self.service is not None and now >= self._next_look and any(
            isinstance(event, (ev.TimerDue, ev.LeaseEnded)) for event in view.news
        ):
            return list(view.preemptible)  # as they run their index changes, and not along a line
        return ()

    def plan(self, view: View, now: float) -> Plan:
        plan = self.placing.plan(view, now, self.quantum)
        if view.waiting.buckets and view.preemptible.buckets:
            turn = (now // self.quantum + 1) * self.quantum
            self._next_look = turn if turn > now else turn + self.quantum  # rounding may give `now` itself
            plan.append(WakeAt(self._next_look))
        return plan
