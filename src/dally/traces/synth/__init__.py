"""Synthetic workloads shaped like published traces: any number of jobs, any offered load, one seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dally.core.collecting import uncollected
from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending, Truth, made
from dally.traces.synth.arrivals import stretched
from dally.traces.synth.chance import Streams
from dally.traces.synth.shapes import SHAPES, Columns
from dally.traces.trace import Trace

__all__ = ["offered_load", "synthesise", "workloads"]


def workloads() -> list[tuple[str, str]]:
    """(name, what it resembles) of every workload that can be synthesised."""
    return [(shape.name, shape.title) for shape in SHAPES.values()]


def offered_load(trace: Trace, capacity: int) -> float:
    """GPU-seconds asked for over those a cluster of `capacity` GPUs has between first and last submission.

    A job asks for GPUs × ideal run time; where durations are run times on one GPU, that is the duration itself.
    """
    if capacity < 1:
        raise UserError(f"a cluster has at least one GPU, not {capacity}")
    span = trace.jobs[-1].submit_time - trace.jobs[0].submit_time if trace.jobs else 0.0
    if span <= 0:
        raise UserError(f"{trace.name} submits all its jobs at once: it offers no load over time")
    asked = 0.0
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        if truth.duration is None:
            raise UserError(f"job {job.id!r} of {trace.name} counts steps, not seconds: its load is not known")
        asked += truth.duration * (1 if truth.means is DurationMeans.ONE_GPU else job.gpus)
    return asked / (capacity * span)


def synthesise(name: str, *, jobs: int, seed: int, load: float | None = None, capacity: int | None = None,
               max_gpus: int | None = None) -> Trace:  # fmt: skip
    """A workload of the named shape. Same arguments, same trace.

    `load` is the offered load Σ GPUs × duration / (capacity × span of submissions); it is reached by scaling the
    gaps between submissions. `max_gpus` caps every job's demand, as a cluster of that size would force it to.
    """
    shape = SHAPES.get(name)
    if shape is None:
        raise UserError(f"{name!r} is not a workload; known are {', '.join(SHAPES)}")
    if jobs < 1:
        raise UserError(f"a trace has at least one job, not {jobs}")
    if seed < 0:
        raise UserError(f"a seed is 0 or above, not {seed}")
    if max_gpus is not None and max_gpus < 1:
        raise UserError(f"jobs need at least one GPU: max_gpus cannot be {max_gpus}")
    if load is not None:
        if not (load > 0 and np.isfinite(load)):
            raise UserError(f"an offered load is above 0, not {load}")
        if capacity is None or capacity < 1:
            raise UserError("an offered load needs the number of GPUs it is offered to: give capacity")
        if shape.batch or jobs < 2:
            what = f"{name} submits all its jobs at time 0" if shape.batch else "one job has no span of submissions"
            raise UserError(f"{what}: no offered load can be reached")
    columns = shape.draw(Streams(seed), jobs)
    trace = Trace(name, f"synthetic, {shape.title}", [], [], notes=list(columns.notes))
    if max_gpus is not None:
        above = int((columns.gpus > max_gpus).sum())
        if above:
            trace.repaired[f"asked for more than {max_gpus} GPUs: capped"] = above
        columns.gpus = np.minimum(columns.gpus, max_gpus)
    columns.durations = np.maximum(1.0, np.round(columns.durations))
    span = None
    if load is not None and capacity is not None:
        weight = 1 if columns.means is DurationMeans.ONE_GPU else columns.gpus
        span = float((weight * columns.durations).sum()) / (load * capacity)
    times = np.round(stretched(columns.gaps, columns.bend, span), 3)
    _fill(trace, columns, times.tolist())
    trace.notes.append(f"seed {seed}" + (f", offered load {load:g} on {capacity} GPUs" if load is not None else ""))
    return trace


def _fill(trace: Trace, columns: Columns, times: list[float]) -> None:
    """Jobs and truths from columns."""
    count = len(times)
    models: Sequence[str | None] = columns.models or [None] * count
    tenants: Sequence[str | None] = columns.tenants or [None] * count
    fractions = columns.fractions.tolist() if columns.fractions is not None else [1.0] * count
    steps = columns.steps.tolist() if columns.steps is not None else [None] * count
    endings = columns.endings or [Ending.COMPLETED] * count
    means = columns.means
    with uncollected():
        trace.jobs = [
            made(str(i), time, gpus, None, model, None, tenant, 0, None, step, None, fraction)
            for i, (time, gpus, model, tenant, step, fraction) in enumerate(
                zip(times, columns.gpus.tolist(), models, tenants, steps, fractions, strict=True)
            )
        ]
        trace.truths = [
            Truth(duration, step, ending, None, (), (), means)
            for duration, step, ending in zip(columns.durations.tolist(), steps, endings, strict=True)
        ]
