"""The seam to the network: a job and its GPUs in, the time of one step out; and how short a step can be at all."""

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


class Floor(NamedTuple):
    """What no placement can beat, proved by the model itself (docs/lower-bound.md, "The shortest step")."""

    seconds: float
    placements: tuple[Placement, ...] = ()  # that may come down to it, the likeliest first


class NetworkModel(Protocol):
    by_shape: bool
    """Whether a step depends on the shape of a placement alone (`network.shape`): then shapes can be looked at one by
    one, and the shortest of all is the shortest there is."""

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

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        """No step of this job on `gpus` GPUs of one type that it may use is shorter, wherever they are and whoever
        else is on the links; infinite where the cluster has too few.

        None: the model does not say. Then computing alone is what a step is taken to need, so `Step.compute` of such
        a model must be the same on all GPUs of a type.
        """
        ...


class Uncontended(ABC):
    """Base of models in which jobs do not disturb each other."""

    by_shape = False

    @property
    def notes(self) -> Sequence[str]:
        return ()

    @abstractmethod
    def step_time(self, job: Job, placement: Placement, now: float) -> Step: ...

    def moved(self, left: Sequence[str], entered: Sequence[tuple[Job, Placement]], now: float) -> Mapping[str, Step]:
        return {job.id: self.step_time(job, placement, now) for job, placement in entered}

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        return None
