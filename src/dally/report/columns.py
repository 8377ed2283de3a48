"""The ledger as numpy columns: one entry per job, per stretch of running, and per change of the cluster's load.

A ledger of 100,000 jobs is half a million small Python objects; every figure and plot needs only these arrays,
and they travel between processes for next to nothing.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.core.ledger import Ledger
from dally.core.lives import ALONE, FLOATS, INTS, OUTCOMES
from dally.core.records import dataclass
from dally.core.topology import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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
    interruptions: Ints
    failed_starts: Ints

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


def job_columns(ledger: Ledger) -> JobColumns:
    ledger.settle()
    kept = ledger.lives
    floats = np.array(kept.floats, dtype=np.float64).reshape(len(kept), len(FLOATS))
    ints = np.array(kept.ints, dtype=np.int64).reshape(len(kept), len(INTS))
    named: dict[str, Any] = {name: np.ascontiguousarray(floats[:, at]) for at, name in enumerate(FLOATS)}
    named |= {name: np.ascontiguousarray(ints[:, at]) for at, name in enumerate(INTS)}
    named["start"] = named.pop("first_start")
    return JobColumns(kept.ids, **{each.name: named[each.name] for each in fields(JobColumns)[1:]})


def timeline(ledger: Ledger) -> Timeline:
    return Timeline(
        np.array(ledger.time, dtype=np.float64),
        np.array(ledger.busy, dtype=np.int64),
        np.array(ledger.queue, dtype=np.int64),
    )


def segment_columns(ledger: Ledger, topology: Topology) -> SegmentColumns:
    segments = ledger.segments
    count = len(segments)
    slices_of = [placement.slices for placement in segments.placements]
    per_segment = np.fromiter(map(len, slices_of), dtype=np.int64, count=count)
    lane = np.tile(np.array(ALONE, dtype=np.int64), (count, 1))
    for at, own in segments.lanes.items():
        lane[at] = own
    slices = list(chain.from_iterable(slices_of))
    machine = np.fromiter((machine for machine, _ in slices), dtype=np.int64, count=len(slices))
    wide = max(machine.gpus for machine in topology.machines) > 64
    masks = np.array([mask for _, mask in slices], dtype=object if wide else np.uint64)
    slice_gpus = np.fromiter((mask.bit_count() for _, mask in slices), dtype=np.int64, count=len(slices))
    last = np.cumsum(per_segment) - 1
    first = last - per_segment + 1
    return SegmentColumns(
        row=np.array(segments.rows, dtype=np.int64),
        start=np.array(segments.starts, dtype=np.float64),
        end=np.array(segments.ends, dtype=np.float64),
        gpus=np.fromiter((placement.gpus for placement in segments.placements), dtype=np.int64, count=count),
        level=_levels(topology, machine, masks, first, last),
        lane=lane,
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


def mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def percentile(values: Floats, percent: float) -> float | None:
    """`np.percentile` to the last bit, without the masked arrays that it loads on the way."""
    if not len(values):
        return None
    ordered = np.sort(values)
    place = (len(ordered) - 1) * (percent / 100)
    low = int(place)
    a, b, share = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)]), place - low
    return a + (b - a) * share if share < 0.5 else b - (b - a) * (1 - share)
