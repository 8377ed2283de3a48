"""What would have been: other policies, limits, fabrics and racks on the same history, against the replayed present."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.experiments.twin.backtest import BackTest, Held, Spread, grouped, spread
from dally.experiments.twin.history import History
from dally.experiments.twin.limits import LimitChange
from dally.experiments.twin.replaying import Lives, Replay, replays, run_replays
from dally.experiments.twin.site import Site, with_rack
from dally.simulator.pool import Report
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import Failure

FABRIC = "fabric"  # how a change of links begins


@dataclass(frozen=True, slots=True)
class Difference:
    """Seconds against the replayed present, below 0 where it is less; and the range over the model's error."""

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the range has one sign."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`change`: what else is other than in the present; empty where only the policy is."""

    policy: str
    change: str
    replay: Replay
    avg_wait: float
    avg_jct: float
    wait: Difference
    jct: Difference
    groups: dict[str, tuple[Held, ...]]  # "actual" is the replayed present there

    @property
    def title(self) -> str:
        return f"present policy, {self.change}" if self.change else self.policy


def compared(history: History, found: Replay, base: Lives, test: BackTest, change: str = "") -> WhatIf:
    """Over the jobs that both see to their end."""
    mine = found.lives
    both = ~np.isnan(mine.jct) & ~np.isnan(base.jct)
    ours, theirs = mine.of(both), base.of(both)
    return WhatIf(found.policy, change, found, *ours.averages,
                  _difference(ours.wait - theirs.wait, test.wait), _difference(ours.jct - theirs.jct, test.jct),
                  grouped(history, [each for each, there in zip(test.jobs, both, strict=True) if there], base.of(both),
                          mine.of(both)))  # fmt: skip


def _difference(single: np.ndarray, error: Spread) -> Difference:
    """Of single jobs, with the model's bias, its chance, and that of the difference itself: a replay that is right to
    the second does not make one window of time all that could have been."""
    own = spread(single)
    off = abs(error.bias) + math.hypot(error.chance, own.chance)
    return Difference(own.bias, own.bias - off, own.bias + off)


def policies_instead(history: History, scenario: Scenario, policies: Sequence[str], test: BackTest, *,
                     workers: int | None = None,
                     report: Report | None = None) -> tuple[list[WhatIf], list[Failure]]:  # fmt: skip
    """The same cluster under other policies."""
    found, failed = replays(history, scenario, policies, test.jobs, workers=workers, report=report)
    return [compared(history, each, test.simulated, test) for each in found], failed


def limits_instead(history: History, scenario: Scenario, changes: Sequence[LimitChange], present: str, test: BackTest,
                   *, workers: int | None = None,
                   report: Report | None = None) -> tuple[list[WhatIf], list[Failure]]:  # fmt: skip
    """The present policy where users had given other time limits."""
    found, failed = [], []
    for change in changes:
        other, said = change.changed(history)
        made, wrong = replays(other, scenario, [present], test.jobs, workers=workers, report=report)
        failed += wrong
        found += [compared(history, each, test.simulated, test, said) for each in made]
    return found, failed


def racks_more(history: History, scenario: Scenario, here: Topology, racks: Sequence[str], present: str,
               test: BackTest, *, workers: int | None = None,
               report: Report | None = None) -> tuple[list[WhatIf], list[Failure]]:  # fmt: skip
    """The present policy on the same cluster with one rack more, for each of these racks a copy of it."""
    found, failed = [], []
    for rack in racks:
        larger = scenario.having(cluster=with_rack(here, rack))
        made, wrong = replays(history, larger, [present], test.jobs, workers=workers, report=report)
        failed += wrong
        found += [compared(history, each, test.simulated, test, f"one {rack} more") for each in made]
    return found, failed


def fabrics_instead(history: History, scenario: Scenario, site: Site, fabrics: Sequence[str], present: str,
                    test: BackTest, *, workers: int | None = None,
                    report: Report | None = None) -> tuple[list[WhatIf], list[Failure]]:  # fmt: skip
    """The present policy on other links. Recorded run times are those of the recorded nodes on the present links; both
    sides of the difference are replayed with the cost of distance, which the back-test may be without."""
    network = scenario.network if scenario.network not in (None, "ideal") else "analytic"
    measured = scenario.having(network=network, trace=history.replayed(), duration_means="as-placed")
    here = measured.prepare()
    base, failed = run_replays(here, [present], history, test.jobs, workers=1, report=report)
    if failed:
        return [], failed
    found = []
    for fabric in fabrics:
        other = measured.having(cluster=site.topology(fabric)[0]).prepare()
        made, wrong = run_replays(replace(other, traced_on=here.topology), [present], history, test.jobs,
                                  workers=workers, report=report)  # fmt: skip
        failed += wrong
        found += [compared(history, each, base[0].lives, test, f"{FABRIC} {fabric}") for each in made]
    return found, failed
