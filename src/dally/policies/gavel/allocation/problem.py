"""What every Gavel objective is asked: the active jobs, the GPUs of each type, and the answer's form (section 3).

A column is a way to run: usually one per GPU type, and with placement sensitivity a second one per type, such as
"v100/unconsolidated". Several columns may draw on the GPUs of one type; `column_type` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dally.core.errors import UserError
from dally.core.records import dataclass

Row = tuple[str, ...]  # the ids of the jobs that run together: one, or two that share their GPUs
Fractions = tuple[float, ...]  # of time, one per column


@dataclass(frozen=True, slots=True)
class JobRow:
    """One active job as the objectives see it."""

    id: str
    gpus: int  # s_m, its gang
    throughput: tuple[float, ...]  # steps per second in each column, at its gang size; 0 = cannot run there
    steps_left: float = 1.0
    steps_total: float = 1.0
    elapsed: float = 0.0  # seconds since it arrived
    arrived: float = 0.0  # orders jobs that are served first come, first served; ties by place in the list
    weight: float = 1.0  # w_m; larger deserves more
    entity: str | None = None  # who owns it, for hierarchical fairness
    slo: float | None = None  # seconds left to its deadline
    isolated_so_far: float = 0.0  # seconds its finished steps would have taken alone on 1/M of the cluster

    def __post_init__(self) -> None:
        if self.throughput and not (min(self.throughput) >= 0 and sum(self.throughput) < float("inf")):
            raise UserError(f"allocation: job {self.id!r} has a throughput that is negative or not finite")
        if self.gpus < 1:
            raise UserError(f"allocation: job {self.id!r} asks for {self.gpus} GPUs")
        if not 0 < self.weight < float("inf"):
            raise UserError(f"allocation: job {self.id!r} needs a positive weight, not {self.weight:g}")
        if not 0 <= self.steps_left < float("inf"):
            raise UserError(f"allocation: job {self.id!r} has {self.steps_left:g} steps left")
        if not (0 <= self.elapsed < float("inf") and 0 <= self.isolated_so_far < float("inf")):
            raise UserError(f"allocation: job {self.id!r} has spent a time that is negative or not finite")


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two jobs of equal gang size on the same GPUs: the steps per second of each, by column (section 3.1)."""

    first: int  # positions in Problem.jobs
    second: int
    throughput_first: tuple[float, ...]
    throughput_second: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs, columns, GPUs. Checked when made: a wrong length or an impossible number ends in one sentence."""

    jobs: tuple[JobRow, ...]
    types: tuple[str, ...]  # names of the columns
    workers: tuple[int, ...]  # GPUs of each type
    column_type: tuple[int, ...] = ()  # the type each column draws on; empty = column j is type j
    prices: tuple[float, ...] = ()  # per GPU of each type and unit of time; empty = 1
    pairs: tuple[PairRow, ...] = ()
    entity_weights: Mapping[str, float] | None = None  # an entity that is not named here weighs 1
    share: float = 1.0  # of every type's GPUs that this problem may use (POP); gangs still see the whole pool

    def __post_init__(self) -> None:
        if not self.column_type:
            object.__setattr__(self, "column_type", tuple(range(len(self.types))))
        if not self.prices:
            object.__setattr__(self, "prices", (1.0,) * len(self.workers))
        self._check_columns()
        self._check_jobs()
        for weight in (self.entity_weights or {}).values():
            if not weight > 0:
                raise UserError(f"allocation: the weight of an entity must be positive, not {weight:g}")
        if not 0 < self.share <= 1:
            raise UserError(f"allocation: the share of the cluster must be in (0, 1], not {self.share:g}")
        for pair in self.pairs:
            self._check_pair(pair)

    def _check_jobs(self) -> None:
        columns = len(self.types)
        for job in self.jobs:
            if len(job.throughput) != columns:
                raise UserError(
                    f"allocation: job {job.id!r} has {len(job.throughput)} throughputs for {columns} columns"
                )
        if len({job.id for job in self.jobs}) < len(self.jobs):
            ids = [job.id for job in self.jobs]
            twice = next(name for place, name in enumerate(ids) if name in ids[:place])
            raise UserError(f"allocation: job {twice!r} appears twice")

    def _check_columns(self) -> None:
        if len(self.column_type) != len(self.types):
            raise UserError(f"allocation: {len(self.types)} columns, but a type for {len(self.column_type)}")
        if any(not 0 <= kind < len(self.workers) for kind in self.column_type):
            raise UserError(f"allocation: a column names a GPU type outside 0..{len(self.workers) - 1}")
        if any(count < 0 for count in self.workers):
            raise UserError("allocation: the number of GPUs of a type cannot be negative")
        if len(self.prices) != len(self.workers) or any(not price > 0 for price in self.prices):
            raise UserError("allocation: every GPU type needs one positive price")

    def _check_pair(self, pair: PairRow) -> None:
        count, columns = len(self.jobs), len(self.types)
        if not (0 <= pair.first < count and 0 <= pair.second < count) or pair.first == pair.second:
            raise UserError(f"allocation: the pair ({pair.first}, {pair.second}) does not name two of {count} jobs")
        first, second = self.jobs[pair.first], self.jobs[pair.second]
        if first.gpus != second.gpus:
            raise UserError(f"allocation: jobs {first.id!r} and {second.id!r} differ in size and cannot share GPUs")
        if len(pair.throughput_first) != columns or len(pair.throughput_second) != columns:
            raise UserError(f"allocation: the pair {first.id!r}, {second.id!r} needs {columns} throughputs each")
        if not all(0 <= rate < float("inf") for rate in pair.throughput_first + pair.throughput_second):
            raise UserError(f"allocation: the pair {first.id!r}, {second.id!r} has a throughput that is not a rate")

    def agnostic(self) -> Problem:
        """The same problem for a scheduler blind to GPU types: one rate per job wherever it runs, no pairs.

        The rate is the job's fastest one. Fairness, FIFO and the sums over normalised throughputs are the same as
        with the paper's T = 1; makespan and finish-time fairness compare steps with rates, so a job's own scale has
        to stay (the released code takes the V100's rate there for the same reason).
        """
        jobs = tuple(
            replace(job, throughput=tuple(max(job.throughput) if rate > 0 else 0.0 for rate in job.throughput))
            for job in self.jobs
        )
        return replace(self, jobs=jobs, pairs=())


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who runs where for which fraction of time. Every job has a row of its own, of zeros if it cannot run."""

    fractions: Mapping[Row, Fractions]
    objective: float
    notes: tuple[str, ...] = ()  # what the objective could not do: jobs that fit nowhere, SLOs out of reach

    def of(self, job: str) -> Fractions:
        """What the job runs alone."""
        return self.fractions[(job,)]
