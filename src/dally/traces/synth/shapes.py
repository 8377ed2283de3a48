"""The shapes of synthetic workloads: which columns a Philly-, Helios-, PAI-, Gavel- or Dally-like trace has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from dally.core.job import DurationMeans, Ending
from dally.core.records import dataclass
from dally.traces.synth import measured as m
from dally.traces.synth.arrivals import over_the_day
from dally.traces.synth.chance import Floats, Ints, Shares, Streams, linked, linked_above

_HELIOS_MODELS = "Helios names no models: they are drawn from the mix of Dally's batch of Helios jobs"


def _evenly(times: Floats) -> Floats:
    return times


@dataclass(slots=True)
class Columns:
    """One workload, column by column. `gaps[0]` is not used: the first job comes at 0."""

    gpus: Ints
    durations: Floats
    gaps: Floats
    bend: Callable[[Floats], Floats] = _evenly  # puts evenly running time over the hours of a day
    models: list[str] | None = None
    tenants: list[str] | None = None
    endings: list[Ending] | None = None
    steps: Floats | None = None
    fractions: Floats | None = None
    means: DurationMeans = DurationMeans.BEST_PLACEMENT
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shape:
    """A named workload: what it resembles and how to draw its columns."""

    name: str
    title: str
    draw: Callable[[Streams, int], Columns]
    batch: bool = False  # everything is submitted at once: no arrivals, so no load to reach


def _picks(uniform: Floats, names: tuple[str, ...], weights: tuple[float, ...]) -> list[str]:
    indices = Shares(tuple(range(len(names))), weights).index_at(uniform)
    return np.array(names, dtype=object)[indices].tolist()  # type: ignore[no-any-return]


def _endings(streams: Streams, jobs: int, shares: tuple[float, float, float]) -> list[Ending]:
    kinds = Shares((0, 1, 2), shares).index_at(streams["ending"].random(jobs))
    order = np.array([Ending.COMPLETED, Ending.CANCELLED, Ending.FAILED], dtype=object)
    return order[kinds].tolist()  # type: ignore[no-any-return]


def _philly(multi: bool) -> Callable[[Streams, int], Columns]:
    demand = m.PHILLY_DEMAND.above_one() if multi else m.PHILLY_DEMAND

    def draw(streams: Streams, jobs: int) -> Columns:
        gpus = demand.at(streams["demand"].random(jobs))
        uniform = streams["duration"].random(jobs)
        durations = np.empty(jobs)
        classes = sorted(m.PHILLY_DURATION)
        for at, low in enumerate(classes):
            high = classes[at + 1] if at + 1 < len(classes) else np.inf
            chosen = (gpus >= low) & (gpus < high)
            durations[chosen] = m.PHILLY_DURATION[low].at(uniform[chosen])
        tenant = streams["tenant"].random(jobs)
        one = _picks(tenant, m.PHILLY_TENANTS, m.PHILLY_TENANTS_ONE)
        several = _picks(tenant, m.PHILLY_TENANTS, m.PHILLY_TENANTS_MULTI)
        tenants = [b if many else a for a, b, many in zip(one, several, (gpus > 1).tolist(), strict=True)]
        gaps = m.PHILLY_MEAN_GAP * m.PHILLY_GAP.at(streams["gap"].random(jobs))
        return Columns(gpus, durations, gaps, lambda times: over_the_day(times, m.PHILLY_HOURS), tenants=tenants,
                       endings=_endings(streams, jobs, m.PHILLY_ENDINGS))  # fmt: skip

    return draw


def _helios(multi: bool) -> Callable[[Streams, int], Columns]:
    def draw(streams: Streams, jobs: int) -> Columns:
        if multi:
            # The upper part of the same copula: multi-GPU jobs with the durations they have in the whole.
            size, length = linked_above(streams, jobs, m.HELIOS_LINK, m.HELIOS_DEMAND.at_most_one())
        else:
            size, length = linked(streams, jobs, m.HELIOS_LINK)
        gpus, durations = m.HELIOS_DEMAND.at(size), m.HELIOS_DURATION.at(length)
        models = _picks(streams["model"].random(jobs), m.DALLY_MODELS, m.DALLY_BATCH_MODELS)
        gaps = m.HELIOS_MEAN_GAP * streams["gap"].standard_exponential(jobs)
        return Columns(gpus, durations, gaps, lambda times: over_the_day(times, m.HELIOS_HOURS), models=models,
                       endings=_endings(streams, jobs, m.HELIOS_ENDINGS), notes=[_HELIOS_MODELS])  # fmt: skip

    return draw


def _pai(streams: Streams, jobs: int) -> Columns:
    size, length = linked(streams, jobs, m.PAI_LINK)
    gpus, durations = m.PAI_DEMAND.at(size), m.PAI_DURATION.at(length)
    percent = m.PAI_PERCENT.at(streams["share"].random(jobs))
    fractions = np.where(gpus == 1, percent / 100.0, 1.0)
    gaps = m.PAI_MEAN_GAP * streams["gap"].standard_exponential(jobs)
    return Columns(gpus, durations, gaps, lambda times: over_the_day(times, m.PAI_HOURS), fractions=fractions)


def _gavel(streams: Streams, jobs: int) -> Columns:
    gpus = m.GAVEL_DEMAND.at(streams["demand"].random(jobs))
    short = streams["class"].random(jobs) < m.GAVEL_SHORT
    uniform = streams["duration"].random(jobs)
    durations = 60.0 * 10.0 ** np.where(short, 1.5 + 1.5 * uniform, 3.0 + uniform)
    many, every = m.GAVEL_MANY, (*m.GAVEL_MANY, *m.GAVEL_ONE_ONLY)
    model = streams["model"].random(jobs)
    models = [
        every[int(u * len(every))] if n == 1 else many[int(u * len(many))]
        for u, n in zip(model.tolist(), gpus.tolist(), strict=True)
    ]
    gaps = m.GAVEL_MEAN_GAP * streams["gap"].standard_exponential(jobs)
    return Columns(gpus, durations, gaps, models=models, notes=["durations are run times on a V100"])


def _dally_models(streams: Streams, gpus: Ints, durations: Floats, long_multi: tuple[float, ...]) -> list[str]:
    """Models as the authors gave them out: small ones to short jobs, large ones to long jobs."""
    uniform = streams["model"].random(len(gpus))
    tables = (m.DALLY_SHORT_ONE, m.DALLY_SHORT_MULTI, m.DALLY_LONG_ONE, long_multi)
    which = (2 * (durations >= m.DALLY_SHORT) + (gpus > 1)).astype(int)
    names = np.empty(len(gpus), dtype=object)
    for kind, weights in enumerate(tables):
        chosen = which == kind
        names[chosen] = _picks(uniform[chosen], m.DALLY_MODELS, weights)
    return names.tolist()


def _dally_columns(streams: Streams, gpus: Ints, durations: Floats, gaps: Floats,
                   long_multi: tuple[float, ...]) -> Columns:  # fmt: skip
    models = _dally_models(streams, gpus, durations, long_multi)
    step_time = dict(zip(m.DALLY_MODELS, m.DALLY_STEP_TIME, strict=True))
    steps = np.round(durations / np.array([step_time[model] for model in models]))
    note = "durations are run times on one GPU; the ideal run time divides them by the GPUs"
    return Columns(gpus, durations, gaps, models=models, steps=steps, means=DurationMeans.ONE_GPU, notes=[note])


def _dally_batch(streams: Streams, jobs: int) -> Columns:
    gpus = m.DALLY_BATCH_DEMAND.at(streams["demand"].random(jobs))
    uniform = streams["duration"].random(jobs)
    durations = np.where(gpus == 1, m.DALLY_BATCH_ONE.at(uniform), m.DALLY_BATCH_MULTI.at(uniform))
    return _dally_columns(streams, gpus, durations, np.zeros(jobs), m.DALLY_BATCH_LONG_MULTI)


def _dally_week(streams: Streams, jobs: int) -> Columns:
    gpus = m.DALLY_WEEK_DEMAND.at(streams["demand"].random(jobs))
    durations = m.DALLY_WEEK_MULTI.at(streams["duration"].random(jobs))
    gaps = m.DALLY_MEAN_GAP * streams["gap"].standard_exponential(jobs)
    return _dally_columns(streams, gpus, durations, gaps, m.DALLY_WEEK_LONG_MULTI)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("philly", "Microsoft Philly, 2017", _philly(multi=False)),
        Shape("philly-multi", "Microsoft Philly, 2017, multi-GPU jobs only", _philly(multi=True)),
        Shape("helios", "SenseTime Helios, 2020", _helios(multi=False)),
        Shape("helios-multi", "SenseTime Helios, 2020, multi-GPU jobs only", _helios(multi=True)),
        Shape("pai", "Alibaba PAI, 2020", _pai),
        Shape("gavel", "Gavel's generator, 2020", _gavel),
        Shape("dally-batch", "Dally's batch of 500 jobs", _dally_batch, batch=True),
        Shape("dally-poisson", "Dally's Poisson week", _dally_week),
    )
}
