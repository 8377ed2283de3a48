"""The policy's side of the seam: a read-only view and the time in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dally.core.active import ActiveJob
from dally.core.estimates import Estimates
from dally.core.events import Event
from dally.core.free import FreeGpus
from dally.core.plan import Plan
from dally.core.ranking import Rank, Ranking
from dally.core.reasons import Reason
from dally.core.topology import Topology


class View:
    """What a real scheduler could know, kept in indexes. Policies read it; the scheduler alone changes it."""

    __slots__ = ("_jobs", "_reason", "estimates", "free", "news", "preemptible", "topology", "waiting")

    def __init__(self, topology: Topology, free: FreeGpus, estimates: Estimates, jobs: dict[str, ActiveJob],
                 reason: Callable[[str], Reason | None]) -> None:  # fmt: skip
        self.topology = topology
        self.free = free
        self.estimates = estimates
        self.waiting = Ranking()  # jobs that may be started
        self.preemptible = Ranking()  # running jobs that no lease protects
        self.news: Sequence[Event] = ()  # what happened since the last plan
        self._jobs = jobs
        self._reason = reason

    def job(self, job_id: str) -> ActiveJob:
        return self._jobs[job_id]

    def reason(self, job_id: str) -> Reason | None:
        """Why the job waits, as last said."""
        return self._reason(job_id)


class Policy(Protocol):
    """One pure call: everything a plan depends on is in the view, the time and the options. A policy that
    learns (from `view.news`) may remember what it learned, and nothing else: same events, same plans."""

    @property
    def name(self) -> str: ...

    @property
    def preempts(self) -> bool:
        """Whether the index of preemptible jobs is wanted at all."""
        ...

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        """The job's place in the order. Asked when it enters the queue, starts, changes speed, or is refreshed."""
        ...

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        """Jobs whose rank changes now by itself, e.g. by demotion to a lower queue; asked before every plan."""
        ...

    def plan(self, view: View, now: float) -> Plan: ...
