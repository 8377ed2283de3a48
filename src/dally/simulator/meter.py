"""How well a policy can read a job's time per mini-batch in the simulator: the truth times log-normal noise."""

from __future__ import annotations

import math
import random
from typing import Final

from dally.core.errors import UserError
from dally.core.job import Job

NOISE: Final = 0.02  # sigma of one mini-batch; an assumption: mini-batches of one job are alike (Gandiva, OSDI'18)


class NoisyMeter:
    """Implements `core.policy.Meter`. A mean over n mini-batches is off by a log-normal factor of sigma/√n.

    The factor depends on the experiment's seed, the reader's, the job and n alone, so that it can be asked for at any
    time and as often as one likes. Means over n and over n + 1 mini-batches are drawn apart.
    """

    def __init__(self, sigma: float = NOISE, seed: int = 0) -> None:
        if not 0 <= sigma < 10:
            raise UserError(f"measurement noise {sigma!r}: write the sigma of a log-normal factor, e.g. 0.02")
        self._sigma, self._seed = sigma, seed
        self._chance = random.Random(0)  # made once: to seed it again takes less than a new one does

    def read(self, job: Job, mean: float, minibatches: int, seed: int) -> float:
        if self._sigma == 0:
            return mean
        chance = self._chance
        chance.seed(f"{self._seed}/meter/{seed}/{job.id}/{minibatches}")
        return mean * math.exp(chance.gauss(0.0, self._sigma / math.sqrt(minibatches)))
