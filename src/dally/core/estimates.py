"""What a policy may believe about the future: an explicit estimate that a live cluster could also supply."""

from __future__ import annotations

from typing import Protocol, cast

from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Topology


class Estimates(Protocol):
    """What is said of jobs before they have shown it: by their owners (durations) and by profiles (speeds)."""

    def work(self, job: Job) -> float | None:
        """Total work of the job, in the unit its progress is counted in; None where nothing is known."""
        ...

    def speed(self, job: Job, placement: Placement) -> float | None:
        """Work per second on these GPUs with the links to itself; None where nobody has profiled it."""
        ...

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        """Work per second on GPUs of this type, near each other or spread; 0 where it does not run there, None where
        nobody has measured it."""
        ...

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        """Work per second of two jobs of one size on the same GPUs; None where nobody has measured them together."""
        ...


class Learning(Protocol):
    """Estimates that what is measured makes better. They hear of it through the books, in the order of the journal, so
    that whoever executes the journal again believes the same; what they have learned is part of a snapshot."""

    def learn(self, job: Job, placement: Placement, step_time: float) -> None:
        """A step of the job took so long on these GPUs."""
        ...

    def lay_out(self, topology: Topology) -> None:
        """The cluster is another one now."""
        ...

    def forget(self, job_id: str) -> None:
        """A job has ended for good: what is known of it alone is of no use to anybody."""
        ...

    def learned(self) -> list[list[object]]:
        """As plain data."""
        ...

    def recall(self, learned: list[list[object]]) -> None:
        """What was learned before, in the place of what is known now."""
        ...


def learning(estimates: Estimates) -> Learning | None:
    """The same object, where it learns."""
    return cast(Learning, estimates) if hasattr(estimates, "learn") else None


class Declared:
    """What the submitter said: the only source on a live cluster that learns nothing else."""

    def work(self, job: Job) -> float | None:
        return job.declared_duration

    def speed(self, job: Job, placement: Placement) -> float | None:
        return None

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        return None

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        return None
