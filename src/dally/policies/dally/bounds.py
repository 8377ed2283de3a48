"""What running jobs that may lose their GPUs have left at most, and where they are: by their size, and by machine."""

from __future__ import annotations

import math

from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.core.topology import Machine
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.taking import Live


class Bound:
    """What a running job has left at most, in seconds, and where it is."""

    __slots__ = ("alike", "alone", "asked", "due", "gpus", "held", "inside", "job", "kind", "left", "most", "number",
                 "pace", "placement", "undeclared")  # fmt: skip

    def __init__(self, job: ActiveJob, placement: Placement, forecast: Forecast, first: Machine, alike: Alike) -> None:
        self.job, self.placement, self.alike = job, placement, alike
        self.most = math.inf  # nobody has looked yet
        self.due = 0  # which of the notes until when a bound holds is of this one; 0: it holds on, or it is gone
        self.number, self.gpus, self.held = job.number, job.gpus, placement.gpus
        self.alone = len(placement.slices) == 1  # on a single machine
        self.kind, self.inside = first.gpu_type, first.domains  # of its first machine
        pace = forecast.known_pace(job)
        self.pace = -1.0 if pace is None else pace  # -1: it may become another one
        self.undeclared = not forecast.declares(job)
        self.left = 0.0  # what it has left now, as it weighs; -1: it is loading, and loses nothing …
        self.asked = 0  # … as it was in this plan

    def touches(self, live: Live) -> bool:
        """Whether it may have GPUs in one of these domains."""
        return not self.alone or live.has(self.inside[live.tier])

    def size(self, forecast: Forecast) -> float:
        """What it has left now."""
        if self.undeclared and self.pace >= 0:  # nobody need be asked
            return self.job.work_at(forecast.now) / self.pace
        return forecast.size(self.job) if self.pace < 0 else forecast.size_by(self.job, self.pace)

    def after(self, other: Bound) -> bool:
        """Whether it comes after another one in the order: it has more left or, where equal, it came later."""
        return self.left > other.left or (self.left == other.left and self.number > other.number)


class Here:
    """GPUs of a job on one machine."""

    __slots__ = ("bound", "gpus")

    def __init__(self, bound: Bound, gpus: int) -> None:
        self.bound, self.gpus = bound, gpus


def any_of(there: list[Here], alike: Alike) -> bool:
    """Whether one of these is of a size."""
    for here in there:  # noqa: SIM110 - whenever a job goes, and a generator costs
        if here.bound.alike is alike:  # objects
            return True
    return False


class Alike:
    """Running jobs of one size, in ascending order of their bounds; where equal, in order of arrival."""

    __slots__ = ("bounds", "gpus", "machines", "weighs")

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.bounds: list[Bound] = []
        self.weighs = 0.0  # what a second of theirs counts in this plan
        self.machines = 0  # where there are any, as a bit set

    def add(self, bound: Bound) -> None:
        self.bounds.insert(self._place(bound), bound)

    def remove(self, bound: Bound) -> None:
        del self.bounds[self._place(bound)]

    def change(self, bound: Bound, most: float) -> None:
        """It has so much left at most from now on."""
        self.remove(bound)
        bound.most = most
        self.add(bound)

    def beyond(self, least: float) -> int:
        """How many may have more than so much left, as it weighs."""
        first, last = 0, len(self.bounds)
        while first < last:
            middle = (first + last) // 2
            if self.weighs * self.bounds[middle].most <= least:
                first = middle + 1
            else:
                last = middle
        return len(self.bounds) - first

    def _place(self, bound: Bound) -> int:
        bounds, most, number = self.bounds, bound.most, bound.number
        first, last = 0, len(bounds)
        while first < last:
            middle = (first + last) // 2
            other = bounds[middle]
            if other.most < most or (other.most == most and other.number < number):
                first = middle + 1
            else:
                last = middle
        return first
