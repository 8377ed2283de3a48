"""Plans: what a policy answers, as a list of typed actions."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.placement import Placement
from dally.core.reasons import Reason


class Demand(NamedTuple):
    """What makes waiting jobs interchangeable for "does it fit": size of the gang and GPU type wanted."""

    gpus: int
    gpu_type: str | None


class Start(NamedTuple):
    """Give the gang these GPUs. They must be free, or vacated by a preemption in the same plan: then the
    job begins when the last of them is handed over. `lease` seconds from now the world reports `LeaseEnded`."""

    job: str
    placement: Placement
    lease: float | None = None


class Preempt(NamedTuple):
    """Take the job's GPUs away at the next opportunity; it saves a checkpoint and waits again."""

    job: str


class Migrate(NamedTuple):
    """Move a running job to other GPUs, through a checkpoint."""

    job: str
    placement: Placement
    lease: float | None = None


class Extend(NamedTuple):
    """A job keeps its GPUs for another lease; nothing is saved and nothing is lost."""

    job: str
    lease: float


class WakeAt(NamedTuple):
    """Ask again at this time even if nothing happens until then."""

    time: float


class Wait(NamedTuple):
    """Why a job, or every job of one demand, stays in the queue. Holds until it is replaced."""

    who: str | Demand
    reason: Reason


Action = Start | Preempt | Migrate | Extend | WakeAt | Wait
Plan = list[Action]
