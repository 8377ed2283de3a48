"""Beyond the paper: wait for nearer GPUs as long as the wait is worth it (`waiting`; derived in docs/dally.md).

Least remaining GPU time first, with ageing; GPUs are taken only where somebody gains, and kept for who has waited out
of all proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any, Final

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.plan import Migrate, Plan, Preempt, Resize, Start, Wait
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import State
from dally.policies.dally import order
from dally.policies.dally.behind import Behind
from dally.policies.dally.dealing import Dealing, frees
from dally.policies.dally.examples import Examples
from dally.policies.dally.forecast import Forecast, ValueMemory
from dally.policies.dally.offered import Offered
from dally.policies.dally.tiers import Tiers
from dally.policies.dally.waiting import Declined, Waits
from dally.policies.preempting import Preempting

_RUNS: Final = frozenset({ev.Started, ev.Measured, ev.LeaseEnded, ev.ContactRestored})
_ENDS: Final = frozenset({ev.Finished, ev.Failed, ev.Cancelled})
_QUEUES: Final = frozenset({ev.Yielded, ev.StartFailed, ev.Interrupted, ev.Released})
_ANYWHERE: Final = Rank(0.0)  # of those who run: victims are compared when somebody asks


class Value:
    """Least remaining GPU time first, with ageing; waiting by its value; GPUs taken only where somebody gains."""

    def __init__(self, tiers: Tiers, lease: float, view: View, waits: Waits = "value",
                 preempt: Preempting = "free", breadth: float = 1.0) -> None:  # fmt: skip
        self.tiers, self.lease, self.waits, self.preempt, self.breadth = tiers, lease, waits, preempt, breadth
        self._examples = Examples(view.topology, tiers)
        self.offers = Offered(tiers)
        self._forecast: Forecast | None = None
        self.behind = Behind(view, tiers)
        view.preemptible.watch(self.behind)
        # jobs that may have been told that they decline; the view knows who was
        self.told = {who for who, reason in view.reasons.items() if isinstance(who, str) and reason.evidence}

    def forecast(self, view: View, memory: ValueMemory, now: float) -> Forecast:
        found = self._forecast
        if found is None or found.memory is not memory or found.view is not view:  # objects
            found = self._forecast = Forecast(self.tiers, self._examples, view, memory, now)
        return found.at(now)

    def rank(self, view: View, memory: ValueMemory, job: ActiveJob, now: float) -> Rank:
        if job.state is not State.WAITING:
            return _ANYWHERE
        waits = memory.waits.get(job.id)
        size = self.forecast(view, memory, now).size(job) if waits is None else waits.size
        return order.rank(size, job.last_change, job.gpus, self.breadth, view.estimates.work(job.job) is not None)

    def hear(self, view: View, memory: ValueMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        self.tiers.follow(view)
        forecast = self.forecast(view, memory, now)
        ended: list[Any] = []
        for entry in entries:
            kind = type(entry)
            if kind in _RUNS:
                forecast.runs(view.job(_named(entry)))
            elif kind in _ENDS:
                ended.append(entry)
            elif kind in _QUEUES:
                job = view.job(_named(entry))
                if job.state is State.WAITING:
                    forecast.queued(job)
            elif isinstance(entry, ev.Arrived):
                job = view.job(entry.job.id)
                if job.state is State.WAITING:
                    forecast.queued(job)
                forecast.arrived(job)
            elif isinstance(entry, (Start, Migrate, Resize)):  # somebody else's decision
                job = view.job(entry.job)
                forecast.got_gpus(job, entry.placement)
                if job.speed > 0:
                    forecast.runs(job)
            elif kind is Preempt:
                forecast.left_gpus(view.job(_named(entry)))
            elif kind is ev.Held:
                forecast.held(view.job(_named(entry)))
        for entry in ended:  # what they teach counts from the next one on
            forecast.ended(view.job(_named(entry)), finished=type(entry) is ev.Finished)
        return ()

    def plan(self, view: View, memory: ValueMemory, now: float) -> Plan:
        if not view.waiting.buckets and not view.preemptible.buckets:
            return []
        self.tiers.follow(view)
        forecast = self.forecast(view, memory, now)
        if not view.waiting.buckets and not memory.longest:  # there is nothing but jobs to be moved
            forecast.expect_overdue()
            if memory.starves:
                memory.starves = ""
            self.told.clear()
            if not memory.apart or not frees(view.news):
                return []
        return Dealing(self, view, forecast, now).plan()

    def untell(self, view: View, started: Set[str], waits: Sequence[tuple[ActiveJob, Declined]],
               reasons: Sequence[Wait]) -> list[Wait]:  # fmt: skip
        """Jobs whose own reason no longer holds, since they neither start nor decline, say what their demand says."""
        if not self.told:
            return []
        self.told = {job_id for job_id in self.told if _declines(view, job_id)}
        still = {job.id for job, _ in waits}
        jobs = [view.job(job_id) for job_id in self.told if job_id not in still and job_id not in started]
        if not jobs:
            return []
        said = {wait.who: wait.reason for wait in reasons}
        return [Wait(job.id, said[job.demand]) for job in sorted(jobs, key=lambda job: job.number)
                if job.demand in said]  # fmt: skip


def _named(entry: Any) -> str:
    """The job of an entry of which only the kind is known."""
    return str(entry.job)


def _declines(view: View, job_id: str) -> bool:
    """Whether the job waits, and was last told that it declines."""
    reason = view.reasons.get(job_id)
    return reason is not None and bool(reason.evidence) and job_id in view.waiting


