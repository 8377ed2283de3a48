"""The figures of a run. docs/metrics.md defines each of them; this is the one place that computes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from dally.catalog.prices import dollars_per_hour
from dally.core.ledger import Row
from dally.core.placement import Placement
from dally.core.queues import DEFAULT, by_name
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.report.bound import Bound, bound_of
from dally.report.columns import JobColumns, Timeline, job_columns, mean, percentile, timeline
from dally.report.figures import Figures, figures_of
from dally.simulator.run import Run
from dally.simulator.threads import inner

_ON_TIME = 1e-6  # seconds after the deadline that are a rounding


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in figures: times in seconds, shares between 0 and 1; None where there is nothing to measure."""

    policy: str
    jobs: int
    finished: int
    failed: int
    cancelled: int
    rejected: int
    unfinished: int
    complete: bool
    avg_jct: float | None
    median_jct: float | None
    p95_jct: float | None
    p99_jct: float | None
    makespan: float | None
    avg_queueing: float | None
    median_queueing: float | None
    p95_queueing: float | None
    p99_queueing: float | None
    comm_share: float | None
    comm_seconds: float
    neighbour_seconds: float
    gpu_utilization: float | None
    preemptions: int
    migrations: int
    shared: bool
    suspensions: int
    suspended_seconds: float
    packs: int
    unpacks: int
    resizes: int
    avg_first_minibatches: float | None
    lost_gpu_seconds: float
    events: int
    cpu_seconds: float
    jobs_per_cpu_second: float | None
    lower_bound: Bound
    avg_jct_over_bound: float | None
    makespan_over_bound: float | None
    deadlines: int = 0
    deadlines_missed: int = 0
    cost_dollars: float | None = None
    told: str = ""
    useful_utilization: float | None = None
    more: Figures = Figures()
    queues: dict[str, dict[str, float | int | None]] = field(default_factory=dict)  # by queue, where there were any
    alarm: str = ""  # what is impossible about these figures (`report.alarm`); empty: nothing

    def as_dict(self) -> dict[str, Any]:
        """What there is to say: of queues nothing where there were none."""
        return {name: value for name, value in asdict(self).items() if name != "queues" or value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Summary:
        """Read back what `as_dict` wrote; unknown keys are left alone."""
        values = _BEFORE_SHARING | values
        known = {each.name: values[each.name] for each in fields(cls)
                 if each.name in values or (each.default is MISSING and each.default_factory is MISSING)}  # fmt: skip
        return cls(**known | {"lower_bound": Bound(**values["lower_bound"]),
                              "more": Figures.from_dict(values.get("more") or {})})  # fmt: skip


# what a summary written before GPUs could be shared means by not naming these
_BEFORE_SHARING: dict[str, Any] = {"shared": False, "suspensions": 0, "suspended_seconds": 0.0, "packs": 0,
                                   "unpacks": 0, "resizes": 0, "avg_first_minibatches": None}  # fmt: skip


def summarise(run: Run, topology: Topology, bound: Bound | None = None, whole: Run | None = None) -> Summary:
    """All figures of a run; `whole`: the run with the jobs that are not measured too. JCT and queueing are over
    finished jobs, GPU time over all of them.

    Runs that are compared are measured against one bound (`report.bound.bounds_of`): pass it in. Without, it is that of
    this run by itself.
    """
    ledger = run.ledger
    jobs = job_columns(ledger)
    done = jobs.finished
    jct, queueing = jobs.jct[done], jobs.queueing[done]
    makespan: float | None = None
    if ledger.last_end is not None and ledger.first_submit is not None:
        makespan = ledger.last_end - ledger.first_submit
    idle_held = float(jobs.lost_gpu_seconds.sum())  # loading and hand-over
    utilization = _utilisation(run, topology, timeline(ledger), idle_held, makespan)
    early = (jobs.first_minibatches - jobs.submit)[done & ~np.isnan(jobs.first_minibatches)]
    bound = bound or bound_of(run, topology)
    deadlines = {job.id: job.deadline for job in run.workload.trace.jobs if job.deadline is not None}
    if deadlines:
        arrived = set(jobs.job_id)
        deadlines = {job_id: due for job_id, due in deadlines.items() if job_id in arrived}
    return Summary(
        policy=run.policy,
        jobs=len(jobs.job_id),
        finished=jobs.count("finished"),
        failed=jobs.count("failed"),
        cancelled=jobs.count("cancelled"),
        rejected=jobs.count("rejected"),
        unfinished=jobs.count("unfinished"),
        complete=run.complete,
        avg_jct=mean(jct),
        median_jct=percentile(jct, 50),
        p95_jct=percentile(jct, 95),
        p99_jct=percentile(jct, 99),
        makespan=makespan,
        avg_queueing=mean(queueing),
        median_queueing=percentile(queueing, 50),
        p95_queueing=percentile(queueing, 95),
        p99_queueing=percentile(queueing, 99),
        comm_share=_ratio(float(jobs.comm_gpu_seconds.sum()), float(jobs.gpu_seconds.sum())),
        comm_seconds=float(jobs.comm.sum()),
        neighbour_seconds=float(jobs.neighbour_loss.sum()),
        gpu_utilization=utilization,
        preemptions=int(jobs.preemptions.sum()),
        migrations=int(jobs.migrations.sum()),
        shared=ledger.shared or bool(jobs.resizes.any()),
        suspensions=round(float(jobs.suspensions.sum())),
        suspended_seconds=float(jobs.suspended.sum()),
        packs=int(jobs.packs.sum()),
        unpacks=int(jobs.unpacks.sum()),
        resizes=int(jobs.resizes.sum()),
        avg_first_minibatches=mean(early),
        lost_gpu_seconds=idle_held + ledger.leaving_gpu_seconds + run.lost_work_gpu_seconds,
        events=run.events,
        cpu_seconds=run.cpu_seconds,
        jobs_per_cpu_second=_ratio(len(jobs.job_id), run.cpu_seconds),
        lower_bound=bound,
        avg_jct_over_bound=_ratio(mean(jct), bound.avg_jct),
        makespan_over_bound=_ratio(makespan, bound.makespan),
        deadlines=len(deadlines),
        deadlines_missed=sum(_missed(ledger.row(job_id).end, due) for job_id, due in deadlines.items()),
        cost_dollars=_dollars(run, topology),
        told=run.told,
        useful_utilization=useful(utilization, jobs),
        more=figures_of(run, topology, whole),
        queues=_by_queue(run) if run.queues else {},
    )


def _by_queue(run: Run) -> dict[str, dict[str, float | int | None]]:
    """Of every queue: its jobs, and of those that finished the mean JCT and wait; the GPU time of all."""
    known = by_name(run.queues)
    rows: dict[str, list[Row]] = {name: [] for name in known}
    for row in run.ledger.rows:
        rows[row.tenant if row.tenant in known else DEFAULT].append(row)
    found: dict[str, dict[str, float | int | None]] = {}
    for name, each in rows.items():
        done = [row for row in each if row.outcome == "finished"]
        found[name] = {
            "jobs": len(each), "finished": len(done), "weight": known[name].weight,
            "avg_jct": mean(np.array([row.jct for row in done], dtype=float)),
            "avg_queueing": mean(np.array([row.queueing for row in done], dtype=float)),
            "gpu_seconds": sum(row.gpu_seconds for row in each)}  # fmt: skip
    return found


def useful(utilization: float | None, jobs: JobColumns) -> float | None:
    """The part of the utilisation in which GPUs computed: without communication that nothing hides."""
    worked = float(jobs.gpu_seconds.sum() - jobs.lost_gpu_seconds.sum())
    if utilization is None or worked <= 0:
        return utilization
    return utilization * max(0.0, 1.0 - float(jobs.comm_gpu_seconds.sum()) / worked)


def _missed(end: float | None, due: float) -> bool:
    """Late, or not there at the end of the run."""
    return end is None or end > due + _ON_TIME


def _dollars(run: Run, topology: Topology) -> float | None:
    """GPU-hours held on each GPU type at its price; None where a type has no price or nobody kept the stretches."""
    prices = {kind: dollars_per_hour(kind) for kind in topology.gpu_types}
    if not run.ledger.keeps_segments or any(price is None for price in prices.values()):
        return None
    price = [prices[machine.gpu_type] or 0.0 for machine in topology.machines]  # a gang is on one type
    dollars = 0.0
    shared: dict[Placement, list[tuple[float, float]]] = {}
    held = run.ledger.segments
    for at, (start, end, placement) in enumerate(zip(held.starts, held.ends, held.placements, strict=True)):
        if at not in held.lanes:
            dollars += (end - start) * placement.gpus * price[placement.slices[0][0]]
        else:
            shared.setdefault(placement, []).append((start, end))
    for placement, stretches in shared.items():  # GPUs that several held at once are paid for once
        until = -math.inf
        for start, end in sorted(stretches):
            dollars += max(0.0, end - max(start, until)) * placement.gpus * price[placement.slices[0][0]]
            until = max(until, end)
    return dollars / 3600.0


def _utilisation(
    run: Run, topology: Topology, load: Timeline, idle_held: float, makespan: float | None
) -> float | None:
    """GPU-seconds of work that counted, of those there were between first submission and last end."""
    if not makespan or run.ledger.last_end is None:
        return None
    # Jobs that failed or were stopped may hold GPUs beyond the last end; that time is outside the makespan.
    edges = np.minimum(np.append(load.time, run.ledger.last_end), run.ledger.last_end)
    held = inner(np.diff(edges), load.busy)
    return max(held - idle_held - run.lost_work_gpu_seconds, 0.0) / (topology.gpus * makespan)




def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def write_summary(summaries: Summary | Sequence[Summary], path: Path) -> None:
    """`summary.json`: the object of one run, or a list of them in the order given."""
    content = summaries.as_dict() if isinstance(summaries, Summary) else [each.as_dict() for each in summaries]
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


CSV_COLUMNS = (
    "job_id", "submit_time", "start_time", "end_time", "jct", "queueing", "running", "gpus", "placement_level",
    "preemptions", "migrations", "comm", "neighbour_loss", "lost", "outcome", "model", "user", "tenant",
    "first_100_minibatches", "suspended", "suspensions", "packs", "unpacks", "resizes", "gpu_seconds",
    "measured",
)  # fmt: skip


def job_rows(run: Run, topology: Topology) -> Iterator[Sequence[Any]]:
    """The names of the columns, then one row per job in order of submission; what has not happened is None."""
    yield CSV_COLUMNS
    names = [level.name for level in topology.levels]
    window = run.window
    row = Row.empty()
    kept = run.ledger.lives
    run.ledger.settle()
    for number in range(len(kept)):
        kept.fill(number, row)  # the one row for all of them
        queueing = None if row.queueing is None else max(row.queueing, 0.0)
        yield (row.job_id, row.submit, row.first_start, row.end, row.jct, queueing, row.running, row.gpus,
               None if row.level is None else names[row.level], row.preemptions, row.migrations, row.comm,
               row.neighbour_loss, row.lost, row.outcome, row.model, row.user, row.tenant,
               None if row.first_minibatches is None else row.first_minibatches - row.submit, row.suspended,
               round(row.suspensions, 2), row.packs, row.unpacks, row.resizes, row.gpu_seconds,
               window is None or window.holds(row.job_id, row.submit))  # fmt: skip


def write_jobs_csv(run: Run, topology: Topology, path: Path) -> None:
    """`jobs.csv`: a field of what has not happened is empty."""
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(job_rows(run, topology))
