"""Describing a trace: sizes, quantiles, users, models, and what reading it took, as plain sections of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dally.core.job import DurationMeans
from dally.core.records import dataclass
from dally.core.units import show_time
from dally.traces.trace import Trace

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_MOST = 10  # entries of a ranking that are listed


@dataclass(frozen=True, slots=True)
class Section:
    """A titled list of (label, value) rows; `columns` names more than one value per label."""

    title: str
    rows: list[tuple[str, ...]]
    columns: tuple[str, ...] = ()


def quantiles(values: Sequence[float]) -> list[float]:
    """The values at `QUANTILES`, each an observed one."""
    if not values:
        return [float("nan")] * len(QUANTILES)
    found = np.quantile(np.asarray(values, dtype=float), QUANTILES, method="inverted_cdf")
    return [float(value) for value in found]


def gpu_seconds(trace: Trace) -> float | None:
    """GPU-seconds of ideal running; None where a job counts steps instead of time."""
    total = 0.0
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        if truth.duration is None:
            return None
        total += truth.duration * (1 if truth.means is DurationMeans.ONE_GPU else job.gpus)
    return total


def describe_trace(trace: Trace) -> list[Section]:
    """The trace in sections, ready to print."""
    submits = [job.submit_time for job in trace.jobs]
    durations = [truth.duration for truth in trace.truths if truth.duration is not None]
    gaps = [later - earlier for earlier, later in pairwise(submits)]
    demand = [float(job.gpus) for job in trace.jobs]
    work = gpu_seconds(trace)
    general: list[tuple[str, ...]] = [
        ("name", trace.name),
        ("format", trace.format),
        ("jobs", f"{len(trace.jobs):,}"),
        ("first submission", trace.origin or _time(submits[0])),
        ("submissions span", _time(submits[-1] - submits[0])),
        ("GPUs asked for", f"{sum(demand):,.0f}, at most {max(demand):,.0f} a job"),
        ("multi-GPU jobs", _percent(sum(job.gpus > 1 for job in trace.jobs), len(trace.jobs))),
        ("GPU-hours", f"{work / 3600:,.0f}" if work is not None else "not known: work is given in steps"),
        ("durations mean", _means(trace)),
    ]
    spread: list[tuple[str, ...]] = [
        ("duration", *(_time(value) for value in quantiles(durations))),
        ("GPU demand", *(f"{value:g}" for value in quantiles(demand))),
        ("inter-arrival", *(_time(value) for value in quantiles(gaps))),
    ]
    sections = [
        Section("trace", general),
        Section("quantiles", spread, tuple("largest" if q == 1 else f"{q:.0%}" for q in QUANTILES)),
        Section("GPU demand", _ranking(Counter(str(job.gpus) for job in trace.jobs))),
        Section("endings", _ranking(Counter(truth.ending.value for truth in trace.truths))),
    ]
    for title, names in (
        ("models", Counter(job.model for job in trace.jobs if job.model is not None)),
        ("GPU types", Counter(job.gpu_type for job in trace.jobs if job.gpu_type is not None)),
        ("users", Counter(job.user for job in trace.jobs if job.user is not None)),
        ("tenants", Counter(job.tenant for job in trace.jobs if job.tenant is not None)),
    ):
        if names:
            sections.append(Section(f"{title}: {len(names)}", _ranking(names)))
    for title, counted in (("dropped", trace.dropped), ("repaired", trace.repaired)):
        rows: list[tuple[str, ...]] = [(reason, f"{count:,}") for reason, count in counted.most_common()]
        sections.append(Section(title, rows or [("nothing", "0")]))
    if trace.notes:
        sections.append(Section("notes", [(note, "") for note in trace.notes]))
    return sections


def _time(value: float) -> str:
    return show_time(value) if value else "0 s"


def _percent(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})"


def _means(trace: Trace) -> str:
    return ", ".join(f"{kind.value} {_percent(count, len(trace.truths))}" if count < len(trace.truths) else kind.value
                     for kind, count in Counter(truth.means for truth in trace.truths).most_common())  # fmt: skip


def _ranking(counts: Counter[str]) -> list[tuple[str, ...]]:
    total = sum(counts.values())
    rows: list[tuple[str, ...]] = [(name, _percent(count, total)) for name, count in counts.most_common(_MOST)]
    rest = total - sum(count for _, count in counts.most_common(_MOST))
    return [*rows, (f"{len(counts) - _MOST} others", _percent(rest, total))] if rest else rows
