"""What the simulated world lets policies believe about the future: the truth, or the truth with noise."""

from __future__ import annotations

import random
from collections.abc import Mapping

from dally.core.job import Job


class Perfect:
    """Every job declares exactly what it will take."""

    def __init__(self, work: Mapping[str, float]) -> None:
        self._work = work

    def work(self, job: Job) -> float | None:
        return self._work.get(job.id)


class Noisy:
    """Declarations are off by a log-normal factor, fixed per job and seed."""

    def __init__(self, work: Mapping[str, float], sigma: float, seed: int = 0) -> None:
        self._work, self._sigma, self._seed = work, sigma, seed

    def work(self, job: Job) -> float | None:
        true = self._work.get(job.id)
        if true is None:
            return None
        return true * random.Random(f"{self._seed}/estimate/{job.id}").lognormvariate(0.0, self._sigma)


class Nothing:
    """Nobody declares anything."""

    def work(self, job: Job) -> float | None:
        return None
