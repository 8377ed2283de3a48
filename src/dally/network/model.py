"""The seam to the network: a job and its GPUs in, the time of one step out; two methods wide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dally.core.job import Job
from dally.core.placement import Placement


class Step(NamedTuple):
    """One training step. `exposed` seconds of it are communication that nothing hides."""

    seconds: float
    compute: float
    exposed: float
    alone: float  # seconds it would take without neighbours on its links

    @property
    def exposed_share(self) -> float:
        return self.exposed / self.seconds if self.seconds > 0 else 0.0

    @property
    def neighbours(self) -> float:
        """Slowdown by other jobs on the same links; what distance costs is not in it."""
        return self.seconds / self.alone if self.alone > 0 else 1.0


class NetworkModel(Protocol):
    @property
    def notes(self) -> Sequence[str]:
        """What was assumed about jobs and GPUs so far, each once."""
        ...

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        """The step of this job on these GPUs with nobody else on the links."""
        ...

    def moved(self, left: Sequence[str], entered: Sequence[tuple[Job, Placement]], now: float) -> Mapping[str, Step]:
        """Jobs left the links and others entered: the steps of those that entered and of every job they changed."""
        ...


class Uncontended(ABC):
    """Base of models in which jobs do not disturb each other."""

    @property
    def notes(self) -> Sequence[str]:
        return ()

    @abstractmethod
    def step_time(self, job: Job, placement: Placement, now: float) -> Step: ...

    def moved(self, left: Sequence[str], entered: Sequence[tuple[Job, Placement]], now: float) -> Mapping[str, Step]:
        return {job.id: self.step_time(job, placement, now) for job, placement in entered}
