"""The links of a cluster by measurement: all-reduces of growing size, a line through their times, and a cluster file.

T(m) = α + β·m per level. A ring over n members gives the level's figures as the network model uses them (network.nccl):
β = 2(n−1)/n / bandwidth, α = launch + 2(n−1) messages, each two hops through a switch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.profiler.inside.ladder import SIZES
from dally.profiler.inside.task import Task
from dally.profiler.launch import HERE, Launch, Machine

DEFAULT_SIZES = (4, 64, 1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 24)


@dataclass(frozen=True, slots=True)
class Rung:
    """All-reduces of one size at one level."""

    size: int
    seconds: float  # median
    fitted: float

    @property
    def off(self) -> float:
        return self.fitted / self.seconds - 1


@dataclass(frozen=True, slots=True)
class Link:
    """One level as it was measured among `members` ranks, one per unit."""

    level: str
    members: int
    latency: float  # α of the whole collective
    per_byte: float  # β
    rungs: tuple[Rung, ...]

    @property
    def bandwidth(self) -> float:
        """Bytes per second of a unit's port."""
        return 2 * (self.members - 1) / self.members / self.per_byte

    @property
    def hop(self) -> float:
        """Seconds per hop that make a ring of so many members take α."""
        from dally.network.nccl import LAUNCH

        return max(0.0, self.latency - LAUNCH) / (2 * (self.members - 1)) / 2


@dataclass(frozen=True, slots=True)
class Fabric:
    """What was found, from the inside outwards."""

    links: tuple[Link, ...]
    racks: int
    machines: int  # per rack
    gpus: int  # ranks per machine
    gpu: str
    backend: str
    notes: tuple[str, ...] = ()


def measure_fabric(
    machines: Sequence[Machine],
    processes: int,
    sizes: Sequence[int] = DEFAULT_SIZES,
    racks: Sequence[int] | None = None,
    patience: float = 120.0,
    say: Callable[[str], None] = lambda text: None,
) -> Fabric:
    """`processes` ranks on each machine; `racks` says in which rack each machine is."""
    machines = machines or (HERE,)
    racks = racks or [0] * len(machines)
    if processes * len(machines) < 2:
        raise UserError("a fabric is measured between at least two processes: give --processes 2 or --machines")
    with tempfile.TemporaryDirectory(prefix="dally-fabric-") as folder:
        run = Launch(
            command=[sys.executable, "-m", "dally.profiler.inside.ladder"],
            processes=processes * len(machines),
            task=Task(folder=folder, warmup=0, steps=0, repeats=0),
            folder=Path(folder),
            machines=machines,
            patience=patience,
            threads=1,
            say=say,
            environment=_environment(sizes),
            places=[f"r{rack}/{machine.name}" for machine, rack in zip(machines, racks, strict=True)],
        )
        outcome = run.run()
    if outcome.trouble is not None:
        raise UserError(f"the fabric could not be measured: {outcome.trouble}")
    return fabric_of([e for events in outcome.records.values() for e in events], outcome.others)


def _environment(sizes: Sequence[int]) -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    return {SIZES: ",".join(map(str, sizes)), "PYTHONPATH": path}


def fabric_of(events: Sequence[Mapping[str, Any]], others: float = 0.0) -> Fabric:
    begin = next(e for e in events if e["event"] == "begin")
    places = [tuple(place) for place in begin["places"]]
    machines = list(dict.fromkeys(places))
    racks = list(dict.fromkeys(rack for rack, _ in machines))
    times: dict[tuple[str, int, int], list[float]] = {}
    for event in events:
        if event["event"] == "ladder":
            key = (event["level"], event["ranks"], event["size"])
            times.setdefault(key, []).append(median(event["times"]))
    links = []
    for level in ("machine", "rack", "cluster"):
        measured = {size: max(seconds) for (name, _, size), seconds in times.items() if name == level}
        if measured:
            members = next(count for name, count, _ in times if name == level)
            links.append(fit(level, members, measured))
    notes = []
    if others > 0.1:
        notes.append(f"other work took {others:.0%} of this host's CPUs meanwhile: links are slower than they need be")
    gpu = "CPU"
    if begin["gpu"]:
        from dally.profiler.readings import gpu_in_catalog

        gpu = gpu_in_catalog(str(begin["gpu"])) or "A100-40GB"
        if gpu_in_catalog(str(begin["gpu"])) is None:
            notes.append(f"{begin['gpu']} is not in the catalog; the file says A100-40GB")
    return Fabric(
        tuple(links),
        len(racks),
        len(machines) // len(racks),
        len(places) // len(machines),
        gpu,
        str(begin["backend"]),
        tuple(notes),
    )


def fit(level: str, members: int, measured: Mapping[int, float]) -> Link:
    """The line with the least sum of |log(fitted / measured)|, which one odd size (a shaper's burst) hardly moves.

    The lines through any two of the points are tried.
    """
    if len(measured) < 2:
        raise UserError(f"level {level!r} was measured at one size only: no line goes through one point")
    points = sorted(measured.items())
    best = (float("inf"), 0.0, 0.0)
    for (m, t), (n, u) in combinations(points, 2):
        beta = max((u - t) / (n - m), 1e-15)  # a larger message is never faster
        alpha = max(t - beta * m, 0.0)
        error = sum(abs(log((alpha + beta * size) / seconds)) for size, seconds in points)
        best = min(best, (error, alpha, beta))
    _, alpha, beta = best
    return Link(level, members, alpha, beta, tuple(Rung(m, t, alpha + beta * m) for m, t in points))


def cluster_file(found: Fabric, name: str, made: str) -> str:
    """The same as a cluster file for simulator and service."""
    by_level = {link.level: link for link in found.links}
    inside = by_level.get("machine")
    lines = [
        "dally-cluster: 1",
        f"name: {name}",
        f"source: measured by dally profile fabric, {made}, {found.backend}",
        "fabric:",
        "  levels:",
    ]
    outer = by_level.get("rack") or by_level.get("cluster")
    port = outer.bandwidth if outer is not None else 1.25e9
    latency = outer.hop if outer is not None else 25e-6
    remark = "" if outer is not None else "  # not measured: one machine"
    lines.append(
        f"    - {{name: rack, kind: switch, bandwidth: {show_rate(port)}, per: machine, "
        f"latency: {show_latency(latency)}}}{remark}"
    )
    if "cluster" in by_level and "rack" in by_level:
        far = by_level["cluster"]
        lines.append(
            f"    - {{name: cluster, kind: switch, bandwidth: {show_rate(far.bandwidth)}, per: unit, "
            f"latency: {show_latency(far.hop)}}}"
        )
    lines += [f"racks: {found.racks}", f"machines: {found.machines}"]
    rate, hop = (inside.bandwidth, inside.hop) if inside is not None else (10e9, 5e-6)
    lines.append("machine:" + ("" if inside is not None else "  # its inside was not measured: one process each"))
    lines += [
        f"  gpu: {found.gpu}",
        f"  gpus: {found.gpus}",
        f"  links: [{{kind: switch, bandwidth: {show_rate(rate)}, latency: {show_latency(hop)}}}]",
        f"  nics: {{count: 1, bandwidth: {show_rate(port)}}}",
    ]
    return "\n".join(lines) + "\n"


def show_rate(value: float) -> str:
    return f"{value / 1e6:.6g} MB/s"


def show_latency(value: float) -> str:
    return f"{value * 1e6:.6g}us"
