"""Which policy the recorded scheduler was most like: tried on a part of the window, shown on the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.experiments.twin.backtest import back_test, size_of
from dally.experiments.twin.choosing import ENOUGH as ENOUGH_CHOICES
from dally.experiments.twin.choosing import RULES, Choices, choices
from dally.experiments.twin.history import History, Recorded, partition_of
from dally.experiments.twin.ordering import ENOUGH as ENOUGH_PAIRS
from dally.experiments.twin.ordering import Order, likeliest, orders
from dally.experiments.twin.replaying import Lives, recorded_lives, replays
from dally.experiments.twin.verdict import CLOSE, grade_of
from dally.report.wording import share_text
from dally.simulator.pool import Report
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import Failure

FITTED_ON = (0.4, 0.5, 0.6)  # of the window's jobs, the first share whose waits tell something
TELLING = 0.3  # … as long as that, against those of all
LITTLE = 0.01  # of their completion times: shorter waits tell nothing
AFTER = 0.25  # as many more are simulated behind them, so that the last of them have somebody to wait with
MOST_JOBS = 1500  # that a candidate is tried on
WARM = 300  # jobs before them that are simulated too, …
MOST_BEFORE = 3000  # … and before these as many that run when they ran, so that usage is what it was
SHORT = 400  # jobs that many candidates are tried on, where there are more than twice as many, …
GO_ON = 2  # … and so many of those candidates on all
EASY = "bf_job_part_count_reserve=1"
BOOK = "textbook=easy"
MOST_ORDERS = 4  # that are replayed, of those the record may be of
# Who may pass whom, around the nearest so far; and for those who have no order but that of submission.
PASSING = (
    ("textbook=easy",),
    ("textbook=conservative",),
    ("textbook=any",),
    ("textbook=no",),
    ("textbook=no", EASY),
    ("textbook=no", EASY, "one_by_one=true"),
    ("textbook=no", "backfill=false"),
)
PLAIN = ("fifo", "fifo[backfill=any]", "fifo[backfill=easy]")
NEAR = 0.1  # misfit of a replay that need not be better


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and how far off it was on that part."""

    policy: str
    off: float  # `misfit`, a multiple of the recorded average wait
    wait: float  # its average wait there, seconds
    jobs: int  # that it was tried on: fewer where it was not among the best of these
    close: bool = False  # whether the verdict on these jobs alone would be so


@dataclass(frozen=True, slots=True)
class Read:
    """What the decisions of the record say by themselves."""

    pairs: int  # of who started and who waited and could have
    order: Order | None  # the likeliest; None: it was not looked for
    nodes: Choices

    @property
    def said(self) -> str:
        told = []
        if self.order is not None and self.pairs >= ENOUGH_PAIRS:
            order = f"[{self.order.options}]" if self.order.options else "of submission"
            told.append(f"of {self.pairs:,} pairs of a job that started and one that waited and would have fitted, "
                        f"{share_text(self.order.agrees)} agree with the order {order}")  # fmt: skip
        if self.nodes.seen >= ENOUGH_CHOICES:
            best = self.nodes.ranked[0]
            told.append(f"of {self.nodes.seen:,} starts with a choice of nodes, topology={best} takes the same in "
                        f"{share_text(self.nodes.agreed[best] / self.nodes.seen)}")  # fmt: skip
        return "; ".join(told)


@dataclass(frozen=True, slots=True)
class Fit:
    chosen: str
    tried: tuple[Tried, ...]  # the nearest first
    failures: tuple[Failure, ...]
    fitted_on: int  # jobs
    actual_wait: float  # the record's average on them
    rest: tuple[Recorded, ...]  # jobs whose waits had no part in it
    read: Read


class Search:
    """Replays of candidates on a part of the measured jobs, the nearest first."""

    def __init__(self, history: History, scenario: Scenario, workers: int | None, report: Report | None) -> None:
        self.history, self.scenario, self.workers, self.report = history, scenario, workers, report
        jobs = history.measured
        at, self.count = _stretch(jobs)
        if self.count < 1:
            raise UserError(f"{len(jobs)} measured jobs are too few to find out which policy was at work; name it "
                            "(--present)")  # fmt: skip
        self.following, self.rest = jobs[at:], (*jobs[:at], *jobs[at + self.count :])
        self.first = self.following[: self.count]
        before = sorted(each.job.submit_time for each in history.ran.values()
                        if history.begin <= each.job.submit_time < self.first[0].job.submit_time)  # fmt: skip
        if len(before) > WARM:
            self.history = history.resumed(before[-WARM], MOST_BEFORE)
        self.telling = _waits(self.first) > LITTLE  # else everybody started at once, whatever the policy
        self.tried: list[Tried] = []
        self.failures: list[Failure] = []
        self._seen: set[str] = set()

    @property
    def best(self) -> str:
        return self.tried[0].policy

    @property
    def done(self) -> bool:
        return bool(self.tried) and self.telling and self.tried[0].off <= NEAR

    def attempt(self, policies: Sequence[str | None], *, all_on_all: bool = False) -> None:
        """Those that were not tried yet; None: one that cannot be. Of many, the best on few jobs go on to all."""
        new = [each for each in dict.fromkeys(policies) if each is not None and each not in self._seen]
        self._seen.update(new)
        if len(new) > GO_ON and self.count > 2 * SHORT and not all_on_all:
            short = sorted(self._tried_on(new, SHORT), key=lambda each: each.off)
            self.tried += short[GO_ON:]
            new = [each.policy for each in short[:GO_ON]]
        if new:
            self.tried += self._tried_on(new, self.count)
        self.tried.sort(key=lambda each: (-each.jobs, each.off))

    def _tried_on(self, policies: Sequence[str], count: int) -> list[Tried]:
        """The first so many jobs."""
        jobs, behind = self.first[:count], count + int(count * AFTER)
        until = self.following[min(len(self.following) - 1, behind)].job.submit_time
        found, failed = replays(self.history, self.scenario, policies, jobs, until=until, workers=self.workers,
                                report=self.report)  # fmt: skip
        self._seen.update(each.policy for each in found)
        self.failures += failed
        return [Tried(each.policy, misfit(jobs, each.lives), each.lives.averages[0], count,
                      not each.unfinished and grade_of(back_test(self.history, each, jobs)) == CLOSE)
                for each in found]  # fmt: skip

    def around(self, *changes: Sequence[str]) -> None:
        """The nearest so far with each of these changes."""
        if not self.done:
            self.attempt([with_options(self.best, change) for change in changes])

    def found(self, read: Read) -> Fit:
        actual = float(recorded_lives(self.first).wait.mean())
        return Fit(self.best, tuple(self.tried), tuple(self.failures), self.count, actual, self.rest, read)


def fit(history: History, scenario: Scenario, configured: str | None = None, *, workers: int | None = None,
        report: Report | None = None) -> Fit:  # fmt: skip
    """In which order jobs were looked at, and which nodes they got, is read off the decisions of the record; who might
    pass whom is tried by replays of a part of it, and the one that is least off is taken. `configured`: the policy
    that a slurm.conf describes."""
    topology = scenario.cluster
    assert isinstance(topology, Topology)
    search = Search(history, scenario, workers, report)
    taken = choices(history, topology)
    nodes = f"topology={taken.ranked[0]}"
    own = [] if configured is None else [configured, with_options(configured, (BOOK, nodes))]
    search.attempt(own, all_on_all=True)  # the configured one is what others are held against
    if is_long(history.measured) and search.tried and search.tried[0].close:
        return search.found(Read(0, None, taken))  # what is configured, at Slurm's pace or at every event, explains it
    likely, seen = orders(history, report=report)
    made = [with_options("slurm", [BOOK, *filter(None, order.options.split(",")), nodes])
            for order in likeliest(likely, MOST_ORDERS)]  # fmt: skip
    search.attempt(made[:1], all_on_all=True)
    if not search.done:
        own = [] if configured is None else [with_options(configured, each) for each in (
            (nodes,), ("textbook=conservative", nodes), ("one_by_one=true", nodes))]  # fmt: skip
        search.attempt([*own, *made, *PLAIN])
    if not search.tried:
        raise search.failures[0].error
    for _ in range(2):
        before = search.best
        if search.done or not before.startswith("slurm"):
            break
        search.around(*PASSING)
        if not taken.plain:
            search.around(*([f"topology={rule}"] for rule in RULES))
        if search.best == before:
            break
    return search.found(Read(seen, likely[0], taken))


def is_long(jobs: Sequence[Recorded]) -> bool:
    """Whether a stretch of them stands for all."""
    return int(len(jobs) * FITTED_ON[0]) > MOST_JOBS


def _stretch(jobs: Sequence[Recorded]) -> tuple[int, int]:
    """Where it begins and how many jobs it has: the first of them, so many that some waited, if any did at all; of a
    long record, the jobs in a row whose waits are nearest to those of all: where queues are much longer, all replays
    drift apart, and where they are much shorter, all are right."""
    whole = _waits(jobs)
    for part in FITTED_ON:
        count = int(len(jobs) * part)
        if count > MOST_JOBS:
            begins = range(0, int(len(jobs) * FITTED_ON[-1]) - MOST_JOBS + 1, MOST_JOBS // 3)
            found = {begin: _waits(jobs[begin : begin + MOST_JOBS]) for begin in begins}
            return min(found, key=lambda begin: abs(found[begin] - whole)), MOST_JOBS
        if _waits(jobs[:count]) >= TELLING * whole:
            break
    return 0, count


def _waits(jobs: Sequence[Recorded]) -> float:
    """As a part of the completion times."""
    lives = sum(each.jct for each in jobs)
    return sum(each.wait for each in jobs) / lives if lives else 0.0


def with_options(policy: str, options: Sequence[str]) -> str | None:
    """`slurm[a=1]` and `b=2` → `slurm[a=1,b=2]`, in the policy's own order of options; those it has are replaced. None
    where that is no policy, or where an option would do nothing beside the others."""
    from dally.simulator.experiment import as_policy

    name, _, inside = policy.partition("[")
    merged = {part.partition("=")[0]: part for part in inside.removesuffix("]").split(",") if part}
    merged |= {part.partition("=")[0]: part for part in options}
    if merged.get("textbook", "textbook=no") != "textbook=no":  # it says itself what is planned, and how
        for beside in ("bf_job_part_count_reserve", "one_by_one", "whole_nodes", "backfill"):
            merged.pop(beside, None)
    try:
        return as_policy(f"{name}[{','.join(merged.values())}]" if merged else name).name
    except UserError:
        return None


def misfit(jobs: Sequence[Recorded], simulated: Lives) -> float:
    """By how much average waits are off, in all, by partition and size, and one by one, over the recorded average: only
    the policy that was at work meets single jobs. Who never ended counts as the recorded average too late."""
    actual = recorded_lives(jobs)
    usual = max(float(actual.wait.mean()), 0.02 * float(actual.jct.mean()), 1e-9)
    errors = np.where(np.isnan(simulated.wait), usual, simulated.wait - actual.wait)
    names = [f"{partition_of(each.job)} {size_of(each.job.gpus)}" for each in jobs]
    sums: dict[str, float] = {}
    for name, error in zip(names, errors, strict=True):
        sums[name] = sums.get(name, 0.0) + float(error)
    by_group = sum(map(abs, sums.values())) / len(jobs)
    return (abs(float(errors.mean())) + by_group + float(np.abs(errors).mean())) / usual
