"""The policy's side of the seam: a read-only view and the time in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dally.core.active import ActiveJob
from dally.core.estimates import Estimates
from dally.core.events import Event
from dally.core.free import FreeGpus
from dally.core.job import Job
from dally.core.plan import Plan
from dally.core.ranking import Rank, Ranking
from dally.core.reasons import Reason
from dally.core.sharing import Groups, Interference, NoInterference
from dally.core.topology import Topology

_ROUNDING = 1e-9  # sums of seconds may fall short of a whole mini-batch by this much


class Meter(Protocol):
    """How well a job's time per mini-batch can be read off."""

    def read(self, job: Job, mean: float, minibatches: int, seed: int) -> float:
        """What is measured where the mean over so many mini-batches is really this; same arguments, same answer."""
        ...


class ExactMeter:
    """What the world reports is what is measured: a live world's reports carry their own noise."""

    def read(self, job: Job, mean: float, minibatches: int, seed: int) -> float:
        return mean


class View:
    """What a real scheduler could know, kept in indexes. Policies read it; the scheduler alone changes it."""

    __slots__ = ("_interference", "_jobs", "_meter", "_reason", "estimates", "free", "groups", "news", "preemptible",
                 "topology", "waiting")  # fmt: skip

    def __init__(self, topology: Topology, free: FreeGpus, estimates: Estimates, jobs: dict[str, ActiveJob],
                 reason: Callable[[str], Reason | None], interference: Interference | None = None,
                 meter: Meter | None = None) -> None:  # fmt: skip
        self.topology = topology
        self.free = free
        self.estimates = estimates
        self.waiting = Ranking()  # jobs that may be started
        self.preemptible = Ranking()  # running jobs that no lease protects
        self.groups = Groups()  # who holds which GPUs; kept for policies that share
        self.news: Sequence[Event] = ()  # what happened since the last plan
        self._jobs = jobs
        self._reason = reason
        self._interference = interference or NoInterference()
        self._meter = meter or ExactMeter()

    def job(self, job_id: str) -> ActiveJob:
        return self._jobs[job_id]

    def reason(self, job_id: str) -> Reason | None:
        """Why the job waits, as last said."""
        return self._reason(job_id)

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        """None where the memory of such a GPU holds all these jobs at once, else a sentence that says why not."""
        return self._interference.fits(jobs, gpu_type)

    def minibatches(self, job: ActiveJob, now: float) -> int:
        """Mini-batches the job has finished since its GPUs, its own share or who runs beside it last changed."""
        return int(job.watched_at(now)[1] + _ROUNDING)

    def minibatch_time(self, job: ActiveJob, now: float, seed: int = 0) -> float | None:
        """Seconds per mini-batch while the job has its GPUs, as measured over those `minibatches`; None before the
        first. What time slices take from its throughput is not in it: that is the policy's own doing."""
        seconds, done = job.watched_at(now)
        whole = int(done + _ROUNDING)
        return self._meter.read(job.job, seconds / done, whole, seed) if whole else None


class Policy(Protocol):
    """One pure call: everything a plan depends on is in the view, the time and the options. A policy that
    learns (from `view.news`) may remember what it learned, and nothing else: same events, same plans."""

    @property
    def name(self) -> str: ...

    @property
    def preempts(self) -> bool:
        """Whether the index of preemptible jobs is wanted at all."""
        ...

    # A policy whose plans put several jobs on the same GPUs says so with `shares = True`. The scheduler asks for it
    # by name and takes its absence for False, so a policy that shares nothing need not know of it.

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        """The job's place in the order. Asked when it enters the queue, starts, changes speed, or is refreshed."""
        ...

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        """Jobs whose rank changes now by itself, e.g. by demotion to a lower queue; asked before every plan."""
        ...

    def plan(self, view: View, now: float) -> Plan: ...
