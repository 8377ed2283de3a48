"""Plans: what a policy answers, as a list of typed actions."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.demand import Demand as Demand
from dally.core.demand import Where as Where
from dally.core.demand import demand_of as demand_of
from dally.core.demand import demand_of_job as demand_of_job
from dally.core.placement import Placement
from dally.core.reasons import Reason
from dally.core.sharing import Share


class Start(NamedTuple):
    """Give the gang these GPUs. They must be free, or vacated by a preemption in the same plan: then the
    job begins when the last of them is handed over. `lease` seconds from now the world reports `LeaseEnded`.

    With a `share` they may also be exactly the GPUs other jobs hold: all of them take turns from then on, or are
    packed (`core.sharing`). Actions count in the order of the plan: who is to be packed beside a job comes after it.
    """

    job: str
    placement: Placement
    lease: float | None = None
    share: Share | None = None


class Preempt(NamedTuple):
    """Take the job's GPUs away at the next opportunity; it saves a checkpoint and waits again. Of shared GPUs it
    gives up its share; the others keep them."""

    job: str


class Migrate(NamedTuple):
    """Move a running job to as many other GPUs, through a checkpoint; with a `share`, also to GPUs others hold."""

    job: str
    placement: Placement
    lease: float | None = None
    share: Share | None = None


class Resize(NamedTuple):
    """Give an elastic job another number of GPUs, within its `min_gpus` … `max_gpus`, at the price of a migration.
    They must be free, or its own, or vacated in the same plan."""

    job: str
    placement: Placement
    lease: float | None = None


class Reshare(NamedTuple):
    """Change a job's share where it is: another weight or quantum, packed beside another job of the same GPUs, or
    (`beside=None`) in a turn of its own. Nothing is saved and nothing is lost."""

    job: str
    share: Share


class Extend(NamedTuple):
    """A job keeps its GPUs for another lease; nothing is saved and nothing is lost."""

    job: str
    lease: float


class Stop(NamedTuple):
    """Put an end to whatever runs under this name: nobody planned it. Said by the scheduler, never by a policy."""

    job: str


class WakeAt(NamedTuple):
    """Ask again at this time even if nothing happens until then."""

    time: float


class Wait(NamedTuple):
    """Why a job, or every job of one demand, stays in the queue. Holds until it is replaced."""

    who: str | Demand
    reason: Reason


Action = Start | Preempt | Migrate | Resize | Reshare | Extend | WakeAt | Wait
Moves = Preempt | Migrate | Resize  # what takes a running job off its GPUs
Places = Start | Migrate | Resize  # what gives a job GPUs
Plan = list[Action]
