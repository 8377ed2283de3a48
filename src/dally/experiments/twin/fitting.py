"""Which policy the recorded scheduler was most like: tried on the first part of the window, shown on the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dally.core.errors import UserError
from dally.experiments.twin.backtest import size_of
from dally.experiments.twin.history import History, Recorded, partition_of
from dally.experiments.twin.replaying import Lives, recorded_lives, replays
from dally.simulator.pool import Report
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import Failure

FITTED_ON = 0.4  # of the window's jobs
AFTER = 0.1  # … and as many more are simulated behind them, so that the last of them have somebody to wait with
MOST_JOBS = 4000  # that a candidate is tried on
EASY = "bf_job_part_count_reserve=1"
FAIR = "priority=multifactor,weight_fairshare=10000"

CANDIDATES = (
    "fifo",
    "fifo[backfill=easy]",
    "fifo[backfill=conservative]",
    "fifo[backfill=any]",
    "slurm",
    f"slurm[{EASY}]",
    f"slurm[{FAIR}]",
    f"slurm[{EASY},{FAIR}]",
)
# What is tried further around the nearest, where that is a Slurm: one thing at a time, kept where it helps. Which nodes
# are taken first decides how many are left whole for large jobs, and how exactly starts are planned who may pass them:
# both matter as much as the order of the queue. They are tried twice over, since one may help only with the other.
ANY_SLURM = (("topology=order", "topology=flat", "one_by_one=true"),) * 2
FAIR_SLURM = (
    ("weight_age=1000", "weight_age=5000"),
    ("fair_tree=false",),
    ("decay_half_life=1d", "decay_half_life=2d", "decay_half_life=14d"),
)


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and how far off it was on the first part."""

    policy: str
    off: float  # `misfit`, a multiple of the recorded average wait
    wait: float  # its average wait there, seconds


@dataclass(frozen=True, slots=True)
class Fit:
    chosen: str
    tried: tuple[Tried, ...]  # the nearest first
    failures: tuple[Failure, ...]
    fitted_on: int  # jobs
    actual_wait: float  # the record's average on them
    rest: tuple[Recorded, ...]  # jobs that had no part in it


def fit(history: History, scenario: Scenario, candidates: Sequence[str], *, workers: int | None = None,
        report: Report | None = None) -> Fit:  # fmt: skip
    """Try the candidates on the first part of the measured jobs, then what is near the nearest; take the one that is
    least off."""
    jobs = history.measured
    count = min(int(len(jobs) * FITTED_ON), MOST_JOBS)
    if count < 1:
        raise UserError(f"{len(jobs)} measured jobs are too few to find out which policy was at work; name it "
                        "(--present)")  # fmt: skip
    first, rest = jobs[:count], jobs[count:]
    until = jobs[min(len(jobs) - 1, count + int(count * AFTER / FITTED_ON))].job.submit_time
    tried: list[Tried] = []
    failures: list[Failure] = []

    def attempt(policies: Sequence[str]) -> None:
        new = [each for each in policies if each not in {done.policy for done in tried}]
        if new:
            found, failed = replays(history, scenario, new, first, until=until, workers=workers, report=report)
            tried.extend(Tried(each.policy, misfit(first, each.lives), each.lives.averages[0]) for each in found)
            failures.extend(failed)
            tried.sort(key=lambda each: each.off)

    attempt(candidates)
    if not tried:
        raise failures[0].error
    if tried[0].policy.startswith("slurm"):
        for options in ANY_SLURM if FAIR not in tried[0].policy else ANY_SLURM + FAIR_SLURM:
            attempt([made for option in options if (made := with_option(tried[0].policy, option)) is not None])
    actual = float(recorded_lives(first).wait.mean())
    return Fit(tried[0].policy, tuple(tried), tuple(failures), count, actual, tuple(rest))


def with_option(policy: str, option: str) -> str | None:
    """`slurm[a=1]` and `b=2` → `slurm[a=1,b=2]`, in the policy's own order of options; an option it has is replaced.
    None where it would do nothing beside the others."""
    from dally.simulator.experiment import as_policy

    name, bracket, inside = policy.partition("[")
    kept = [part for part in inside.removesuffix("]").split(",") if part.partition("=")[0] != option.partition("=")[0]]
    try:
        return as_policy(f"{name}[{','.join([*(kept if bracket else ()), option])}]").name
    except UserError:
        return None


def misfit(jobs: Sequence[Recorded], simulated: Lives) -> float:
    """By how much average waits are off, in all and by partition and size, and half of what single ones are, over the
    recorded average. Single jobs count less because a queue makes much of small differences; who never ended counts as
    the recorded average too late."""
    actual = recorded_lives(jobs)
    usual = max(float(actual.wait.mean()), 0.02 * float(actual.jct.mean()), 1e-9)
    errors = np.where(np.isnan(simulated.wait), usual, simulated.wait - actual.wait)
    names = [f"{partition_of(each.job)} {size_of(each.job.gpus)}" for each in jobs]
    sums: dict[str, float] = {}
    for name, error in zip(names, errors, strict=True):
        sums[name] = sums.get(name, 0.0) + float(error)
    by_group = sum(map(abs, sums.values())) / len(jobs)
    return (abs(float(errors.mean())) + by_group + 0.5 * float(np.abs(errors).mean())) / usual
