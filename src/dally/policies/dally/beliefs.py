"""How long jobs take, from what they declare and what declarations were worth so far, or from the jobs before them.

Total work is taken to be log-normal around what the job declares, with the spread that ended jobs had around their
own declarations: none as long as everybody was right. What orders jobs is then the Gittins index (Gittins 1979;
Tiresias, NSDI'19, section 3.2) in the form of a size: min over Δ of E[min(T − a, Δ) | T > a] / P(T − a ≤ Δ | T > a),
the time to spend per job that ends. It is the work left if declarations are exact.

Where nothing is declared, least attained service orders jobs (a Gittins index of the ended jobs was tried and was
worse: those that end first are the short ones), and what is left is expected from the work of ended jobs.
"""

from __future__ import annotations

import math

from dally.core.plan import Demand
from dally.policies.dally.remembered import BeliefsMemory
from dally.policies.dally.work_left import (
    EXACT,
    FEW,
    AllEnded,
    Ended,
    Left,
    left_of_declared,
    mean_of_declared,
    most_of,
    size_of_declared,
    steps,
)

_NONE = (0, 0.0)


class Beliefs:
    """Learns from every job that finishes."""

    __slots__ = ("_by_demand", "_memory")

    def __init__(self, memory: BeliefsMemory) -> None:
        self._memory, self._by_demand = memory, memory.finished_by_demand

    @property
    def finished(self) -> int:
        return self._memory.finished

    def learn(self, demand: Demand, declared: float | None, work: float) -> None:
        if work <= 0:
            return
        memory, log = self._memory, math.log(work)
        count, total = self._by_demand.get(demand, _NONE)
        self._by_demand[demand] = (count + 1, total + log)
        memory.finished += 1
        memory.log_work += log
        memory.log_work_squared += log * log
        if declared is not None and declared > 0:
            memory.declared += 1
            memory.squared_errors += (log - math.log(declared)) ** 2

    @property
    def spread(self) -> float:
        """Of declarations around the truth: root of the mean squared log error."""
        memory = self._memory
        return math.sqrt(memory.squared_errors / memory.declared) if memory.declared else 0.0

    def left(self, demand: Demand, declared: float | None, done: float) -> Left:
        if declared is None:  # least attained service, and as long again as it has run, or what the ended jobs say
            return Left(done, self.mean_left(demand, None, done))
        return left_of_declared(self.spread, declared, done)

    def mean_left(self, demand: Demand, declared: float | None, done: float) -> float:
        """`left(…).mean` alone: asked for very often."""
        if declared is not None:
            return mean_of_declared(self.spread, declared, done)
        if self.finished < FEW:
            return done
        return self.ended(demand, self.all_ended()).left(done)

    def all_ended(self) -> AllEnded:
        """What ended jobs say; there must be some."""
        memory = self._memory
        return AllEnded(memory.finished, memory.log_work, memory.log_work_squared)

    def ended(self, demand: Demand, every: AllEnded) -> Ended:
        """What they say of jobs of a demand."""
        count, total = self._by_demand.get(demand, _NONE)
        return Ended(every, count, total)

    def size(self, declared: float | None, done: float) -> float:
        """`left(…).size` alone: every running job is asked for it where somebody looks for GPUs to take."""
        if declared is None:
            return done  # least attained service
        return size_of_declared(self.spread, declared, done)

    @property
    def basis(self) -> float:
        """What `size` and `most` go by besides the job: where it is another one, so may be what they say."""
        spread = self.spread
        return steps(spread) if spread >= EXACT else 0.0

    def most(self, declared: float | None, done: float, speed: float) -> tuple[float, float]:
        """What `size` is at most while the job goes on at this speed, and for how many seconds, on the same basis."""
        return most_of(self.spread, declared, done, speed)
