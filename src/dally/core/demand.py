"""What a job asks for, as far as that makes it interchangeable with others.

Memories save these by their type hints, of which mypyc leaves a named tuple none that is a union: never compiled.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dally.core.job import Job


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
    if job.within is None and job.prefers is None and job.wait is None and job.nodes is None and job.among is None:
        return _plain(job.gpus, job.gpu_type)
    return demand_of(job.gpus, job.gpu_type, job.within, job.prefers, job.wait, job.nodes, job.among)


@lru_cache(maxsize=4096)
def _plain(gpus: int, gpu_type: str | None) -> Demand:
    """Equal ones are one object: whoever looks them up sees that they are the same, and need not compare them."""
    return Demand(gpus, gpu_type)
