"""From a trace to work: what the duration of a traced job means on the cluster it is simulated on."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Job, Truth
from dally.core.placement import Placement
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.network.model import NetworkModel, Step
from dally.simulator.best import BestPlacement, Known
from dally.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Workload:
    """Work of every job in reference seconds: at speed 1 a second of running does one unit of it. Steps count as the
    seconds they take at the best placement of this cluster."""

    trace: Trace
    work: dict[str, float]
    reference: dict[str, float]  # step time at speed 1
    best_run_time: dict[str, float]  # seconds at the best placement found on the empty cluster
    least_run_time: dict[str, float]  # seconds that no placement can beat: what lower bounds stand on
    # of elastic jobs: (the same on as many GPUs as serve it best, the fewest GPU-seconds it can take)
    elastic: dict[str, tuple[float, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what had to be assumed


@dataclass(frozen=True, slots=True)
class TracedCluster:
    """Where the trace was recorded, if that is not the cluster it is replayed on."""

    topology: Topology
    network: NetworkModel


def prepare(trace: Trace, topology: Topology, network: NetworkModel, *, means: DurationMeans | None = None,
            traced: TracedCluster | None = None, in_seconds: bool = False,
            known: Known | None = None) -> Workload:  # fmt: skip
    """Fix the work of every job before the simulation starts.

    `means` overrides what each job's duration stands for; `traced` is the cluster the durations were measured on;
    `in_seconds`: the network model's steps are real ones, so that work may be given in steps; `known`: what has been
    found out before about this cluster and this network model.
    """
    here = BestPlacement(topology, network, known)
    there = BestPlacement(traced.topology, traced.network) if traced else here
    made = Workload(trace, {}, {}, {}, {})
    counted: Counter[str] = Counter()
    unsure, widest = 0, 1.0
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        shortest = here.shortest(job)
        if shortest is None:
            continue  # the scheduler will turn it away and say why
        best = shortest.step
        if truth.duration is not None:
            work, reference = _reference(job, truth, means or truth.means, there, best, counted)
        elif truth.steps is not None and in_seconds:
            work, reference = truth.steps * best.seconds, best.seconds
        else:
            raise UserError(f"trace {trace.name}, job {job.id}: it counts steps and gives no duration, "
                            "so it needs throughputs (--throughputs FILE) to be simulated on this network "
                            "model")  # fmt: skip
        made.work[job.id], made.reference[job.id] = work, reference
        made.best_run_time[job.id] = work * best.seconds / reference
        made.least_run_time[job.id] = work * shortest.floor / reference
        if not shortest.known:
            unsure += 1
            widest = max(widest, best.seconds / shortest.floor if shortest.floor else float("inf"))
        if job.elastic:
            made.elastic[job.id] = _stretched(job, work, reference, here)
    made.notes.extend(f"{count:,} jobs: {what}" for what, count in counted.most_common())
    if unsure:
        made.notes.append(f"{unsure:,} jobs: the best placement found may not be the best there is; a step there takes "
                          f"up to {widest:.3g} times what is proved to be the least")  # fmt: skip
    return with_deadlines(made)


def with_deadlines(workload: Workload) -> Workload:
    """Deadlines of jobs whose SLO is a multiple of their run time on the best GPUs of this cluster."""
    trace, best = workload.trace, workload.best_run_time
    if not any(job.slo is not None for job in trace.jobs):
        return workload
    jobs = [replace(job, deadline=job.submit_time + job.slo * best[job.id])
            if job.slo is not None and job.deadline is None and job.id in best else job for job in trace.jobs]
    return replace(workload, trace=replace(trace, jobs=jobs))


def _stretched(job: Job, work: float, reference: float, here: BestPlacement) -> tuple[float, float]:
    """No run time and no GPU-seconds of an elastic job are less, whatever its size and placement."""
    fewest, most = job.limits
    shortest = least = float("inf")
    for gpus in range(fewest, most + 1):
        found = here.shortest(job, gpus)
        if found is not None:
            seconds = work * found.floor / reference * job.gpus / gpus
            shortest, least = min(shortest, seconds), min(least, seconds * gpus)
    return shortest, least


def _reference(job: Job, truth: Truth, means: DurationMeans, there: BestPlacement, best_here: Step,
               counted: Counter[str]) -> tuple[float, float]:  # fmt: skip
    """(work, step time at which a second of running does one unit of it)."""
    assert truth.duration is not None
    best = there.step(job) or best_here
    if means is DurationMeans.ONE_GPU:
        # perfect scaling with no communication: the paper's ideal_jct, at speed 1 while computing alone
        return truth.duration / job.gpus, best.compute
    if means is DurationMeans.AS_PLACED and truth.ran_on:
        placement = as_traced(job, truth, there.topology)
        if placement is not None:
            return truth.duration, there.network.step_time(job, placement, 0.0).seconds
        counted["where it ran does not fit this cluster, so its duration is taken at its best placement"] += 1
    return truth.duration, best.seconds


def as_traced(job: Job, truth: Truth, topology: Topology) -> Placement | None:
    """The traced placement on this cluster: on the machines the trace names where they are known here, else on
    neighbouring machines with the same numbers of GPUs (the trace does not say how far apart they were)."""
    counts = [count for _, count in truth.ran_on]
    if sum(counts) != job.gpus or min(counts) < 1:
        return None
    known = [topology.machine_by_name.get(name) for name, _ in truth.ran_on]
    if all(index is not None for index in known) and len(set(known)) == len(known):
        chosen = [(topology.machines[index], count) for index, count in zip(known, counts, strict=True)
                  if index is not None]  # fmt: skip
    else:
        fitting = iter(topology.machines)
        chosen = []
        for count in sorted(counts, reverse=True):
            machine = next((m for m in fitting if m.gpus >= count and job.gpu_type in (None, m.gpu_type)), None)
            if machine is None:
                return None
            chosen.append((machine, count))
    if any(count > machine.gpus for machine, count in chosen):
        return None
    return Placement.of((machine.index, (1 << count) - 1) for machine, count in chosen)
