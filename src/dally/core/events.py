"""What a world can report. Events of one instant are applied together, in the order of this file."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.job import Job


class Finished(NamedTuple):
    job: str


class Failed(NamedTuple):
    """The job gave up: its retries are used up."""

    job: str


class Cancelled(NamedTuple):
    job: str


class Yielded(NamedTuple):
    """A preempted job has saved its checkpoint and left its GPUs."""

    job: str


class Interrupted(NamedTuple):
    """A job lost its GPUs by a fault; it keeps the work of its last checkpoint and waits again."""

    job: str
    work_done: float
    cause: str


class MachineDown(NamedTuple):
    machine: int


class MachineUp(NamedTuple):
    machine: int


class LeaseEnded(NamedTuple):
    """The first step boundary at or after the end of the job's lease."""

    job: str


class Measured(NamedTuple):
    """A running job's step time changed: by its placement or by its neighbours.

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


class TimerDue(NamedTuple):
    pass


Event = (
    Finished | Failed | Cancelled | Yielded | Interrupted | MachineDown | MachineUp | LeaseEnded | Measured
    | Arrived | TimerDue
)  # fmt: skip

ORDER: dict[type, int] = {
    kind: rank
    for rank, kind in enumerate(
        (Finished, Failed, Cancelled, Yielded, Interrupted, MachineDown, MachineUp, LeaseEnded, Measured,
         Arrived, TimerDue)
    )
}  # fmt: skip
