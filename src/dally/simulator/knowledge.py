"""What the simulated world lets policies believe about the future: the truth, or the truth with noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from dally.core.errors import UserError
from dally.core.estimates import Estimates
from dally.core.job import Job
from dally.core.placement import Placement
from dally.network.model import NetworkModel

Speed = Callable[[Job, Placement], float | None]


def speeds(reference: Mapping[str, float], network: NetworkModel) -> Speed:
    """What a profile of every model on every shape of placement would say."""

    def speed(job: Job, placement: Placement) -> float | None:
        step = reference.get(job.id)
        return None if step is None else step / network.step_time(job, placement, 0.0).seconds

    return speed


class _Profiled:
    """Speeds are known where they are given."""

    def __init__(self, speed: Speed | None = None) -> None:
        self._speed = speed

    def speed(self, job: Job, placement: Placement) -> float | None:
        return None if self._speed is None else self._speed(job, placement)


class Perfect(_Profiled):
    """Every job declares exactly what it will take."""

    def __init__(self, work: Mapping[str, float], speed: Speed | None = None) -> None:
        super().__init__(speed)
        self._work = work

    def work(self, job: Job) -> float | None:
        return self._work.get(job.id)


class Noisy(_Profiled):
    """Declarations are off by a log-normal factor, fixed per job and seed."""

    def __init__(self, work: Mapping[str, float], sigma: float, seed: int = 0, speed: Speed | None = None) -> None:
        super().__init__(speed)
        self._work, self._sigma, self._seed = work, sigma, seed
        self._said: dict[str, float] = {}

    def work(self, job: Job) -> float | None:
        true = self._work.get(job.id)
        if true is None:
            return None
        said = self._said.get(job.id)
        if said is None:
            factor = random.Random(f"{self._seed}/estimate/{job.id}").lognormvariate(0.0, self._sigma)
            said = self._said[job.id] = true * factor
        return said


class Nothing(_Profiled):
    """Nobody declares anything."""

    def work(self, job: Job) -> float | None:
        return None


def make_estimates(text: str, work: Mapping[str, float], seed: int = 0, speed: Speed | None = None) -> Estimates:
    """`declared`: every job says exactly what it will take; `noisy=0.7`: off by a log-normal factor; `none`."""
    name, _, value = text.strip().partition("=")
    if name == "declared" and not value:
        return Perfect(work, speed)
    if name == "none" and not value:
        return Nothing(speed)
    try:
        sigma = float(value) if name == "noisy" else -1.0
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma < 10:
        raise UserError(f"knowledge {text!r}: write declared, none, or noisy=0.7 (sigma of a log-normal factor)")
    return Noisy(work, sigma, seed, speed)
