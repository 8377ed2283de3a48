"""How long a gang waits for nearer GPUs: while it pays (derived in docs/dally.md), or, to compare, as somebody says.

A job that needs R seconds on the d GPUs it is offered and R′ < R one tier or more nearer saves R − R′ itself, and
d·(R − R′) GPU-seconds of the cluster's, which put off K others by 1/G of it each. So waiting is worth
S = (R − R′)·(1 + d·K/G). It declines while the nearer GPUs are expected sooner than S and it has not yet waited S: to
wait as long as the saving and then give in is at most twice as bad as knowing the future (the ski-rental bound).

K are those who wait. Where nobody is preempted, what is given now is given for good, and puts off all who come before
the queue is served, whoever they are; but so do GPUs that stand idle because they were declined. Where there are many
to put off, how many cancels out: it declines while W < S = (R − R′)/u, where u is the part of declined GPUs that nobody
else takes. And, whatever the forecast says, it declines what is more than 1/ρ times as slow as the nearest GPUs, where
ρ is the load that jobs bring if all run near: if all took such, more would be asked of the cluster than it has, and
every far gang makes the wait for near GPUs longer for the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.policies.dally.forecast import Forecast

Waits = Literal["value", "never", "always"] | float
IDLE: Final = 1 / 8  # u: the part of declined GPUs that stands idle meanwhile
FULL: Final = 1 / 3  # ρ counts for no more: what is less than three times as slow is left to the forecast


class Declined:
    """The job prefers to wait for a tier until a time."""

    __slots__ = ("expected", "longer", "offered", "others", "slower", "tier", "until")

    def __init__(self, tier: int, offered: int, until: float, expected: float | None, slower: float = 1.0,
                 longer: float = 0.0, others: float = 0.0) -> None:  # fmt: skip
        self.tier, self.offered = tier, offered
        self.until = until  # ∞: until it gets what it waits for
        self.expected = expected  # when the tier opens; None: somebody says how long it waits, and nobody has looked
        self.slower = slower  # times as long as there it would run on what it was offered
        self.longer = longer  # seconds more
        self.others = others  # seconds by which that would put off everybody else, in sum


class Waiting:
    """The rule in one plan. `said`: who has declined so far, in the order of the plan. `lasting`: nobody is taken off
    the GPUs it was given."""

    def __init__(self, rule: Waits, forecast: Forecast, said: Sequence[tuple[ActiveJob, Declined]], *,
                 lasting: bool) -> None:  # fmt: skip
        self.rule, self.forecast, self.said, self.lasting = rule, forecast, said, lasting
        self.now, self.gpus = forecast.now, forecast.tiers.gpus

    @property
    def load(self) -> float:
        """ρ: what jobs bring, if all of them run near, over what the cluster can do."""
        return min(FULL, self.forecast.arrivals.offered_per_second(self.now) / self.gpus)

    @property
    def pressure(self) -> float:
        """K/G: by how much the sum of all completion times grows with a GPU-second that is lost."""
        return max(0, len(self.forecast.view.waiting) - 1) / self.gpus

    def rather(self, job: ActiveJob, placement: Placement, nearest: int, room: int) -> Declined | None:
        """What the job waits for instead of this placement at tier `room`, if there is such a thing at a tier from
        `nearest` on: GPUs nearer together, or at the same tier on fewer machines."""
        demand = job.demand
        said = demand.wait if demand.where is not None else None
        by_value = self.rule == "value" and said is None
        scattered = by_value and not (demand.where and demand.shaped) and self.forecast.tiers.scattered(placement)
        if nearest >= room and not scattered:
            return None
        if said is not None:
            return self._as_said(job, said, nearest, room)
        if isinstance(self.rule, float):
            return self._as_said(job, self.rule, nearest, room)
        if self.rule == "never":
            return None
        if self.rule == "always":
            return Declined(nearest, room, math.inf, self._expected(job, nearest))
        return (self._by_value(job, placement, range(nearest, room + scattered), room)
                or self._overloads(job, placement, nearest, room))  # fmt: skip

    def _as_said(self, job: ActiveJob, wait: float, nearest: int, room: int) -> Declined | None:
        """Its owner or an option says for how long, whatever it is worth."""
        until = job.last_change + wait
        return Declined(nearest, room, until, None) if self.now < until else None

    def _by_value(self, job: ActiveJob, placement: Placement, tiers: range, room: int) -> Declined | None:
        here = self.forecast.run_time(job, placement)
        worth = 1.0 / IDLE if self.lasting else 1.0 + job.gpus * self.pressure
        best: Declined | None = None
        gain = 0.0
        for tier in tiers:
            there = self.forecast.run_time_at(job, tier)
            saving = worth * (here - there)
            expected = self._expected(job, tier, saving)
            until = job.last_change + saving
            if until > self.now and expected - self.now < saving and saving - (expected - self.now) > gain:
                gain = saving - (expected - self.now)
                best = self._declined(job, tier, room, until, expected, here, there)
        return best

    def _overloads(self, job: ActiveJob, placement: Placement, nearest: int, room: int) -> Declined | None:
        """It is more than 1/ρ times as slow here. Until: when nobody else comes, the load is less by then."""
        near, here = self.forecast.run_time_at(job, nearest), self.forecast.run_time(job, placement)
        slower = here / near if near > 0 else 1.0
        if not self.lasting or slower <= 1.0 or slower * self.load <= 1.0:
            return None
        arrivals = self.forecast.arrivals
        until = arrivals.first_came + slower * arrivals.offered / self.gpus
        if until <= self.now:
            return None
        return self._declined(job, nearest, room, until, self._expected(job, nearest), here, near)

    def _declined(self, job: ActiveJob, tier: int, room: int, until: float, expected: float, here: float,
                  there: float) -> Declined:  # fmt: skip
        """With the trade in numbers, for whoever asks."""
        longer = here - there
        return Declined(tier, room, until, expected, here / there if there > 0 else 1.0, longer,
                        job.gpus * self.pressure * longer)  # fmt: skip

    def _expected(self, job: ActiveJob, tier: int, within: float = math.inf) -> float:
        """∞ where that is not within so many seconds."""
        ahead = 0
        for _, said in self.said:
            if said.tier == tier:
                ahead += 1
        return self.forecast.opening(job.demand, tier, ahead, within)
