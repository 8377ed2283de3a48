"""How long a gang waits for nearer GPUs: while it pays (derived in docs/dally.md), or, to compare, as somebody says.

A job that needs R seconds on the d GPUs it is offered and R′ < R one tier or more nearer saves R − R′ itself, and
d·(R − R′) GPU-seconds of the cluster's, which put off K others by 1/G of it each. So waiting is worth
S = (R − R′)·(1 + d·K/G). It declines while the nearer GPUs are expected sooner than S and it has not yet waited S: to
wait as long as the saving and then give in is at most twice as bad as knowing the future (the ski-rental bound).

K are the N others who wait. Where nobody is preempted, what is given now is given for good, and it also puts off all
who come before the queue is served: K = N + λ·B/(1 − ρ), where λ jobs come per second, B seconds of work wait for
every GPU, and ρ is the load they bring if all run near. Then, whatever the forecast says, a job also declines
what is more than 1/ρ times as slow as the nearest GPUs: if all took such, more would be asked of the cluster than it
has, and every far gang makes the wait for near GPUs longer for the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.policies.dally.forecast import Forecast

Waits = Literal["value", "never", "always"] | float
FULL = 0.95  # no load counts for more in K: a busy period has no length at 1


class Declined(NamedTuple):
    """The job prefers to wait for a tier until a time."""

    tier: int
    offered: int
    until: float  # ∞: until it gets what it waits for
    expected: float | None  # when the tier opens; None: somebody says how long it waits, and nobody has looked
    slower: float = 1.0  # times as long as there it would run on what it was offered


class Waiting:
    """The rule in one plan. `said`: who has declined so far, in the order of the plan. `lasting`: nobody is taken off
    the GPUs it was given."""

    def __init__(self, rule: Waits, forecast: Forecast, said: Sequence[tuple[ActiveJob, Declined]], *,
                 lasting: bool) -> None:  # fmt: skip
        self.rule, self.forecast, self.said, self.lasting = rule, forecast, said, lasting
        self.now, self.gpus = forecast.now, forecast.tiers.gpus

    @cached_property
    def load(self) -> float:
        """ρ: what jobs bring, if all of them run near, over what the cluster can do."""
        return self.forecast.memory.rates(self.now)[1] / self.gpus

    @cached_property
    def pressure(self) -> float:
        """K/G: by how much the sum of all completion times grows with a GPU-second that is lost."""
        memory = self.forecast.memory
        waiting = max(0, len(self.forecast.view.waiting) - 1)
        if not self.lasting:
            return waiting / self.gpus
        coming = memory.rates(self.now)[0] * memory.backlog / self.gpus / (1.0 - min(self.load, FULL))
        return (waiting + coming) / self.gpus

    def rather(self, job: ActiveJob, placement: Placement, nearest: int, room: int) -> Declined | None:
        """What the job waits for instead of this placement at tier `room`, if there is such a thing at a tier from
        `nearest` on."""
        if nearest >= room:
            return None
        if job.demand.where is not None and job.demand.wait is not None:
            return self._as_said(job, job.demand.wait, nearest, room)
        if isinstance(self.rule, float):
            return self._as_said(job, self.rule, nearest, room)
        if self.rule == "never":
            return None
        if self.rule == "always":
            return Declined(nearest, room, math.inf, self._expected(job, nearest))
        return self._by_value(job, placement, nearest, room) or self._overloads(job, placement, nearest, room)

    def _as_said(self, job: ActiveJob, wait: float, nearest: int, room: int) -> Declined | None:
        """Its owner or an option says for how long, whatever it is worth."""
        until = job.last_change + wait
        return Declined(nearest, room, until, None) if self.now < until else None

    def _by_value(self, job: ActiveJob, placement: Placement, nearest: int, room: int) -> Declined | None:
        here = self.forecast.run_time(job, placement)
        best: Declined | None = None
        gain = 0.0
        for tier in range(nearest, room):
            there = self.forecast.run_time_at(job, tier)
            saving = (1.0 + job.gpus * self.pressure) * (here - there)
            expected = self._expected(job, tier)
            until = job.last_change + saving
            if until > self.now and expected - self.now < saving and saving - (expected - self.now) > gain:
                gain = saving - (expected - self.now)
                best = Declined(tier, room, until, expected, here / there if there > 0 else 1.0)
        return best

    def _overloads(self, job: ActiveJob, placement: Placement, nearest: int, room: int) -> Declined | None:
        """It is more than 1/ρ times as slow here. Until: when nobody else comes, the load is less by then."""
        near = self.forecast.run_time_at(job, nearest)
        slower = self.forecast.run_time(job, placement) / near if near > 0 else 1.0
        if not self.lasting or slower <= 1.0 or slower * self.load <= 1.0:
            return None
        memory = self.forecast.memory
        until = memory.first_came + slower * memory.offered / self.gpus
        return Declined(nearest, room, until, self._expected(job, nearest), slower) if until > self.now else None

    def _expected(self, job: ActiveJob, tier: int) -> float:
        ahead = sum(1 for _, said in self.said if said.tier == tier)
        return self.forecast.opening(job.demand, tier, ahead)
