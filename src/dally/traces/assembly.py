"""Assembling a trace from dirty rows: counts what was dropped or repaired, orders, names, and fills gaps.

Every reader hands its rows to one `Assembly`, so the rules for duplicate ids, fractional GPUs, jobs that were
cancelled before they started and the origin of time are the same for all formats and stated once, here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from statistics import median
from typing import NoReturn

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending, Truth, made
from dally.core.records import dataclass
from dally.traces.source import Source
from dally.traces.times import iso
from dally.traces.trace import Problem, Trace

# The sentences under which rows are counted. They are part of the interface: reports and tests quote them.
NO_GPUS = "no GPUs asked for"
NO_GPU_COUNT = "GPU count missing or not a number"
TOO_MANY = "more GPUs than a billion"
NO_SUBMIT = "submission time missing or unreadable"
NO_DURATION = "run time missing or unreadable"
BEYOND = "submission or run time of thousands of years"
NO_START = "never started, and no time of cancellation known"
NO_END = "no end time"
REVERSED = "ended before it started"
BEFORE_SUBMIT = "started before it was submitted: submission moved to the start"
TWICE = "the same job twice"
SHORT_ROW = "row with too few fields"
SHARE = "a share of a GPU: given a whole one"
ROUNDED_UP = "a fractional number of GPUs: rounded up"
SAME_ID = "job id used before: a number added"
STILL_RUNNING = "still running when the trace ended: run time cut there"
INSTANT = "ran for no time: given one second"
GUESSED_LIMIT = "cancelled before it started, and no job in the file ran: its time limit stands for its run time"
GUESSED_MEDIAN = "cancelled before it started: the median run time of its GPU demand stands for its own"
NEGATIVE_SUBMIT = "submitted before time 0: moved to 0"


_MOST_GPUS = 1e9
_LONGEST = 1e11  # seconds: what is longer is no time, whatever the field is called
_MOST_STEPS = 1e15


@dataclass(slots=True)
class Row:
    """One job as a reader found it. `duration` None without `steps` means: cancelled before it started."""

    id: str
    submit: float
    gpus: int
    duration: float | None
    line: int | None = None
    steps: float | None = None
    gpu_fraction: float = 1.0
    gpu_type: str | None = None
    model: str | None = None
    user: str | None = None
    tenant: str | None = None
    priority: int = 0
    declared_duration: float | None = None
    declared_steps: float | None = None
    deadline: float | None = None
    slo: float | None = None  # a deadline as a multiple of the run time
    ending: Ending = Ending.COMPLETED
    cancel_at: float | None = None
    failures: tuple[float, ...] = ()
    ran_on: tuple[tuple[str, int], ...] = ()
    means: DurationMeans = DurationMeans.BEST_PLACEMENT
    name: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: int | None = None
    among: str | None = None
    exclusive: bool = False
    limit: float | None = None
    start: float | None = None  # when it really started
    submitted: float | None = None  # where `submit` is when it could have started
    after: str | None = None
    throttle: int | None = None
    reservation: str | None = None


class Assembly:
    """Collects the rows of one file and the account of what reading it took."""

    def __init__(self, source: Source, format: str) -> None:
        self.source, self.format = source, format
        self.rows: list[Row] = []
        self.problems: list[Problem] = []
        self.dropped: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self.notes: list[str] = []
        self.zoned = False  # whether the file's times name their zone

    def drop(self, reason: str, line: int | None = None, job: str | None = None) -> None:
        self.dropped[reason] += 1
        self.problems.append(Problem(line, job, reason, True))

    def repair(self, reason: str, line: int | None = None, job: str | None = None) -> None:
        self.repaired[reason] += 1
        self.problems.append(Problem(line, job, reason, False))

    def gpus(self, asked: float | None, line: int | None, job: str | None) -> tuple[int, float] | None:
        """Whole GPUs and the share of one asked for; None when the row was dropped."""
        if asked is None:
            self.drop(NO_GPU_COUNT, line, job)
            return None
        if asked <= 0:
            self.drop(NO_GPUS, line, job)
            return None
        if asked > _MOST_GPUS:
            self.drop(TOO_MANY, line, job)
            return None
        if asked < 1:
            self.repair(SHARE, line, job)
            return 1, asked
        whole = math.ceil(asked - 1e-9)
        if whole - asked > 1e-9:
            self.repair(ROUNDED_UP, line, job)
        return whole, 1.0

    def ran_for(self, start: float, end: float | None, stated: float | None, line: int | None,
                job: str | None) -> float | None:  # fmt: skip
        """Run time of a job that did start; the stated one where the times do not give it. None: dropped."""
        if end is None:
            if stated is None or stated < 0:
                self.drop(NO_END, line, job)
                return None
            return stated
        if end < start:
            if stated is None or stated <= 0:
                self.drop(REVERSED, line, job)
                return None
            self.repair(f"{REVERSED}: its stated run time is used", line, job)
            return stated
        return end - start

    def finish(self, *, from_first: bool, wall_clock: bool = False, origin: str | None = None) -> Trace:
        """The trace. `from_first`: count time from the first submission; otherwise keep the file's numbers."""
        self._leave_out_beyond()
        self._name_apart()
        self._fill_never_started()
        if not self.rows:
            self._no_job_left()
        if not from_first:
            for row in self.rows:
                if row.submit < 0:
                    self.repair(NEGATIVE_SUBMIT, row.line, row.id)
                    row.submit = 0.0
        self.rows.sort(key=lambda row: row.submit)  # stable: file order among equals
        zero = self.rows[0].submit if from_first else 0.0
        if wall_clock:
            origin = iso(zero, self.zoned)
        jobs, truths = [], []
        self.rows.reverse()
        while self.rows:  # each is given up as it becomes a job: a long trace is not held twice
            row = self.rows.pop()
            jobs.append(made(row.id, row.submit - zero, row.gpus, row.gpu_type, row.model, row.user, row.tenant,
                            row.priority, row.declared_duration, row.declared_steps,
                            None if row.deadline is None else row.deadline - zero,
                            row.gpu_fraction, slo=row.slo, name=row.name, partition=row.partition, qos=row.qos,
                            nodes=row.nodes, among=row.among, exclusive=row.exclusive, limit=row.limit,
                            after=row.after, throttle=row.throttle, reservation=row.reservation))  # fmt: skip
            truths.append(Truth(row.duration, row.steps, row.ending,
                                None if row.cancel_at is None else row.cancel_at - zero,
                                row.failures, row.ran_on, row.means,
                                None if row.start is None else row.start - zero,
                                None if row.submitted is None else row.submitted - zero))  # fmt: skip
        return Trace(self.source.stem, self.format, jobs, truths, self.dropped, self.repaired, self.notes, origin,
                     self.problems)  # fmt: skip

    def _leave_out_beyond(self) -> None:
        """Numbers that no clock and no job ever showed: sums with them would lose all that is smaller."""
        kept = []
        for row in self.rows:
            times = (row.submit, row.duration, row.cancel_at)
            too_long = any(time is not None and not abs(time) <= _LONGEST for time in times)
            if too_long or not (row.steps or 0.0) <= _MOST_STEPS:
                self.drop(BEYOND, row.line, row.id)
                continue
            if row.declared_duration is not None and not abs(row.declared_duration) <= _LONGEST:
                row.declared_duration = None  # as good as none
            kept.append(row)
        self.rows = kept

    def _name_apart(self) -> None:
        """Ids are unique in a trace: an exact repetition goes, another job of the same id is renamed."""
        seen: dict[str, Row] = {}
        kept = []
        for row in self.rows:
            first = seen.get(row.id)
            if first is not None:
                if (row.submit, row.gpus, row.duration) == (first.submit, first.gpus, first.duration):
                    self.drop(TWICE, row.line, row.id)
                    continue
                self.repair(SAME_ID, row.line, row.id)
                count = 2
                while f"{row.id}#{count}" in seen:
                    count += 1
                row.id = f"{row.id}#{count}"
            seen[row.id] = row
            kept.append(row)
        self.rows = kept

    def _fill_never_started(self) -> None:
        """A job cancelled in the queue has no run time. A simulator may start it earlier than the traced cluster
        would have, so it needs one: the median of its GPU demand, but no more than its time limit. The limit alone
        would be many times too long: few jobs use theirs."""
        ran: defaultdict[int, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.duration is not None and row.cancel_at is None:
                ran[row.gpus].append(row.duration)
        everything: list[float] | None = None
        medians: dict[int, float] = {}
        kept = []
        for row in self.rows:
            if row.duration is not None:
                if row.duration == 0:
                    self.repair(INSTANT, row.line, row.id)
                    row.duration = 1.0
            elif row.steps is None:
                limit = row.declared_duration if row.declared_duration and row.declared_duration > 0 else None
                if ran:
                    if row.gpus not in medians:
                        if everything is None:
                            everything = [duration for group in ran.values() for duration in group]
                        medians[row.gpus] = median(ran[row.gpus]) if row.gpus in ran else median(everything)
                    typical = medians[row.gpus]
                    row.duration = max(1.0, typical if limit is None else min(limit, typical))
                    self.repair(GUESSED_MEDIAN, row.line, row.id)
                elif limit is not None:
                    row.duration = limit
                    self.repair(GUESSED_LIMIT, row.line, row.id)
                else:
                    self.drop("cancelled before it started, and no job in the file ran", row.line, row.id)
                    continue
            kept.append(row)
        self.rows = kept

    def _no_job_left(self) -> NoReturn:
        total = sum(self.dropped.values())
        if total == 0:
            raise UserError(f"{self.source.shown} looks like {self.format} but has no rows")
        reasons = ", ".join(f"{count} × {reason}" for reason, count in self.dropped.most_common())
        raise UserError(
            f"{self.source.shown} looks like {self.format} but none of its {total} rows is usable: {reasons}"
        )
