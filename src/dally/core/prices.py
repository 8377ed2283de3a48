"""What losing its GPUs costs a job, as measured: the same events tell it in a simulated world and on a live cluster.

The price is the time from the decision until a preempted job has left its GPUs, and the time from being given others
until it makes progress there. Both are averages, the latest counting most, over jobs of the same model and size; where
there was none yet, over all jobs. Before anybody was preempted nobody knows, and the price is taken to be nothing.
"""

from __future__ import annotations

from typing import Any, Final

from dally.core.job import Job

_RECENT: Final = 0.2  # weight of the newest
_LEAVING, _COMING_BACK = "leaving", "coming back"
# Which half, model, GPUs; None and 0: of all jobs. Where its type said so, compiled code would take it apart.
Kind = tuple[Any, ...]
_EVERYBODY: Final[dict[str, Kind]] = {half: (half, None, 0) for half in (_LEAVING, _COMING_BACK)}


class Prices:
    """Learned by the books, in the order of the journal; part of a snapshot."""

    def __init__(self) -> None:
        self._seconds: dict[Kind, float] = {}

    def of(self, job: Job) -> float:
        """Seconds without progress that being preempted and coming back would cost the job."""
        seconds = self._seconds
        if not seconds:
            return 0.0
        return sum(seconds.get((half, job.model, job.gpus), seconds.get((half, None, 0), 0.0))
                   for half in (_LEAVING, _COMING_BACK))  # fmt: skip

    def left(self, job: Job, seconds: float) -> None:
        """A preempted job took so long to leave."""
        self._learn(_LEAVING, job, seconds)

    def came_back(self, job: Job, seconds: float) -> None:
        """One that had been preempted made progress so long after it was given GPUs again."""
        self._learn(_COMING_BACK, job, seconds)

    def _learn(self, half: str, job: Job, seconds: float) -> None:
        model, gpus = job.model, job.gpus
        if gpus or model is not None:
            self._mean((half, model, gpus), seconds)
        self._mean(_EVERYBODY[half], seconds)

    def _mean(self, kind: Kind, seconds: float) -> None:
        before = self._seconds.get(kind)
        self._seconds[kind] = seconds if before is None else (1.0 - _RECENT) * before + _RECENT * seconds

    def save(self) -> list[list[Any]]:
        return [[*kind, seconds] for kind, seconds in self._seconds.items()]

    def load(self, saved: list[list[Any]]) -> None:
        self._seconds = {(half, model, gpus): seconds for half, model, gpus, seconds in saved}
