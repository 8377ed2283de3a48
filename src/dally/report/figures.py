"""Further figures people publish with: slowdown, fairness, fragmentation, waste, faults, energy (docs/metrics.md)."""

from __future__ import annotations

from array import array
from dataclasses import fields
from typing import Any

import numpy as np

from dally.catalog.throughputs import gpu_name
from dally.core.ledger import Ledger
from dally.core.lives import OUTCOMES
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.report.columns import Floats, JobColumns, job_columns, mean, percentile
from dally.simulator.run import Run
from dally.simulator.threads import inner

SHORT = 10.0  # seconds below which a job's length is not held against its wait (Feitelson, bounded slowdown)


@dataclass(frozen=True, slots=True)
class Figures:
    """None where there is nothing to measure, or where it cannot be told."""

    avg_bounded_slowdown: float | None = None
    median_bounded_slowdown: float | None = None
    p95_bounded_slowdown: float | None = None
    avg_finish_time_fairness: float | None = None
    p95_finish_time_fairness: float | None = None
    unfairly_treated_share: float | None = None
    jain_index: float | None = None
    idle_while_waiting_share: float | None = None
    fragmentation: float | None = None
    wasted_gpu_share: float | None = None
    interruptions: int = 0
    failed_starts: int = 0
    restarts: int = 0
    availability: float | None = None
    energy_kwh: float | None = None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Figures:
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


def figures_of(run: Run, topology: Topology, whole: Run | None = None) -> Figures:
    """Of the measured jobs of a run; `whole`: the run with all its jobs, where that is another one."""
    ledger, whole = run.ledger, whole or run
    jobs = job_columns(ledger)
    done = jobs.finished
    alone = np.array([run.workload.best_run_time.get(name, np.nan) for name in jobs.job_id])[done]
    jct = jobs.jct[done]
    slow = np.maximum(jct / np.maximum(alone, SHORT), 1.0)
    slow = slow[~np.isnan(slow)]
    every = jobs if whole is run else job_columns(whole.ledger)
    fair = _finish_time_fairness(jobs, every, whole.ledger, alone, topology.gpus)
    progress = np.minimum(np.divide(alone, jct, out=np.ones_like(jct), where=jct > 0), 1.0)
    progress = progress[~np.isnan(progress)]
    leaving = whole.ledger.leaving_gpu_seconds
    # added one by one, in order: a sum by pairs would end in other digits
    held = sum(every.gpu_seconds.tolist()) + leaving
    lost = sum(every.lost_gpu_seconds.tolist()) + leaving + whole.lost_work_gpu_seconds
    interruptions, failed_starts = int(jobs.interruptions.sum()), int(jobs.failed_starts.sum())
    idle, fragmented = _idle(whole.ledger, topology)
    return Figures(
        avg_bounded_slowdown=mean(slow), median_bounded_slowdown=percentile(slow, 50),
        p95_bounded_slowdown=percentile(slow, 95), avg_finish_time_fairness=mean(fair),
        p95_finish_time_fairness=percentile(fair, 95),
        unfairly_treated_share=float(np.mean(fair > 1.0 + 1e-9)) if len(fair) else None,
        jain_index=_jain(progress), idle_while_waiting_share=idle, fragmentation=fragmented,
        wasted_gpu_share=lost / held if held else None,
        interruptions=interruptions, failed_starts=failed_starts,
        restarts=interruptions + int((jobs.preemptions + jobs.migrations).sum()) + failed_starts,
        availability=_availability(whole.ledger, topology), energy_kwh=_energy(ledger, topology),
    )  # fmt: skip


def _finish_time_fairness(jobs: JobColumns, every: JobColumns, whole: Ledger, alone: Floats, gpus: int) -> Floats:
    """ρ = JCT / (run time alone × how much more than a fair share of the cluster it asks for), where the fair share is
    that of the jobs that were there on average during its life (Themis, NSDI'20; Gavel, OSDI'20, section 4.2)."""
    submit, end, done = jobs.submit, jobs.end, jobs.finished
    last = whole.time[-1] if len(whole.time) else 0.0
    there = every.outcome != OUTCOMES.index("rejected")
    if not there.any() or not done.any():
        return np.zeros(0)
    left = np.where(np.isnan(every.end), last, every.end)
    moments = np.column_stack([every.submit[there], left[there]]).ravel()
    steps = np.tile([1.0, -1.0], int(there.sum()))
    order = np.argsort(moments, kind="stable")
    moments, present = moments[order], np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(np.diff(moments) * present[:-1])])  # ∫ jobs that are there
    life = end[done] - submit[done]
    mean = np.divide(np.interp(end[done], moments, area) - np.interp(submit[done], moments, area), life,
                     out=np.ones_like(life), where=life > 0)  # fmt: skip
    isolated = alone * np.maximum(jobs.gpus[done] * np.maximum(mean, 1.0) / gpus, 1.0)
    fair = np.divide(life, isolated, out=np.ones_like(life), where=isolated > 0)
    return np.asarray(fair[~np.isnan(fair)], dtype=np.float64)


def _jain(values: Floats) -> float | None:
    """(Σx)² / (n Σx²): 1 where all are treated alike, 1/n where one gets everything."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None


def _idle(ledger: Ledger, topology: Topology) -> tuple[float | None, float | None]:
    """GPU time nobody held while somebody waited, of all there was; and of the GPU time nobody held, the part on
    machines that were partly in use."""
    if ledger.first_submit is None or ledger.last_end is None or ledger.last_end <= ledger.first_submit:
        return None, None
    first, last = ledger.first_submit, ledger.last_end
    span = last - first
    edges = np.clip(np.append(np.array(ledger.time), last), first, last)
    free = topology.gpus - np.array(ledger.busy, dtype=np.float64)
    waiting = np.array(ledger.queue) > 0
    idle = inner(np.diff(edges), free * waiting) / (topology.gpus * span)
    if not ledger.keeps_segments or ledger.shared:
        return idle, None
    moments = [array("d") for _ in topology.machines]
    changes = [array("i") for _ in topology.machines]
    stretches = ledger.segments
    for began, ended, placement in zip(stretches.starts, stretches.ends, stretches.placements, strict=True):
        start, end = max(began, first), min(ended, last)
        if end > start:
            for machine, mask in placement.slices:
                moments[machine].extend((start, end))
                changes[machine].extend((mask.bit_count(), -mask.bit_count()))
    unused = partly = 0.0
    for each, when, what in zip(topology.machines, moments, changes, strict=True):
        held, since = 0, first
        for now, more in [*sorted(zip(when, what, strict=True)), (last, 0)]:
            unused += (now - since) * (each.gpus - held)
            partly += (now - since) * (each.gpus - held) if held else 0.0
            held, since = held + more, now
    return idle, partly / unused if unused > 0 else None


def _availability(ledger: Ledger, topology: Topology) -> float | None:
    """GPU time of machines that were up, of all there would be, between first submission and last end."""
    if ledger.first_submit is None or ledger.last_end is None or ledger.last_end <= ledger.first_submit:
        return None
    first, last = ledger.first_submit, ledger.last_end
    down = 0.0
    for name, since, until in ledger.outages:
        number = topology.machine_by_name.get(name)
        if number is not None:
            down += max(0.0, min(until, last) - max(since, first)) * topology.machines[number].gpus
    return 1.0 - down / (topology.gpus * (last - first))


def _energy(ledger: Ledger, topology: Topology) -> float | None:
    """GPU-hours held × the data sheet's board power: what the GPUs draw at most. None where a GPU's power is not known,
    nobody kept the stretches, or GPUs were shared."""
    watts = {kind: _watts(kind) for kind in topology.gpu_types}
    if not ledger.keeps_segments or ledger.shared or any(power is None for power in watts.values()):
        return None
    power = [watts[machine.gpu_type] or 0.0 for machine in topology.machines]
    stretches = ledger.segments
    joules = sum((end - start) * placement.gpus * power[placement.slices[0][0]] for start, end, placement
                 in zip(stretches.starts, stretches.ends, stretches.placements, strict=True))  # fmt: skip
    return joules / 3.6e6


def _watts(gpu_type: str) -> float | None:
    from dally.catalog.store import find_gpu
    from dally.core.errors import UserError

    try:
        return find_gpu(gpu_type).power
    except UserError:
        try:
            return find_gpu(gpu_name(gpu_type)).power
        except UserError:
            return None
