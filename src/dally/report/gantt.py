"""The Gantt picture: every stretch of running where they are few, else a heat map and a window in full detail.

Up to MOST_BARS stretches are drawn one by one. Beyond that a screen has fewer pixels than there are bars, so
the page shows the mean share of busy GPUs per machine (or rack) and time bin, and, on demand, every stretch in
one window of time on the first racks. The window is the same for all runs, around the baseline's longest queue.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.report.columns import Bools, Floats, Ints, SegmentColumns
from dally.report.compared import Comparison, ReportRun
from dally.report.series import compact, time_edges

MOST_BARS = 3000
HEAT_BINS = 480
MOST_ROWS = 200
DETAIL_MACHINES = 48


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the picture: machines, or the smallest domains of which there are few enough."""

    names: list[str]
    groups: list[str]  # the domain above each row, written once per run of equal ones
    gpus: Ints
    of_machine: Ints  # row of each machine
    level: str


def picture_rows(topology: Topology) -> Rows:
    level = topology.machine_level
    while level < len(topology.levels) - 1 and len(topology.domains[level]) > MOST_ROWS:
        level += 1
    # Islands live below the machines; at the machine level and above, domains are contiguous machines.
    domains = [topology.domain_of(start, level) for start in _starts(topology, level)]
    of_machine = np.zeros(len(topology.machines), dtype=np.int64)
    for row, domain in enumerate(domains):
        of_machine[domain.start : domain.stop] = row
    return Rows(
        names=[domain.path[-1] if domain.path else topology.name for domain in domains],
        groups=["/".join(domain.path[:-1]) for domain in domains],
        gpus=np.array([domain.gpus for domain in domains], dtype=np.int64),
        of_machine=of_machine,
        level=topology.levels[level].name,
    )


def _starts(topology: Topology, level: int) -> list[int]:
    starts, machine = [], 0
    while machine < len(topology.machines):
        starts.append(machine)
        machine = topology.domain_of(machine, level).stop
    return starts


def heat(segments: SegmentColumns, rows: Rows, edges: Floats) -> NDArray[np.float64]:
    """Mean share of busy GPUs per row and bin: row × bin, exact overlaps, one pass."""
    bins, width = len(edges) - 1, float(edges[1] - edges[0])
    row = rows.of_machine[segments.slice_machine]
    cells = len(rows.names) * (bins + 1)
    level, part = np.zeros(cells), np.zeros(cells)
    for when, sign in ((segments.start, 1.0), (segments.end, -1.0)):
        at = (when[segments.slice_segment] - edges[0]) / width
        index = np.clip(at.astype(np.int64), 0, bins - 1)
        weight = sign * segments.slice_gpus * segments.part[segments.slice_segment]
        flat = row * (bins + 1) + index
        # A start fills the rest of its own bin and all bins after it; an end takes that away again.
        part += np.bincount(flat, weights=weight * (index + 1 - at), minlength=cells)
        level += np.bincount(flat + 1, weights=weight, minlength=cells)
    busy = np.cumsum(level.reshape(-1, bins + 1), axis=1) + part.reshape(-1, bins + 1)
    return busy[:, :bins] / rows.gpus[:, None]


def bars(run: ReportRun, chosen: Bools, rows: Rows, origin: float) -> dict[str, Any]:
    """The chosen slices as bars: one per run of neighbouring GPUs, with its place inside the row."""
    segments, topology = run.segments, run.topology
    first_gpu = np.array([machine.first_gpu for machine in topology.machines])
    base = first_gpu[np.flatnonzero(np.diff(rows.of_machine, prepend=-1))]  # first GPU of each row
    jobs: dict[int, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("job", "row", "first", "count", "segment")}
    for index in np.flatnonzero(chosen):
        machine, segment = int(segments.slice_machine[index]), int(segments.slice_segment[index])
        row = int(rows.of_machine[machine])
        offset = topology.machines[machine].first_gpu - int(base[row])
        job = jobs.setdefault(int(segments.row[segment]), len(jobs))
        for first, count in _bit_runs(int(segments.slice_mask[index])):
            for name, value in (("job", job), ("row", row), ("first", offset + first), ("count", count),
                                ("segment", segment)):  # fmt: skip
                columns[name].append(value)
    used = np.array(columns.pop("segment"), dtype=np.int64)
    lanes = segments.lane[used]
    shared = {name: lanes[:, at].tolist() for at, name in enumerate(("turn", "turns", "place", "packed"))}
    return {
        **columns,
        **(shared if (lanes[:, 1] * lanes[:, 3] > 1).any() else {}),
        "start": compact(segments.start[used] - origin, 8),
        "end": compact(segments.end[used] - origin, 8),
        "level": segments.level[used].tolist(),
        "jobs": [[run.jobs.job_id[row], int(run.jobs.gpus[row])] for row in jobs],
    }


def _bit_runs(mask: int) -> list[tuple[int, int]]:
    runs, position = [], 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        ones = (~mask & (mask + 1)).bit_length() - 1
        runs.append((position + zeros, ones))
        position += zeros + ones
        mask >>= ones
    return runs


def detail_window(comparison: Comparison, machines: int) -> tuple[float, float]:
    """The widest window around the baseline's longest queue in which no run has more than MOST_BARS slices."""
    line = comparison.baseline.timeline
    centre = float(line.time[int(np.argmax(line.queue))])
    half = np.inf
    for run in comparison.runs:
        segments = run.segments
        own = segments.slice_segment[segments.slice_machine < machines]
        away = np.maximum(np.maximum(segments.start[own] - centre, centre - segments.end[own]), 0.0)
        if len(away) > MOST_BARS:
            half = min(half, float(np.partition(away, MOST_BARS)[MOST_BARS]))
    edges = time_edges(comparison, 1)
    # Where more bars than that touch one instant, a sliver of the run around it still shows them all.
    half = max(half, float(edges[1] - edges[0]) / 10_000)
    return max(centre - half, float(edges[0])), min(centre + half, float(edges[1]))


def detail_machines(topology: Topology) -> int:
    """Whole racks from the first on, up to DETAIL_MACHINES machines."""
    above = min(topology.machine_level + 1, len(topology.levels) - 1)
    machines = topology.domain_of(0, above).stop
    while machines < len(topology.machines) and topology.domain_of(machines, above).stop <= DETAIL_MACHINES:
        machines = topology.domain_of(machines, above).stop
    return min(machines, max(DETAIL_MACHINES, 1), len(topology.machines))


def gantt(comparison: Comparison) -> dict[str, Any]:
    """Everything the page needs to draw it, per run, with a sentence that says what is shown."""
    runs = comparison.runs
    if not all(run.keeps_segments for run in runs):
        return {"mode": "none", "said": "The runs kept no record of placements over time, so there is no picture."}
    edges = time_edges(comparison, HEAT_BINS)
    origin, span = float(edges[0]), float(edges[-1] - edges[0])
    slices = max(len(run.segments.slice_segment) for run in runs)
    common = {"span": span, "levels": [level.name for level in comparison.baseline.topology.levels]}
    drawn: list[dict[str, Any]] = []
    if slices <= MOST_BARS and all(len(run.topology.machines) <= MOST_ROWS for run in runs):
        for run in runs:
            rows = picture_rows(run.topology)
            every = np.ones(len(run.segments.slice_segment), dtype=np.bool_)
            drawn.append({"rows": _rows_data(rows), "bars": bars(run, every, rows, origin)})
        said = "Every stretch of running is drawn: one bar per machine, as thick as the GPUs it holds."
        if any("turns" in run["bars"] for run in drawn):
            said += (" Jobs that take turns on the same GPUs lie as thin bars above each other; jobs packed on them,"
                     " which run at once, overlap and are outlined.")  # fmt: skip
        return common | {"mode": "bars", "runs": drawn, "said": said}
    # The same machines for all runs, so that the pictures compare.
    machines = min(detail_machines(run.topology) for run in runs)
    start, stop = detail_window(comparison, machines)
    for run in runs:
        rows = picture_rows(run.topology)
        segments = run.segments
        shares = np.clip(np.round(255 * heat(segments, rows, edges)), 0, 255).astype(np.uint8)
        own = segments.slice_segment
        inside = (segments.slice_machine < machines) & (segments.end[own] > start) & (segments.start[own] < stop)
        fine = _machine_rows(run.topology, machines)
        drawn.append({
            "rows": _rows_data(rows), "heat": base64.b64encode(shares.tobytes()).decode("ascii"),
            "detail": {"rows": _rows_data(fine), "bars": bars(run, inside, fine, origin)},
        })  # fmt: skip
    topology = comparison.baseline.topology
    if slices > MOST_BARS:
        counts = ", ".join(f"{run.name} {len(run.segments):,}" for run in runs)
        reason = f"There are too many stretches of running to draw one by one ({counts})"
    else:
        reason = f"There are too many machines to draw one below the other ({len(topology.machines):,})"
    all_of_them = machines == len(topology.machines)
    where = "on all machines" if all_of_them else f"on the first {machines} of {len(topology.machines):,} machines"
    whose = "the baseline’s" if len(runs) > 1 else "the"
    level = picture_rows(topology).level
    said = (
        f"{reason}, so this is a heat map: the mean share of busy GPUs per {level} in each of "
        f"{HEAT_BINS} time bins. “Zoom to sample” shows every stretch around {whose} longest queue, {where}."
    )
    window = [start - origin, stop - origin]
    return common | {"mode": "heat", "bins": HEAT_BINS, "window": window, "runs": drawn, "said": said}


def _machine_rows(topology: Topology, machines: int) -> Rows:
    own = topology.machines[:machines]
    return Rows(
        names=[machine.path[-1] if machine.path else topology.name for machine in own],
        groups=["/".join(machine.path[:-1]) for machine in own],
        gpus=np.array([machine.gpus for machine in own], dtype=np.int64),
        of_machine=np.arange(len(topology.machines)),
        level="machine",
    )


def _rows_data(rows: Rows) -> dict[str, Any]:
    return {"names": rows.names, "groups": rows.groups, "gpus": rows.gpus.tolist(), "level": rows.level}
