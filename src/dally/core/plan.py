"""Plans: what a policy answers, as a list of typed actions."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.reasons import Reason
from dally.core.sharing import Share


class Where(NamedTuple):
    """What a job says of where it is to be (`Job.within`, `prefers`, `wait`, `nodes`, `among`); there is none where it
    says nothing."""

    within: str | None
    prefers: str | None = None
    wait: float | None = None
    nodes: int | None = None
    among: str | None = None


class Demand(NamedTuple):
    """What makes waiting jobs interchangeable for "does it fit": size of the gang, GPU type wanted, where it is to be.

    It is looked up at every turn: a third field costs next to nothing there, a fifth would be felt."""

    gpus: int
    gpu_type: str | None
    where: Where | None = None

    @property
    def within(self) -> str | None:
        """The level it must be inside of."""
        return None if self.where is None else self.where.within

    @property
    def prefers(self) -> str | None:
        return None if self.where is None else self.where.prefers

    @property
    def wait(self) -> float | None:
        return None if self.where is None else self.where.wait

    @property
    def nodes(self) -> int | None:
        """On how many machines it must be, with as many GPUs on each."""
        return None if self.where is None else self.where.nodes

    @property
    def among(self) -> str | None:
        """The sets of machines it must be on."""
        return None if self.where is None else self.where.among

    @property
    def shaped(self) -> bool:
        """Whether it says on how many or on which machines it must be (`core.shape`)."""
        where = self.where
        return where is not None and (where.nodes is not None or where.among is not None)

    @property
    def bound(self) -> bool:
        """Whether it must be in some places and not in others: a count of free GPUs does not say that it fits."""
        where = self.where
        return where is not None and (where.within is not None or where.nodes is not None or where.among is not None)

    @property
    def short(self) -> tuple[int | str | float | None, ...]:
        """As it is written: without what it does not say, but for the type."""
        said = (self.gpus, self.gpu_type, *(self.where or ()))
        while len(said) > 2 and said[-1] is None:
            said = said[:-1]
        return said

    @property
    def inside(self) -> str:
        """For sentences."""
        said = "" if self.within is None else f" inside one {self.within}"
        if self.nodes is not None:
            said += " on one machine" if self.nodes == 1 else f" on {self.nodes} machines alike"
        return said if self.among is None else f"{said} among {self.among}"


def demand_of(gpus: int, gpu_type: str | None, within: str | None = None, prefers: str | None = None,
              wait: float | None = None, nodes: int | None = None, among: str | None = None) -> Demand:  # fmt: skip
    """The demand of a job that says so; back from `Demand.short`."""
    plain = within is None and prefers is None and wait is None and nodes is None and among is None
    return Demand(gpus, gpu_type, None if plain else Where(within, prefers, wait, nodes, among))


def demand_of_job(job: Job) -> Demand:
    return demand_of(job.gpus, job.gpu_type, job.within, job.prefers, job.wait, job.nodes, job.among)


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
