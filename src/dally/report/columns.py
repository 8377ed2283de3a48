"""The ledger as numpy columns: one entry per job, per stretch of running, and per change of the cluster's load.

A ledger of 100,000 jobs is half a million small Python objects; every figure and plot needs only these arrays,
and they travel between processes for next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.core.ledger import Ledger
from dally.core.topology import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

OUTCOMES = ("finished", "failed", "cancelled", "rejected", "unfinished")


@dataclass(frozen=True, slots=True)
class JobColumns:
    """One entry per job, in order of submission; what has not happened is NaN (times) or −1 (level)."""

    job_id: list[str]
    submit: Floats
    start: Floats  # first time it held GPUs
    end: Floats
    running: Floats
    comm: Floats
    neighbour_loss: Floats
    lost: Floats
    suspended: Floats
    suspensions: Floats
    gpu_seconds: Floats
    comm_gpu_seconds: Floats
    lost_gpu_seconds: Floats
    first_minibatches: Floats  # when the first 100 were done
    gpus: Ints
    level: Ints  # outermost level it was ever placed at
    outcome: Ints  # index into OUTCOMES
    preemptions: Ints
    migrations: Ints
    resizes: Ints
    packs: Ints
    unpacks: Ints

    @property
    def finished(self) -> Bools:
        return np.asarray(self.outcome == OUTCOMES.index("finished"))

    @property
    def jct(self) -> Floats:
        return self.end - self.submit

    @property
    def queueing(self) -> Floats:
        """Seconds without GPUs; sums of many stretches may miss 0 by a rounding, which is no waiting."""
        return np.maximum(self.end - self.submit - self.running, 0.0)

    def count(self, outcome: str) -> int:
        return int(np.count_nonzero(self.outcome == OUTCOMES.index(outcome)))


@dataclass(frozen=True, slots=True)
class SegmentColumns:
    """One entry per stretch of time a job spent on one placement, and one per (stretch, machine) slice of it."""

    row: Ints  # index of the job
    start: Floats
    end: Floats
    gpus: Ints
    level: Ints  # of this placement
    lane: Ints  # per stretch: number of its turn, turns, place in the turn, jobs packed in the turn
    slice_segment: Ints  # index of the stretch
    slice_machine: Ints
    slice_mask: NDArray[np.uint64] | NDArray[np.object_]  # GPUs of the machine as bits; big ints beyond 64 GPUs
    slice_gpus: Ints

    def __len__(self) -> int:
        return len(self.row)

    @property
    def part(self) -> Floats:
        """Part of its GPUs' time a stretch stands for: turns counted alike, packed jobs too."""
        return 1.0 / (self.lane[:, 1] * self.lane[:, 3])


@dataclass(frozen=True, slots=True)
class Timeline:
    """GPUs held and jobs waiting after each change, as steps."""

    time: Floats
    busy: Ints
    queue: Ints


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


def job_columns(ledger: Ledger) -> JobColumns:
    rows = ledger.rows
    count = len(rows)
    outcome = {name: index for index, name in enumerate(OUTCOMES)}

    def floats(values: object) -> Floats:
        return np.fromiter(values, dtype=np.float64, count=count)  # type: ignore[call-overload, no-any-return]

    def ints(values: object) -> Ints:
        return np.fromiter(values, dtype=np.int64, count=count)  # type: ignore[call-overload, no-any-return]

    return JobColumns(
        job_id=[row.job_id for row in rows],
        submit=floats(row.submit for row in rows),
        start=floats(_nan(row.first_start) for row in rows),
        end=floats(_nan(row.end) for row in rows),
        running=floats(row.running for row in rows),
        comm=floats(row.comm for row in rows),
        neighbour_loss=floats(row.neighbour_loss for row in rows),
        lost=floats(row.lost for row in rows),
        suspended=floats(row.suspended for row in rows),
        suspensions=floats(row.suspensions for row in rows),
        gpu_seconds=floats(row.gpu_seconds for row in rows),
        comm_gpu_seconds=floats(row.comm_gpu_seconds for row in rows),
        lost_gpu_seconds=floats(row.lost_gpu_seconds for row in rows),
        first_minibatches=floats(_nan(row.first_minibatches) for row in rows),
        gpus=ints(row.gpus for row in rows),
        level=ints(-1 if row.level is None else row.level for row in rows),
        outcome=ints(outcome[row.outcome] for row in rows),
        preemptions=ints(row.preemptions for row in rows),
        migrations=ints(row.migrations for row in rows),
        resizes=ints(row.resizes for row in rows),
        packs=ints(row.packs for row in rows),
        unpacks=ints(row.unpacks for row in rows),
    )


def timeline(ledger: Ledger) -> Timeline:
    return Timeline(
        np.array(ledger.time, dtype=np.float64),
        np.array(ledger.busy, dtype=np.int64),
        np.array(ledger.queue, dtype=np.int64),
    )


def segment_columns(ledger: Ledger, topology: Topology) -> SegmentColumns:
    segments = ledger.segments
    count = len(segments)
    slices_of = [segment.placement.slices for segment in segments]
    per_segment = np.fromiter(map(len, slices_of), dtype=np.int64, count=count)
    slices = list(chain.from_iterable(slices_of))
    machine = np.fromiter((machine for machine, _ in slices), dtype=np.int64, count=len(slices))
    wide = max(machine.gpus for machine in topology.machines) > 64
    masks = np.array([mask for _, mask in slices], dtype=object if wide else np.uint64)
    slice_gpus = np.fromiter((mask.bit_count() for _, mask in slices), dtype=np.int64, count=len(slices))
    last = np.cumsum(per_segment) - 1
    first = last - per_segment + 1
    return SegmentColumns(
        row=np.fromiter((segment.row for segment in segments), dtype=np.int64, count=count),
        start=np.fromiter((segment.start for segment in segments), dtype=np.float64, count=count),
        end=np.fromiter((segment.end for segment in segments), dtype=np.float64, count=count),
        gpus=np.fromiter((segment.placement.gpus for segment in segments), dtype=np.int64, count=count),
        level=_levels(topology, machine, masks, first, last),
        lane=np.array([segment.lane for segment in segments], dtype=np.int64).reshape(count, 4),
        slice_segment=np.repeat(np.arange(count), per_segment),
        slice_machine=machine,
        slice_mask=masks,
        slice_gpus=slice_gpus,
    )


def _levels(topology: Topology, machine: Ints, masks: NDArray[Any], first: Ints, last: Ints) -> Ints:
    """`Placement.level` for all placements at once: machines are in order, so first and last one decide."""
    own = topology.machine_level
    domains = np.array([each.domains for each in topology.machines], dtype=np.int64)
    a, b = machine[first], machine[last]
    level = np.full(len(first), len(topology.levels) - 1, dtype=np.int64)
    for offset in range(domains.shape[1] - 1, -1, -1):
        level[domains[a, offset] == domains[b, offset]] = own + offset
    if own:
        for index in np.flatnonzero(a == b):
            mask = int(masks[first[index]])
            if any(mask & ~island == 0 for island in topology.machines[a[index]].islands):
                level[index] = 0
    return level
