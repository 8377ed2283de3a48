"""What a world can report. Events of one instant are applied together, in the order of this file.

A world may be late, repeat itself or contradict itself: what does not fit the state of a job is recorded as odd, with
a sentence that says why, and changes nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dally.core.job import Job
from dally.core.queues import Queue
from dally.core.topology import MachineSpec


class Finished(NamedTuple):
    job: str


class Failed(NamedTuple):
    """The job gave up: its retries are used up."""

    job: str
    cause: str = ""


class Cancelled(NamedTuple):
    job: str


class Yielded(NamedTuple):
    """A preempted job has saved its checkpoint and left its GPUs."""

    job: str


class StartFailed(NamedTuple):
    """The job was to start (or to move), and does not: refused, or nothing was heard of it in time. It waits again."""

    job: str
    cause: str
    failure: bool = False  # the job's own: counts against its retries (`ActiveJob.failures`)


class Interrupted(NamedTuple):
    """A job lost its GPUs by a fault; it keeps the work of its last checkpoint and waits again."""

    job: str
    work_done: float
    cause: str
    lost: float = 0.0  # GPU-seconds of work that are gone
    failure: bool = False  # the job's own, a crash: counts against its retries (`ActiveJob.failures`)


class ContactLost(NamedTuple):
    """Nothing is heard of a job that should run: it may or may not."""

    job: str


class ContactRestored(NamedTuple):
    """It runs after all."""

    job: str


class MachineDown(NamedTuple):
    machine: str  # its whole name, here and below


class MachineDrained(NamedTuple):
    """Nothing is started on the machine any more; what runs there goes on."""

    machine: str


class MachineUp(NamedTuple):
    """After it was down or drained."""

    machine: str


class GpusWithheld(NamedTuple):
    """So many of the machine's GPUs are not this scheduler's to give: others have them, by whatever way they came to
    them. Which ones is not said; where jobs of this scheduler still hold too many, those GPUs go as they leave them."""

    machine: str
    gpus: int


class MachinesChanged(NamedTuple):
    """The cluster grew or shrank. Jobs on machines that are gone are lost until the world says more."""

    added: tuple[MachineSpec, ...] = ()
    removed: tuple[str, ...] = ()


class QueuesSet(NamedTuple):
    """From here on jobs pass these queues before the policy sees them (`core.shares`); none: they do not."""

    queues: tuple[Queue, ...] = ()


class LeaseEnded(NamedTuple):
    """The first step boundary at or after the end of the job's lease."""

    job: str


class Started(NamedTuple):
    """The job runs on the GPUs it was given. Until its steps are measured, a second of running is a second of work."""

    job: str


class Measured(NamedTuple):
    """A running job's step time changed: by its placement or by its neighbours. Also says that it runs.

    `speed` is work per second; `exposed` the share of a step spent in communication that nothing hides;
    `delay` the seconds until it makes progress (loading, waiting for GPUs to be vacated).
    """

    job: str
    speed: float
    step_time: float
    exposed: float
    delay: float = 0.0
    neighbours: float = 1.0  # slowdown by neighbours alone; distance is the rest


class Arrived(NamedTuple):
    job: Job


class Held(NamedTuple):
    """The job is kept out of the queue until it is released: at once where it waits, else as soon as it has lost its
    GPUs for whatever reason. Nothing is taken from a job that runs; who wants that requeues it as well.

    A policy hears of it when the job has left the queue."""

    job: str
    why: str = ""


class Released(NamedTuple):
    """Nobody keeps the job out of the queue any more. A policy hears of it when the job is in the queue, and takes it
    like one that has just arrived, or come back."""

    job: str


class TimerDue(NamedTuple):
    pass


Event = (
    Finished | Failed | Cancelled | Yielded | StartFailed | Interrupted | ContactLost | ContactRestored | MachineDown
    | MachineDrained | MachineUp | GpusWithheld | MachinesChanged | QueuesSet | LeaseEnded | Started | Measured
    | Arrived | Held | Released | TimerDue
)  # fmt: skip

ORDER: Final[dict[type, int]] = {
    kind: rank
    for rank, kind in enumerate(
        (Finished, Failed, Cancelled, Yielded, StartFailed, Interrupted, ContactLost, ContactRestored, MachineDown,
         MachineDrained, MachineUp, GpusWithheld, MachinesChanged, QueuesSet, LeaseEnded, Started, Measured, Arrived,
         Held, TimerDue)
    )
}  # fmt: skip
ORDER[Released] = ORDER[Held]  # as they come: who holds and releases means the last of it
