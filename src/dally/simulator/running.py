"""A job as the simulated world knows it, from its first start to its end."""

from __future__ import annotations

from dally.core.job import Job, Truth
from dally.core.placement import Placement
from dally.network.model import Step

_UNKNOWN = Step(0.0, 0.0, 0.0, 0.0)


class RunningJob:
    """What is true of it now. `speed` is what it does on average; `going` what it does at this moment: the same
    but where time slices are run one by one."""

    __slots__ = ("attempt", "began", "crash_at", "done", "epoch", "going", "job", "lease_end", "limit_from",
                 "limit_rate", "limit_used", "network_step", "pace", "paused_until", "placement", "progress_from",
                 "retries", "saved", "since", "size", "speed", "starts", "step", "truth", "work",
                 "yields_at")  # fmt: skip

    def __init__(self, job: Job, truth: Truth, work: float) -> None:
        self.job, self.truth, self.work = job, truth, work
        self.done = 0.0  # work done, booked up to `since`
        self.saved = 0.0  # work that a fault cannot take away
        self.since = self.progress_from = 0.0
        self.paused_until = 0.0  # a turn that is just beginning still switches
        self.pace = 0.0  # work per second while its turn is served
        self.speed = 0.0
        self.going = 0.0
        self.step = 0.0  # seconds per step while its turn is served
        self.network_step = _UNKNOWN  # as the network said last, nobody packed beside it
        self.placement: Placement | None = None
        # Its GPUs over those of its gang. Weak scaling: a GPU works through as many samples a step as ever, so g GPUs
        # do g/G of the gang's work in a step.
        self.size = 1.0
        self.lease_end: float | None = None
        self.crash_at: float | None = None
        self.limit_used = self.limit_from = 0.0  # of its time limit, up to when
        self.limit_rate = 1.0  # seconds of it that go by in a second: fewer while it takes turns
        self.yields_at: float | None = None  # while it saves its checkpoint
        self.epoch = 0  # raised whenever what is in the heap about it stops being true
        self.attempt = 0  # failures of its own that lie behind it
        self.retries = 0
        self.starts = 0  # times it was told to start, where that takes a while
        self.began = False  # whether it ever was on GPUs

    def book(self, now: float, checkpoint_interval: float) -> None:
        """Work done since the last booking, and how much of it the latest periodic checkpoint holds."""
        start = max(max(self.since, self.progress_from), self.paused_until)  # two by two: a call of three is slow
        done = self.going * (now - start) if now > start else 0.0
        if checkpoint_interval == 0 and now > start:
            self.saved = self.done + done
        elif checkpoint_interval and now > self.progress_from:
            latest = now - (now - self.progress_from) % checkpoint_interval  # when the latest checkpoint was taken
            if latest > start:
                self.saved = self.done + self.going * (latest - start)
            elif latest > self.since:
                self.saved = self.done  # between two of its turns
        self.done += done
        self.since = now

    @property
    def target(self) -> float:
        """The work at which it ends, or at which the attempt it is at dies."""
        attempts = self.truth.failures
        return self.work * attempts[self.attempt] if self.attempt < len(attempts) else self.work

    def lose_unsaved(self) -> float:
        """A fault takes the work since the last checkpoint; returns the GPU-seconds it had cost."""
        lost = self.done - self.saved
        self.done = self.saved
        gpus = self.placement.gpus if self.placement is not None else self.job.gpus
        return lost / self.pace * gpus if self.pace > 0 else 0.0


def uses(placement: Placement | None, machine: int) -> bool:
    return placement is not None and any(m == machine for m, _ in placement.slices)


def overlap(a: Placement, b: Placement) -> bool:
    """Whether they have a GPU in common. Both are in the order of machines, and most are on one."""
    slices, others = a.slices, b.slices
    at, other = 0, 0
    while at < len(slices) and other < len(others):
        machine, mask = slices[at]
        there, wanted = others[other]
        if machine == there and mask & wanted:
            return True
        at += machine <= there
        other += there <= machine
    return False
