"""The curves of the report, thinned to what a screen can show; each says how it was thinned."""

from __future__ import annotations

from typing import Any

import numpy as np

from dally.report.columns import Floats, Ints, Timeline
from dally.report.compared import Comparison, ReportRun, class_means

CURVE_POINTS = 400
TIME_BINS = 400

# Bands of JCT over the baseline's JCT; the middle one calls 5 % the same.
BANDS = ("over 2× sooner", "sooner", "within 5 %", "later", "over 2× later")
BAND_EDGES = (0.5, 1 / 1.05, 1.05, 2.0)


def compact(values: Floats | list[float], digits: int = 5) -> list[float | None]:
    """Numbers for the page: few digits, NaN as null."""
    rounded = (float(f"{value:.{digits}g}") for value in values)
    return [None if value != value else int(value) if value == int(value) else value for value in rounded]


def cdf(values: Floats) -> tuple[Floats, Floats]:
    """Shares of jobs and the value each share stays within; all jobs, or evenly spaced ones and the tail."""
    ordered = np.sort(values)
    count = len(ordered)
    if count <= CURVE_POINTS:
        picks = np.arange(count)
    else:
        # Half of the points go to the last twentieth: that is where policies differ and few jobs are.
        body = np.linspace(0, 0.95 * (count - 1), CURVE_POINTS // 2)
        tail = np.linspace(0.95 * (count - 1), count - 1, CURVE_POINTS // 2)
        picks = np.unique(np.round(np.concatenate([body, tail])).astype(np.int64))
    return ordered[picks], (picks + 1) / max(count, 1)


def bin_means(line: Timeline, values: Ints, edges: Floats) -> Floats:
    """Time-weighted mean of a step function in each bin: exact, whatever the number of steps."""
    if len(line.time) == 0:
        return np.zeros(len(edges) - 1)
    steps = np.append(np.diff(line.time), max(float(edges[-1] - line.time[-1]), 0.0))
    area = np.concatenate([[0.0], np.cumsum(steps * values)])
    knots = np.append(line.time, max(float(edges[-1]), float(line.time[-1])))
    means: Floats = np.diff(np.interp(edges, knots, area, left=0.0)) / np.diff(edges)
    return means


def time_edges(comparison: Comparison, bins: int) -> Floats:
    """Bins from the first submission to the last end of any run."""
    starts = [run.first_submit for run in comparison.runs if run.first_submit is not None]
    ends = [float(run.timeline.time[-1]) for run in comparison.runs if len(run.timeline.time)]
    start, stop = min(starts, default=0.0), max(ends, default=0.0)
    return np.linspace(start, stop if stop > start else start + 1.0, bins + 1)


def curves(comparison: Comparison) -> dict[str, Any]:
    """CDFs of JCT and queueing, and load and queue over time, for every run."""
    edges = time_edges(comparison, TIME_BINS)
    jct: list[dict[str, Any]] = []
    queueing: list[dict[str, Any]] = []
    load, queue = [], []
    for run in comparison.runs:
        done = run.jobs.finished
        for target, values in ((jct, run.jobs.jct[done]), (queueing, run.jobs.queueing[done])):
            x, y = cdf(values)
            target.append({"x": compact(x), "y": compact(y)})
        busy = bin_means(run.timeline, run.timeline.busy, edges) / run.topology.gpus
        load.append({"y": compact(busy, 4)})
        queue.append({"y": compact(bin_means(run.timeline, run.timeline.queue, edges), 4)})
    width = float(edges[1] - edges[0])
    times = compact(edges[:-1] - edges[0] + width / 2, 7)
    return {"jct": jct, "queueing": queueing, "time": times, "load": load, "queue": queue, "bin": width}


def by_demand(comparison: Comparison) -> dict[str, Any]:
    """Mean JCT and queueing per class of GPU demand, and how many jobs each class has."""
    classes = comparison.classes
    size = len(classes.names)
    jct, queueing = [], []
    for run in comparison.runs:
        done = run.jobs.finished
        index = classes.index(run.jobs.gpus[done])
        jct.append(compact(class_means(run.jobs.jct[done], index, size)))
        queueing.append(compact(class_means(run.jobs.queueing[done], index, size)))
    count = np.bincount(classes.index(comparison.baseline.jobs.gpus), minlength=size)
    return {"names": list(classes.names), "jobs": count.tolist(), "jct": jct, "queueing": queueing}


def level_shares(run: ReportRun) -> Floats:
    """Share of the GPU time held at each level of the topology."""
    held = run.level_gpu_seconds()
    total = held.sum()
    return held / total if total else held


def gains(comparison: Comparison) -> list[dict[str, Any]]:
    """Per policy: share of jobs in each band, the sorted ratios, and the change of each demand class."""
    found = []
    for run in comparison.others:
        paired = comparison.paired[run.name]
        ratio = paired.ratio
        bands = np.bincount(np.searchsorted(BAND_EDGES, ratio, side="right"), minlength=len(BANDS))
        x, y = cdf(ratio)
        size = len(comparison.classes.names)
        index = comparison.classes.index(paired.gpus)
        mean, base = class_means(paired.jct, index, size), class_means(paired.base_jct, index, size)
        change = np.divide(mean, base, out=np.full(size, np.nan), where=base > 0) - 1
        found.append({
            "name": run.name, "jobs": len(ratio), "bands": compact(bands / max(len(ratio), 1)),
            "ratio": compact(x), "share": compact(y), "change": compact(change, 3),
        })  # fmt: skip
    return found
