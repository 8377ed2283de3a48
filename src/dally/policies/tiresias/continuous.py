"""The index without queues: least attained service, or highest Gittins index with the best Δ, at every moment.

What the queues are there to avoid: any two jobs of about equal service take turns for ever. A quantum keeps a job
on its GPUs for a while once it has them, and is also how often running jobs are looked at while others wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.plan import Plan, WakeAt
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import State
from dally.policies.tiresias.memory import Placing, Service
from dally.policies.tiresias.remembered import ContinuousMemory


class Continuous:
    """`service` is None for least attained service, else the Gittins index decides and service breaks ties."""

    def __init__(self, quantum: float, placing: Placing, service: Service | None) -> None:
        self.quantum = quantum
        self.placing = placing
        self.service = service

    def new_memory(self) -> ContinuousMemory:
        return ContinuousMemory()

    def attach(self, view: View, memory: ContinuousMemory) -> None:
        self.placing.attach(view, memory)
        if self.service is not None:
            self.service.attach(memory)

    def rank(self, view: View, memory: ContinuousMemory, job: ActiveJob, now: float) -> Rank:
        attained = job.attained_at(now)
        line, slope = attained, 0.0
        if job.state is State.RUNNING:
            slope = float(job.gpus)
            line -= slope * now
        if self.service is None:
            return Rank(line, slope)
        return Rank(-self.service.known.supremum(attained), then=line, then_slope=slope)

    def hear(self, view: View, memory: ContinuousMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        moved = self.placing.hear(view, memory, entries)
        if self.service is not None:
            if self.service.hear(view, memory, entries):
                return [*view.waiting, *view.preemptible]
            if now >= memory.next_look and any(isinstance(entry, (ev.TimerDue, ev.LeaseEnded)) for entry in entries):
                moved += view.preemptible  # as they run their index changes, and not along a line
        return moved

    def plan(self, view: View, memory: ContinuousMemory, now: float) -> Plan:
        plan = self.placing.plan(view, memory, now, self.quantum)
        if view.waiting.buckets and view.preemptible.buckets:
            turn = (now // self.quantum + 1) * self.quantum
            memory.next_look = turn if turn > now else turn + self.quantum  # rounding may give `now` itself
            plan.append(WakeAt(memory.next_look))
        return plan
