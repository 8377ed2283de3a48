"""The back-test: what the replay says of each job beside what happened to it, in all and by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np

from dally.core.records import dataclass
from dally.experiments.twin.history import History, Recorded, partition_of
from dally.experiments.twin.replaying import Lives, Replay, recorded_lives

BLOCKS = 10  # stretches of the window by which the model's error is judged
SIZES = ((1, "1 GPU"), (2, "2"), (4, "3–4"), (8, "5–8"), (16, "9–16"), (64, "17–64"), (math.inf, "65 and more"))
FEW = 20  # jobs below which a group says nothing
MOST_USERS = 15  # and accounts


@dataclass(frozen=True, slots=True)
class Held:
    """Some jobs: the record's average, the replay's, and how far single jobs are off."""

    name: str
    jobs: int
    actual_wait: float
    simulated_wait: float
    actual_jct: float
    simulated_jct: float
    wait_error: float  # mean of |simulated − actual| over the jobs
    jct_error: float

    @property
    def wait_bias(self) -> float:
        """Seconds by which the replay's average wait is too long."""
        return self.simulated_wait - self.actual_wait

    @property
    def jct_bias(self) -> float:
        return self.simulated_jct - self.actual_jct


@dataclass(frozen=True, slots=True)
class Spread:
    """By how much the model's averages are off: bias, and what is left to chance from block to block."""

    bias: float  # seconds; above 0: the model is too slow
    chance: float  # two standard errors of the mean over blocks of time

    @property
    def most(self) -> float:
        return abs(self.bias) + self.chance


@dataclass(frozen=True, slots=True)
class BackTest:
    """`whole` first; groups by what they are grouped by."""

    policy: str
    jobs: tuple[Recorded, ...]  # those that both the record and the replay saw to their end
    actual: Lives
    simulated: Lives
    whole: Held
    groups: dict[str, tuple[Held, ...]]
    wait: Spread
    jct: Spread
    in_order: float | None  # rank correlation of single jobs' waits
    replay: Replay
    unfinished: int

    @property
    def partitions_in_order(self) -> bool:
        """Whether the partitions' average waits come in the same order; those closer than a tenth count as level."""
        found = [each for each in self.groups["partition"] if each.jobs >= FEW]
        for one in found:
            for other in found:
                if one.actual_wait > 1.1 * other.actual_wait and one.simulated_wait < other.simulated_wait:
                    return False
        return True


def back_test(history: History, replay: Replay, jobs: Sequence[Recorded]) -> BackTest:
    done = ~np.isnan(replay.lives.jct)
    kept = tuple(each for each, there in zip(jobs, done, strict=True) if there)
    actual, simulated = recorded_lives(kept), replay.lives.of(done)
    errors = simulated.wait - actual.wait, simulated.jct - actual.jct
    held = Held("all jobs", *_figures(actual, simulated, np.ones(len(kept), dtype=bool)))
    return BackTest(replay.policy, kept, actual, simulated, held, grouped(history, kept, actual, simulated),
                    spread(errors[0]), spread(errors[1]), _rank_correlation(actual.wait, simulated.wait), replay,
                    int((~done).sum()))  # fmt: skip


def size_of(gpus: int) -> str:
    return next(name for most, name in SIZES if gpus <= most)


def _figures(actual: Lives, simulated: Lives,
             chosen: np.ndarray) -> tuple[int, float, float, float, float, float, float]:  # fmt: skip
    real, made = actual.of(chosen), simulated.of(chosen)
    return (int(chosen.sum()), float(real.wait.mean()), float(made.wait.mean()), float(real.jct.mean()),
            float(made.jct.mean()), float(np.abs(made.wait - real.wait).mean()),
            float(np.abs(made.jct - real.jct).mean()))  # fmt: skip


def spread(errors: np.ndarray) -> Spread:
    """Neighbours in time share their queue and their fate: blocks of them are what may be counted as independent."""
    blocks = [float(part.mean()) for part in np.array_split(errors, min(BLOCKS, max(1, len(errors) // 5))) if len(part)]
    chance = 2.0 * float(np.std(blocks, ddof=1)) / math.sqrt(len(blocks)) if len(blocks) > 1 else math.inf
    return Spread(float(errors.mean()), chance)


def grouped(history: History, jobs: Sequence[Recorded], actual: Lives, simulated: Lives) -> dict[str, tuple[Held, ...]]:
    """Both sides' averages by partition, size, user, account and hour."""
    by: dict[str, Callable[[Recorded], str | None]] = {
        "partition": lambda each: partition_of(each.job),
        "size": lambda each: size_of(each.job.gpus),
        "user": lambda each: each.job.user,
        "account": lambda each: each.job.tenant if each.job.tenant != each.job.partition else None,
        "hour": _hour(history),
    }
    found = {}
    for what, name_of in by.items():
        names = np.array([name_of(each) or "" for each in jobs], dtype=object)
        known = sorted({str(name) for name in names if name}, key=_order(what))
        if what in ("user", "account"):
            counts = {name: int((names == name).sum()) for name in known}
            known = sorted(known, key=lambda name: (-counts[name], name))[:MOST_USERS]
        found[what] = tuple(Held(name, *_figures(actual, simulated, names == name)) for name in known)
    return found


def _order(what: str) -> Callable[[str], tuple[int, str]]:
    sizes = [name for _, name in SIZES]
    return lambda name: (sizes.index(name) if what == "size" else 0, name)


def _hour(history: History) -> Callable[[Recorded], str | None]:
    """Of the day, in threes, by the clock of the record; None where it has none."""
    if history.trace.origin is None:
        return lambda each: None
    try:
        zero = datetime.fromisoformat(history.trace.origin)
    except ValueError:
        return lambda each: None
    offset = zero.hour * 3600 + zero.minute * 60 + zero.second

    def name(each: Recorded) -> str:
        begin = int((each.job.submit_time + offset) % 86400 // 10800) * 3
        return f"{begin:02}–{begin + 3:02} h"

    return name


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    """Spearman's, ties at their mean rank; None where one side is all the same."""
    if len(one) < 2:
        return None
    a, b = _ranks(one), _ranks(other)
    if not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2.0)[place], dtype=np.float64)
