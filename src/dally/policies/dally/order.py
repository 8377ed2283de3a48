"""Who comes first: least time left, weighed by how many others it puts off, less what its wait has earned.

A job's size is the seconds it has left on the nearest GPUs there are for it, or those it has had where it declares
nothing (`Forecast.size`). The others it may put off are as many as it has GPUs, and no more than wait: so least GPU
time goes first where many wait, and least time where one gang is in the way of one other (docs/dally.md). `breadth` is
a power of that weight: the knob between the average and wide gangs.
"""

from __future__ import annotations

from typing import Final

from dally.core.ranking import Rank

AGEING: Final = 0.1  # of its wait is taken off a job's size: after ten times what it needs nothing newer passes it


def weight(gpus: int, waiting: int, breadth: float) -> float:
    """What a second of a gang counts where so many wait."""
    return power(min(gpus, 1 + waiting), breadth)


def power(count: int, breadth: float) -> float:
    """1, as a rule, changes nothing, and need not be worked out."""
    return float(count) if breadth == 1.0 else float(count**breadth)


def aged(size: float, waited: float, gpus: int, weight: float, breadth: float, declares: bool) -> float:
    """Its place in the order. Who declares nothing has size 0 when it comes: an hour of waiting is an hour then, or the
    widest of the newcomers would go first, and what it has had counts by all its GPUs, however few wait."""
    if not declares:
        return power(gpus, breadth) * size - AGEING * waited
    return weight * (size - AGEING * waited)


def rank(size: float, since: float, gpus: int, breadth: float, declares: bool) -> Rank:
    """The same as a line over time, among jobs of one demand, which weigh alike: a plan weighs demands against each
    other anew."""
    return Rank((size if declares else power(gpus, breadth) * size) + AGEING * since, -AGEING)


def starved(waited: float, left: float, lease: float) -> bool:
    """Whether it has waited out of all proportion to the seconds it has left, and to a lease."""
    return AGEING * waited > max(lease, left)


class Kept:
    """GPUs kept together for a job that has starved, and who may use them until it begins.

    From `begin` on the job has the GPUs it needs, as far as can be told, and `spare` more are free. Until then whoever
    is through by then may use what comes free, and whoever fits beside the job may stay (EASY backfill, Lifka,
    JSSPP'95): to keep GPUs idle for it would put off everybody else and get it nothing."""

    def __init__(self, begin: float, spare: int) -> None:
        self.begin, self.spare = begin, spare

    def leaves(self, gpus: int, end: float) -> bool:
        """Whether there is something in it for a gang that would run until then."""
        return end <= self.begin or gpus <= self.spare

    def take(self, gpus: int, end: float) -> None:
        if end > self.begin:
            self.spare -= gpus
