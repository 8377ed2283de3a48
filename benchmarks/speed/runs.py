"""Claims about whole runs: jobs per CPU second under queueing, and how that changes with jobs, GPUs and load."""

from __future__ import annotations

from collections.abc import Callable

from speed.base import CLUSTERS, JOBS, LOADS, QUEUEING, SEED, Asked, Shown, groups
from speed.cells import Cell, Row
from speed.plots import Points, slope


def _cell(policy: str, build: str, jobs: int | None, gpus: int, load: float | None, **more: object) -> Cell:
    return {
        "kind": "run",
        "policy": policy,
        "trace": "synth:philly",
        "jobs": jobs,
        "cluster": CLUSTERS[gpus],
        "load": load,
        "seed": SEED,
        "warm": True,
        "build": build,
        **more,
    }


def _each(asked: Asked, make: Callable[[str, str], list[Cell]]) -> list[Cell]:
    return [
        cell
        for policy in asked.policies
        for build in asked.builds
        for cell in make(policy, build)
        if (cell.get("jobs") or 0) <= asked.most
    ]


def _rate(row: Row) -> float:
    return float(row["done"]) / max(float(row["cpu"]), 1e-9)


def _rate_text(row: Row | None) -> str:
    if row is None:
        return "–"
    if "failed" in row:
        return "failed"
    return f"{_rate(row):,.0f}" + ("" if row["complete"] else " (stopped)")


def queueing_cells(asked: Asked) -> list[Cell]:
    return _each(asked, lambda policy, build: [_cell(policy, build, 20_000, QUEUEING, load) for load in (0.9, 1.1)])


def queueing(rows: list[Row]) -> Shown:
    head = [
        "policy",
        "build",
        "load",
        "jobs per CPU s",
        "µs per event",
        "events per job",
        "waited",
        "longest queue",
        "preemptions per job",
    ]
    table = [head]
    for row in sorted(
        (row for row in rows if "failed" not in row), key=lambda row: (row["load"], row["build"], -_rate(row))
    ):
        jobs = row["done"]
        table.append(
            [
                f"`{row['policy']}`",
                row["build"],
                f"{row['load']:g}",
                _rate_text(row),
                f"{row['cpu'] / row['events'] * 1e6:.0f}",
                f"{row['events'] / jobs:.1f}",
                f"{row['waited']:.0%}",
                f"{row['queue']:,}",
                f"{row['preempted'] / jobs:.2f}",
            ]
        )
    ratios = []
    for build, goal in (("pure", 2000), ("compiled", 5000)):
        own = [row for row in rows if row["build"] == build and "failed" not in row]
        if own:
            worst = min(own, key=_rate)
            ratios.append(
                f"{build}: the slowest is {worst['policy']} at load {worst['load']:g}, {_rate(worst) / goal:.2f} times "
                f"the goal of {goal:,} jobs per CPU second"
            )
    return Shown(table, "; ".join(ratios) or "nothing is measured yet")


def _grown(rows: list[Row], axis: str, low: int, high: int, goal: float, what: str) -> Shown:
    """Jobs per CPU second along an axis, the exponent of CPU per job over it, and how much more it is at the end."""
    there = sorted({row[axis] for row in rows if "failed" not in row})
    table = [
        ["policy", "build", *(f"{point:,} {what}" for point in there), "exponent", f"CPU per job, {low:,} → {high:,}"]
    ]
    lines: dict[str, Points] = {}
    worst: tuple[float, str] = (0.0, "")
    for (policy, build), own in groups(rows).items():
        by = {row[axis]: row for row in own if "failed" not in row}
        cost = [(float(point), 1.0 / _rate(row)) for point, row in by.items()]
        power = slope([pair for pair in cost if pair[0] >= low])
        ratio = _rate(by[low]) / _rate(by[high]) if low in by and high in by else None
        if ratio is not None and ratio > worst[0]:
            worst = ratio, f"{policy}, {build}"
        table.append(
            [
                f"`{policy}`",
                build,
                *(_rate_text(by.get(point)) for point in there),
                "–" if power is None else f"{power:+.2f}",
                "–" if ratio is None else f"{ratio:.2f} ×",
            ]
        )
        lines[f"{policy}, {build}"] = [(float(point), _rate(row)) for point, row in by.items()]
    said = (
        f"CPU per job grows at most {worst[0]:.2f} × from {low:,} to {high:,} {what} ({worst[1]}); "
        f"the goal is {goal:g} ×"
        if worst[1]
        else f"not both of {low:,} and {high:,} {what} are measured for any policy"
    )
    return Shown(table, said, lines, (what, "jobs per CPU second"))


def jobs_cells(asked: Asked) -> list[Cell]:
    return _each(asked, lambda policy, build: [_cell(policy, build, jobs, QUEUEING, 0.9) for jobs in JOBS])


def jobs(rows: list[Row]) -> Shown:
    return _grown(rows, "jobs", 10_000, 1_000_000, 1.3, "jobs")


def gpus_cells(asked: Asked) -> list[Cell]:
    return _each(asked, lambda policy, build: [_cell(policy, build, 20_000, gpus, 0.9) for gpus in CLUSTERS])


def gpus(rows: list[Row]) -> Shown:
    return _grown(rows, "gpus", 640, 40_960, 1.5, "GPUs")


def load_cells(asked: Asked) -> list[Cell]:
    return _each(asked, lambda policy, build: [_cell(policy, build, 20_000, QUEUEING, load) for load in LOADS])


def load(rows: list[Row]) -> Shown:
    there = sorted({row["load"] for row in rows if "failed" not in row})
    table = [["policy", "build", *(f"load {load:g}" for load in there), "exponent over the queue"]]
    lines: dict[str, Points] = {}
    worst: tuple[float, str] = (0.0, "")
    for (policy, build), own in groups(rows).items():
        by = {row["load"]: row for row in own if "failed" not in row}
        power = slope([(float(row["queue"]), float(row["cpu"]) / row["events"]) for row in by.values()])
        table.append(
            [
                f"`{policy}`",
                build,
                *(f"{_rate_text(by[load])} (queue {by[load]['queue']:,})" if load in by else "–" for load in there),
                "–" if power is None else f"{power:+.2f}",
            ]
        )
        lines[f"{policy}, {build}"] = [(float(row["queue"]), row["cpu"] / row["events"] * 1e6) for row in by.values()]
        if power is not None and power > worst[0]:
            worst = power, f"{policy}, {build}"
    said = f"CPU per event grows at most with the queue to the power of {worst[0]:.2f} ({worst[1]})"
    return Shown(
        table,
        said if worst[1] else "CPU per event grows with no policy's queue",
        lines,
        ("longest queue", "µs per event"),
    )


def million_cells(asked: Asked) -> list[Cell]:
    return _each(
        asked, lambda policy, build: [_cell(policy, build, jobs, 10_240, 0.9) for jobs in (10_000, 100_000, 1_000_000)]
    )


def memory(rows: list[Row]) -> Shown:
    table = [["policy", "build", "jobs", "CPU s", "set-up CPU s", "jobs per CPU s", "peak MB", "bytes per job"]]
    lines: dict[str, Points] = {}
    said = "not measured at a million jobs yet"
    for (policy, build), own in groups(rows).items():
        own = sorted((row for row in own if "failed" not in row), key=lambda row: row["jobs"])
        for before, row in zip([None, *own], own, strict=False):
            more = (
                "–"
                if before is None
                else f"{(row['peak_mb'] - before['peak_mb']) * 2**20 / (row['jobs'] - before['jobs']):,.0f}"
            )
            table.append(
                [
                    f"`{policy}`",
                    build,
                    f"{row['jobs']:,}",
                    f"{row['cpu']:,.1f}",
                    f"{row['setup']:,.1f}",
                    _rate_text(row),
                    f"{row['peak_mb']:,}",
                    more,
                ]
            )
            if row["jobs"] == 1_000_000 and policy == "dally":
                said = (
                    f"dally, {build}, a million jobs on 10,240 GPUs: stopped after {row['cpu']:,.0f} s of CPU, when "
                    f"{row['done']:,} had ended, with {row['peak_mb'] / 2048:.2f} of the goal of 2 GB"
                    if not row["complete"]
                    else
                    f"dally, {build}, a million jobs on 10,240 GPUs: {row['cpu']:,.0f} s of CPU, "
                    f"{row['cpu'] / 300:.2f} of the goal of 5 minutes, and {row['peak_mb'] / 2048:.2f} of that of 2 GB"
                )
        lines[f"{policy}, {build}"] = [(float(row["jobs"]), float(row["peak_mb"])) for row in own]
    return Shown(table, said, lines, ("jobs", "peak MB"))


def philly_cells(asked: Asked) -> list[Cell]:
    return [
        {
            "kind": "run",
            "policy": policy,
            "trace": "philly",
            "cluster": "7x8x8",
            "seed": SEED,
            "warm": True,
            "build": build,
        }
        for policy in asked.policies
        for build in asked.builds
    ]


def philly(rows: list[Row]) -> Shown:
    goals = {"fifo": 20, "fifo[backfill=true]": 20, "srtf": 20, "las": 20, "tiresias": 20, "dally": 40, "gandiva": 40}
    table = [
        [
            "policy",
            "build",
            "CPU s",
            "jobs per CPU s",
            "events",
            "longest queue",
            "preemptions",
            "goal, CPU s",
            "of the goal",
        ]
    ]
    worst: tuple[float, str] = (0.0, "")
    for row in (row for row in rows if "failed" not in row):
        goal = goals.get(row["policy"])
        share = None if goal is None else row["cpu"] / goal
        table.append(
            [
                f"`{row['policy']}`",
                row["build"],
                f"{row['cpu']:,.1f}",
                _rate_text(row),
                f"{row['events']:,}",
                f"{row['queue']:,}",
                f"{row['preempted']:,}",
                "–" if goal is None else str(goal),
                "–" if share is None else f"{share:.2f}",
            ]
        )
        if share is not None and share > worst[0]:
            worst = share, f"{row['policy']}, {row['build']}"
    return Shown(
        table, f"the slowest takes {worst[0]:.2f} of its goal ({worst[1]})" if worst[1] else "nothing is measured yet"
    )
