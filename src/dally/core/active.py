"""A job the scheduler is responsible for: its state, its GPUs, and what has been observed of it so far."""

from __future__ import annotations

from typing import Any, Final

from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.plan import Demand, demand_of_job
from dally.core.sharing import Share
from dally.core.states import State, after

_MOST_DEMANDS: Final = 4096  # that are remembered
_PLAIN: Final[dict[tuple[Any, ...], Demand]] = {}


def _demand(job: Job) -> Demand:
    """`demand_of_job`, which every arrival would call through the interpreter."""
    if job.within is None and job.prefers is None and job.wait is None and job.nodes is None and job.among is None:
        key: tuple[Any, ...] = (job.gpus, job.gpu_type)
        found = _PLAIN.get(key)
        if found is None:
            if len(_PLAIN) >= _MOST_DEMANDS:
                _PLAIN.clear()
            found = _PLAIN[key] = demand_of_job(job)
        return found
    return demand_of_job(job)


class ActiveJob:
    """Owned and changed by the scheduler alone; policies read it.

    Observed quantities are brought up to date when something changes (`accrue`); between changes the
    methods with `now` extrapolate them, so that nothing has to touch every running job at every event.
    """

    __slots__ = (
        "attained",
        "attempts",
        "demand",
        "executed",
        "exposed",
        "failures",
        "first_start",
        "fraction",
        "gpus",
        "hold",
        "id",
        "job",
        "last_change",
        "lease_until",
        "leaving",
        "neighbours",
        "number",
        "pinned",
        "placement",
        "preemptions",
        "progress_from",
        "serving",
        "share",
        "since",
        "speed",
        "state",
        "step_time",
        "watched_batches",
        "watched_seconds",
        "work_done",
    )  # fmt: skip

    def __init__(self, job: Job, number: int, now: float) -> None:
        self.job = job
        self.id = job.id
        self.gpus = job.gpus  # of the gang as submitted
        self.demand = _demand(job)
        self.number = number  # order of arrival
        self.state = State.WAITING
        self.placement: Placement | None = None
        self.leaving: Placement | None = None  # GPUs it still occupies while it saves its checkpoint
        self.share: Share | None = None  # as the plan that gave it its GPUs, or the last Reshare, said
        self.fraction = 1.0  # part of the time in which its turn on its GPUs is served
        self.serving = 0.0  # GPUs it holds × fraction
        self.executed = 0.0  # seconds it held GPUs, its turn or not
        self.attained = 0.0  # GPU-seconds it was served: GPUs held × fraction; packed jobs are each served in full
        self.work_done = 0.0  # in the unit of the estimates: seconds at reference speed, or steps
        self.speed = 0.0  # work per second at its present placement
        self.step_time = 0.0  # of a step while its turn is served
        self.watched_seconds = 0.0  # of progress since its GPUs, its share or its turn last changed
        self.watched_batches = 0.0  # mini-batches done in them
        self.exposed = 0.0  # share of a step in communication that nothing hides
        self.neighbours = 1.0  # slowdown by other jobs on its links
        self.since = now  # up to when the figures above are booked
        self.progress_from = now
        self.last_change = now  # when it last got or lost GPUs; arrival at first
        self.first_start: float | None = None
        self.lease_until: float | None = None
        self.preemptions = 0
        self.attempts = 0  # starts and moves so far
        self.pinned = False  # has GPUs on a machine that is drained: who leaves them gives them to nobody
        self.failures = 0  # crashes and starts that failed, of those that count against its retries
        self.hold: str | None = None  # why its owner keeps it out of the queue, now or once it has lost its GPUs

    @property
    def movable(self) -> bool:
        """Whether a plan may preempt, move or resize it: it runs, as far as anybody knows, and nothing forbids it."""
        return self.state is State.RUNNING and self.job.preemptible and not self.pinned

    def starvation(self, now: float) -> float:
        """Seconds since it last got or lost GPUs."""
        return now - self.last_change

    def executed_at(self, now: float) -> float:
        """Seconds it has held GPUs."""
        return self.executed + (now - self.since if self.placement is not None else 0.0)

    def attained_at(self, now: float) -> float:
        """GPU-seconds it was served."""
        return self.attained + (self.serving * (now - self.since) if self.placement is not None else 0.0)

    def work_at(self, now: float) -> float:
        """Work it has done, in the unit of the estimates."""
        if self.placement is None or now <= self.progress_from:
            return self.work_done
        return self.work_done + self.speed * (now - max(self.since, self.progress_from))

    def watched_at(self, now: float) -> tuple[float, float]:
        """(seconds its turn was served, mini-batches done in them) since its GPUs, share or turn last changed."""
        begin = self.since if self.since > self.progress_from else self.progress_from
        if self.placement is None or now <= begin or self.step_time <= 0:
            return self.watched_seconds, self.watched_batches
        seconds = (now - begin) * self.fraction
        return self.watched_seconds + seconds, self.watched_batches + seconds / self.step_time

    def accrue(self, now: float) -> None:
        """Book what happened since the last change."""
        if now > self.since:
            if self.placement is not None:
                held = now - self.since
                begin = self.since if self.since > self.progress_from else self.progress_from
                if now > begin:
                    self.work_done += self.speed * (now - begin)
                    if self.step_time > 0:
                        served = (now - begin) * self.fraction
                        self.watched_seconds += served
                        self.watched_batches += served / self.step_time
                self.executed += held
                self.attained += self.serving * held
            self.since = now

    def move(self, what: str) -> None:
        self.state = after(self.id, self.state, what)
