"""The stream of jobs: sixty, of 1, 2, 4 and 8 GPUs and four kinds of models, drawn from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from testbed.models import MODELS

SIZES = {1: 0.35, 2: 0.25, 4: 0.25, 8: 0.15}  # GPUs: share of the jobs
NODE_GPUS = 2
# Many short jobs and some longer ones: log-normal, cut at both ends. Very long ones, and a spine so narrow that they
# take five times as long across it, make the stream chaotic: with 0.2 s more per start, the simulator's average JCT of
# sixty such jobs was seen to change by up to 118 %. What cannot be repeated cannot be predicted.
MEDIAN, SIGMA, SHORTEST, LONGEST = 22.0, 0.4, 10.0, 60.0
ARRIVALS = 3.5  # mean seconds between two


@dataclass(frozen=True, slots=True)
class StreamJob:
    """What everybody is told of a job, and how many steps it has."""

    name: str
    submit: float  # seconds from the begin of the run
    gpus: int
    model: str
    steps: int
    minutes: int  # its declared time: whole minutes, since Slurm knows no finer ones

    @property
    def nodes(self) -> int:
        return max(1, self.gpus // NODE_GPUS)


def stream(seed: int, jobs: int = 60) -> list[StreamJob]:
    """The owner declares what the job takes without exchange, rounded up: nobody knows where it will run."""
    chance = random.Random(f"stream {seed}")
    found, now = [], 0.0
    for number in range(jobs):
        gpus = chance.choices(list(SIZES), list(SIZES.values()))[0]
        kind = MODELS[chance.choice(sorted(MODELS))]
        seconds = min(LONGEST, max(SHORTEST, chance.lognormvariate(math.log(MEDIAN), SIGMA)))
        steps = max(1, round(seconds / kind.compute))
        found.append(StreamJob(f"j{number:02}", round(now, 3), gpus, kind.name, steps, math.ceil(seconds / 60)))
        now += chance.expovariate(1 / ARRIVALS)
    return found
