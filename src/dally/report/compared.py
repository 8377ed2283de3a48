"""Runs side by side: what the report keeps of each, and each job's fate against the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dally.core.errors import UserError
from dally.core.ledger import Ledger
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.report.columns import Bools, Floats, Ints, job_columns, segment_columns, timeline
from dally.report.metrics import Summary

MOST_DEMAND_CLASSES = 8


class ReportRun:
    """One run as the report needs it. It keeps columns, not the ledger: a worker can send it home cheaply."""

    def __init__(self, name: str, summary: Summary, ledger: Ledger, topology: Topology) -> None:
        self.name, self.summary, self.topology = name, summary, topology
        self.jobs = job_columns(ledger)
        self.segments = segment_columns(ledger, topology)
        self.timeline = timeline(ledger)
        self.first_submit, self.last_end = ledger.first_submit, ledger.last_end
        self.keeps_segments = ledger.keeps_segments

    def level_gpu_seconds(self) -> Floats:
        """GPU-seconds held per level, by the placement of the moment."""
        held = (self.segments.end - self.segments.start) * self.segments.gpus * self.segments.part
        levels = len(self.topology.levels)
        return np.bincount(self.segments.level, weights=held, minlength=levels).astype(np.float64)


@dataclass(frozen=True, slots=True)
class DemandClasses:
    """Jobs sorted by the GPUs they ask for: single sizes where there are few, else doubling ranges."""

    names: tuple[str, ...]
    upper: Ints  # largest demand of each class

    @classmethod
    def of(cls, gpus: Ints) -> DemandClasses:
        sizes = np.unique(gpus)
        if len(sizes) <= MOST_DEMAND_CLASSES:
            return cls(tuple(str(size) for size in sizes), sizes)
        upper = [1]
        while upper[-1] < sizes[-1]:
            upper.append(upper[-1] * 2)
        lower = [1, *(edge + 1 for edge in upper[:-1])]
        used = [(a, b) for a, b in zip(lower, upper, strict=True) if np.any((sizes >= a) & (sizes <= b))]
        while len(used) > MOST_DEMAND_CLASSES:  # the few largest jobs share a class
            used[-2:] = [(used[-2][0], used[-1][1])]
        names = tuple(str(a) if a == b else f"{a}–{b}" for a, b in used)
        return cls(names, np.array([b for _, b in used], dtype=np.int64))

    def index(self, gpus: Ints) -> Ints:
        return np.searchsorted(self.upper, gpus)


def class_means(values: Floats, index: Ints, classes: int) -> Floats:
    """Mean per class, NaN where a class is empty."""
    count = np.bincount(index, minlength=classes)
    total = np.bincount(index, weights=values, minlength=classes)
    means: Floats = np.divide(total, count, out=np.full(classes, np.nan), where=count > 0)
    return means


@dataclass(frozen=True, slots=True)
class Paired:
    """The jobs that finished both under a policy and under the baseline, side by side."""

    job_id: list[str]
    gpus: Ints
    jct: Floats
    base_jct: Floats
    queueing: Floats
    base_queueing: Floats

    @property
    def ratio(self) -> Floats:
        """JCT over the baseline's: below 1 is sooner. A job of no length is neither."""
        return np.divide(self.jct, self.base_jct, out=np.ones_like(self.jct), where=self.base_jct > 0)

    @property
    def saved(self) -> Floats:
        return self.base_jct - self.jct


def pair(run: ReportRun, base: ReportRun) -> Paired:
    mine, theirs = run.jobs, base.jobs
    if mine.job_id == theirs.job_id:
        both: Bools = mine.finished & theirs.finished
        left = right = np.flatnonzero(both)
    else:
        place = {job_id: index for index, job_id in enumerate(theirs.job_id)}
        other = np.array([place.get(job_id, -1) for job_id in mine.job_id], dtype=np.int64)
        left = np.flatnonzero(mine.finished & (other >= 0))
        left = left[theirs.finished[other[left]]]
        right = other[left]
    return Paired([mine.job_id[i] for i in left], mine.gpus[left], mine.jct[left], theirs.jct[right],
                  mine.queueing[left], theirs.queueing[right])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """All runs of a report with the baseline the others are measured against."""

    runs: tuple[ReportRun, ...]
    baseline: ReportRun
    classes: DemandClasses
    paired: dict[str, Paired]  # by name, without the baseline

    @property
    def others(self) -> list[ReportRun]:
        return [run for run in self.runs if run is not self.baseline]

    @property
    def ranked(self) -> list[ReportRun]:
        """Best average JCT first; a run that was stopped or finished nothing comes last."""
        return sorted(
            self.runs,
            key=lambda run: (not run.summary.complete, run.summary.avg_jct is None, run.summary.avg_jct or 0.0),
        )


def compare(runs: Sequence[ReportRun], baseline: str | None) -> Comparison:
    """Choose the baseline (the one named; else the first FIFO, else the first run) and pair the jobs."""
    if not runs:
        raise UserError("a report needs at least one run")
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two runs of the report are called {name!r}; their names must differ")
    if baseline is None:
        base = next((run for run in runs if run.name.lower().startswith("fifo")), runs[0])
    elif baseline in names:
        base = runs[names.index(baseline)]
    else:
        raise UserError(f"the baseline {baseline!r} is not one of the runs: {', '.join(names)}")
    classes = DemandClasses.of(np.concatenate([run.jobs.gpus for run in runs]))
    paired = {run.name: pair(run, base) for run in runs if run is not base}
    return Comparison(tuple(runs), base, classes, paired)
