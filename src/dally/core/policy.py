"""The policy's side of the seam: a read-only view, its own memory and the time in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, Protocol

from dally.core.active import ActiveJob
from dally.core.estimates import Estimates
from dally.core.free import FreeGpus
from dally.core.job import Job
from dally.core.journal import Entry, Happened
from dally.core.memory import Memory
from dally.core.plan import Demand, Plan
from dally.core.policy_base import PolicyBase as PolicyBase  # from here for all who derive from it
from dally.core.prices import Prices
from dally.core.ranking import Rank, Ranking
from dally.core.reasons import Reason, Token
from dally.core.shape import fits_empty
from dally.core.sharing import Groups, Interference, NoInterference
from dally.core.topology import Topology

_ROUNDING: Final = 1e-9  # sums of seconds may fall short of a whole mini-batch by this much


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

    __slots__ = ("_interference", "_jobs", "_meter", "_most", "_reason", "_shapes", "down", "estimates", "free",
                 "groups", "layout", "news", "preemptible", "prices", "reasons", "topology", "waiting",
                 "withheld")  # fmt: skip

    def __init__(self, topology: Topology, free: FreeGpus, estimates: Estimates, jobs: Mapping[str, ActiveJob],
                 reason: Callable[[str], Reason | None], interference: Interference | None = None,
                 meter: Meter | None = None) -> None:  # fmt: skip
        self.topology = topology
        self.free = free
        self.estimates = estimates
        self.waiting = Ranking()  # jobs that may be started
        self.preemptible = Ranking()  # running jobs that no lease protects
        self.prices = Prices()  # what preemptions were seen to cost
        self.groups = Groups()  # who holds which GPUs; kept for policies that share
        self.down: Set[int] = frozenset()  # machines that are not there at the moment
        self.withheld: Mapping[str, int] = {}  # GPUs that others have, by the machine's name; they are not free
        self.layout = 0  # raised when machines go, come or change: look-up tables made for another one are void
        self.news: Sequence[Happened] = ()  # what happened since the last plan
        self.reasons: Mapping[str | Demand, Reason] = {}  # what was last said, of single jobs and of demands
        self._jobs = jobs
        self._reason = reason
        self._most: tuple[int, dict[tuple[str | None, str | None], int]] = (-1, {})  # by layout: type and level → GPUs
        self._shapes: tuple[int, dict[Demand, bool]] = (-1, {})  # by layout: whether what is up could hold it
        self._interference = interference or NoInterference()
        self._meter = meter or ExactMeter()

    def job(self, job_id: str) -> ActiveJob:
        return self._jobs[job_id]

    def jobs(self) -> Iterable[ActiveJob]:
        """Everybody there is, ended or not, in order of arrival. For a policy that begins in the middle of things, and
        for reports; not for every event."""
        return self._jobs.values()

    def reason(self, job_id: str) -> Reason | None:
        """Why the job waits, as last said."""
        return self._reason(job_id)

    def price(self, job: ActiveJob) -> float:
        """Seconds without progress that being preempted and coming back would cost it, as far as that was seen."""
        return self.prices.of(job.job)

    def too_large(self, demand: Demand) -> Reason | None:
        """Why a gang of this demand could not run if it were alone: machines are down, drained or taken out, and what
        is left is too small; None where it could. It is to be in nobody's way until that changes."""
        layout, most = self._most
        if layout != self.layout:
            self._most = self.layout, (most := {})
        key = demand.gpu_type, demand.within
        if key not in most:
            most[key] = self.topology.capacity(*key, without=self.down)
        if demand.gpus <= most[key]:
            return self._misshapen(demand) if demand.where is not None and demand.shaped else None
        kind = f" of type {demand.gpu_type}" if demand.gpu_type else ""
        asks = f"asks for {demand.gpus} GPU{'s' if demand.gpus != 1 else ''}{kind}{demand.inside}"
        if demand.within is not None:
            up = " on machines that are up" if self.down else ""
            return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; no {demand.within} has more than {most[key]}{up}")
        there = f"{most[key]} are" if most[key] > 1 else "1 is" if most[key] else "none is"
        left = f"{there} on machines that are up" if self.down else f"the cluster has {most[key]}"
        return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; {left}")

    def _misshapen(self, demand: Demand) -> Reason | None:
        layout, known = self._shapes
        if layout != self.layout:
            self._shapes = self.layout, (known := {})
        found = known.get(demand)
        if found is None:
            found = known[demand] = fits_empty(self.topology, demand, without=self.down)
        if found:
            return None
        kind = f" of type {demand.gpu_type}" if demand.gpu_type else ""
        up = " that are up" if self.down else ""
        return Reason(Token.EXCEEDS_CAPACITY, f"asks for {demand.gpus} GPU{'s' if demand.gpus != 1 else ''}{kind}"
                      f"{demand.inside}; there are no such machines{up}")  # fmt: skip

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
    """Everything a plan depends on is in the view, the memory, the time and the options: same events, same plans.

    `rank` and `plan` change nothing but the draft of the memory they are handed (`core.memory`): a plan may be asked
    for twice, thrown away, or asked of a snapshot, with no trace left. `hear` is where facts become memory.
    """

    @property
    def name(self) -> str: ...

    @property
    def preempts(self) -> bool:
        """Whether the index of preemptible jobs is wanted at all."""
        ...

    @property
    def shares(self) -> bool:
        """Whether its plans put several jobs on the same GPUs."""
        ...

    @property
    def chooses_gpu_type(self) -> bool:
        """Whether it decides itself on which GPU type a job runs that names one only because it was traced there."""
        ...

    @property
    def heeds_wishes(self) -> bool:
        """Whether a job's own wish to be near, and for how long it waits for that (`Job.prefers`, `Job.wait`), make a
        difference to it. What a job requires (`Job.within`) does to every policy."""
        ...

    @property
    def uses(self) -> frozenset[str]:
        """What it makes use of that not every cluster can tell (`core.told`): durations, speeds. It is compared with
        policies that use the same; told other durations, one that does not use them decides the same."""
        ...

    def new_memory(self) -> Memory:
        """A blank memory: of a policy that has not heard of anything yet."""
        ...

    def attach(self, view: View, memory: Any) -> None:
        """Serve this view from now on: caches made for another one are void. Indexes over the queue follow it through
        `view.waiting.watch`."""
        ...

    def hear(self, view: View, memory: Any, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        """What happened, already part of the view, becomes memory; returns the jobs whose rank is another one from now
        on, by what happened or by the time (a demotion that is due). Asked once an instant, before jobs are ranked.

        `entries` may hold actions that this policy did not decide: it was put in charge of a cluster in operation, or
        a record is trusted instead of being worked out again."""
        ...

    def rank(self, view: View, memory: Any, job: ActiveJob, now: float) -> Rank:
        """The job's place in the order. Asked when it enters the queue, starts, changes speed, or `hear` names it."""
        ...

    def plan(self, view: View, memory: Any, now: float) -> Plan: ...

    def notes(self, memory: Any) -> tuple[str, ...]:
        """What a reader of the results should know of this run."""
        ...
