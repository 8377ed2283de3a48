"""What a run is measured by: the figures of the jobs in the window, the load asked and reached, and what to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.units import show_time
from dally.experiments.assumed import TOLD
from dally.report.alarm import below_bound
from dally.report.bound import NO_BOUND, Bound, bounds_of
from dally.report.columns import job_columns
from dally.report.metrics import Summary, summarise, useful
from dally.simulator.experiment import Experiment
from dally.simulator.knowledge import settled
from dally.simulator.run import Run
from dally.simulator.window import busy_share, measured
from dally.traces.reshape import BEFORE, offered
from dally.traces.trace import Trace

TIMING = ("cpu_seconds", "jobs_per_cpu_second")  # of this machine at this moment; all else is the same every time
NOBODY_WAITS = 0.01  # share of jobs that wait, and of their time, below which policies have nothing to decide


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was looked at, and how busy the cluster was meanwhile."""

    jobs: int  # measured
    of: int  # submitted in all, without those that were there before
    start: float | None  # of the window; None: all of the run was measured
    end: float | None
    load_asked: float | None
    load_offered: float | None  # between first and last submission; None where the trace does not say
    gpus_held: float | None  # share of the GPUs held by jobs while it was measured
    waited: float | None  # share of the measured jobs that ever waited for GPUs

    def as_dict(self) -> dict[str, Any]:
        return {"jobs": self.jobs, "of": self.of, "from": self.start, "to": self.end, "load_asked": self.load_asked,
                "load_offered": self.load_offered, "gpus_held": self.gpus_held, "waited": self.waited}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, what was measured of it, and the figures."""

    run: Run
    summary: Summary
    measurement: Measurement
    bound_cpu_seconds: float = 0.0  # of the lower bound of all that are compared

    @property
    def policy(self) -> str:
        return self.run.policy

    def figures(self) -> dict[str, Any]:
        """Everything, the time it took included."""
        return {**self.summary.as_dict(), "measured": self.measurement.as_dict()}

    def lasting(self) -> dict[str, Any]:
        """The figures that are the same whenever and wherever it is run again."""
        return {name: value for name, value in self.figures().items() if name not in TIMING}

    def timing(self) -> dict[str, Any]:
        return {**{name: getattr(self.summary, name) for name in TIMING}, "bound_cpu_seconds": self.bound_cpu_seconds}


def measure(run: Run, experiment: Experiment) -> Measured:
    """The figures of a run that is compared with no other."""
    return measure_all([run], experiment)[0]


def measure_all(runs: Sequence[Run], experiment: Experiment) -> list[Measured]:
    """The figures of runs that are compared, all against one lower bound."""
    inside = [measured(run) for run in runs]
    started = time.process_time()
    wanted = experiment.scenario is None or experiment.scenario.bound is not False
    bounds = bounds_of(inside, experiment.topology) if wanted else [NO_BOUND] * len(runs)
    took = time.process_time() - started
    return [_measure(run, part, experiment, bound, took) for run, part, bound in zip(runs, inside, bounds, strict=True)]


def _measure(run: Run, inside: Run, experiment: Experiment, bound: Bound, took: float) -> Measured:
    """JCT and queueing are those of the measured jobs, utilisation that of the window."""
    summary = summarise(inside, experiment.topology, bound, run)
    summary = replace(summary, alarm=below_bound(inside, summary))
    window = run.window
    held = busy_share(run.ledger, window)
    if window is not None and held is not None:
        jobs = job_columns(run.ledger)
        total = sum(jobs.gpu_seconds.tolist())  # one by one, in order: a sum by pairs would end in other digits
        lost = sum(jobs.lost_gpu_seconds.tolist()) + run.lost_work_gpu_seconds
        # what loading and work done again take of the window is taken to be what they take of the whole run
        used = held * max(0.0, 1.0 - lost / total) if total else 0.0
        summary = replace(summary, gpu_utilization=used, useful_utilization=useful(used, jobs))
    measured_jobs = job_columns(inside.ledger)
    count = len(measured_jobs.job_id)
    # of one that has not ended nobody can say
    queueing = np.nan_to_num(measured_jobs.end - measured_jobs.submit - measured_jobs.running)
    waited = int((queueing > 1e-6 * np.maximum(1.0, measured_jobs.submit)).sum())
    stream = sum(BEFORE not in job.id for job in experiment.trace.jobs)
    found = Measurement(
        count, stream, window.start if window else None, window.end if window else None,
        experiment.scenario.load if experiment.scenario is not None else None, _offered(experiment), held,
        waited / count if count else None,
    )  # fmt: skip
    return Measured(run, summary, found, took)


def _offered(experiment: Experiment) -> float | None:
    trace, topology = experiment.trace, experiment.topology
    kept = [(job, truth) for job, truth in zip(trace.jobs, trace.truths, strict=True) if BEFORE not in job.id]
    stream = Trace(trace.name, trace.format, [job for job, _ in kept], [truth for _, truth in kept])
    try:
        return offered(stream, topology.gpus, topology.capacity)
    except UserError:  # a batch has no load, and steps no GPU-seconds
        return None


def notes_of(experiment: Experiment, results: Sequence[Measured] = ()) -> list[str]:
    """What a reader of the results should know about the input, and about what was measured."""
    trace = experiment.trace
    notes = list(trace.notes)
    notes += [f"{count:,} rows left out: {why}" for why, count in trace.dropped.most_common()]
    notes += [f"{count:,} rows changed: {why}" for why, count in trace.repaired.most_common()]
    too_large = sum(job.gpus > experiment.topology.capacity(job.gpu_type) for job in trace.jobs)
    if too_large:
        notes.append(f"{too_large:,} jobs ask for more GPUs of one type than the cluster has and are turned away")
    knowledge = settled(experiment.knowledge, trace.jobs)
    notes.append(f"{TOLD.get(knowledge, 'the durations policies are told are off')} (--knowledge {knowledge})")
    if results:
        notes += _measurement_notes(results)
    notes += [f"{each.policy}: {note}" for each in results for note in each.run.notes]
    notes += [f"{s.policy}: {s.deadlines_missed:,} of {s.deadlines:,} deadlines missed, ${s.cost_dollars or 0:,.0f} "
              "of GPU time" for s in (each.summary for each in results) if s.deadlines]  # fmt: skip
    return notes


def _measurement_notes(results: Sequence[Measured]) -> list[str]:
    first, notes = results[0].measurement, []
    if first.start is not None and first.end is not None:
        notes.append(f"measured: the {first.jobs:,} of {first.of:,} jobs submitted from {show_time(first.start)} to "
                     f"{show_time(first.end)}; the others keep the cluster at work (--window)")  # fmt: skip
    held = ", ".join(f"{each.policy} {each.measurement.gpus_held:.0%}" for each in results
                     if each.measurement.gpus_held is not None)  # fmt: skip
    if held and first.load_offered is not None:
        asked = f"load asked {first.load_asked:g}" if first.load_asked is not None else \
            f"load offered {first.load_offered:.2f}"  # fmt: skip
        when = "while it was measured" if first.start is not None else "from first submission to last end"
        notes.append(f"{asked}; GPUs held {when}: {held}")
    shares = [each.measurement.waited for each in results if each.measurement.waited is not None]
    waits = [each.summary.avg_queueing / each.summary.avg_jct for each in results
             if each.summary.avg_jct and each.summary.avg_queueing is not None]  # fmt: skip
    if shares and max(shares) < NOBODY_WAITS and max(waits, default=0.0) < NOBODY_WAITS:
        most = "no job waits" if max(shares) == 0 else f"at most {max(shares):.1%} of the jobs wait"
        notes.append(f"nothing to decide here: {most} for GPUs, so that who is started first hardly matters; "
                     "raise --load or take a smaller cluster to compare policies")  # fmt: skip
    return notes
