"""Claims about what is inside a run and around it: the command, live decisions, links, steps, linear programs."""

from __future__ import annotations

from speed.base import CLUSTERS, QUEUEING, Asked, Shown, groups
from speed.cells import Cell, Row
from speed.plots import Points, slope


def _good(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "failed" not in row]


def _lines(rows: list[Row], x: str, y: str) -> dict[str, Points]:
    return {f"{policy}, {build}" if policy else build: [(row[x], row[y]) for row in own]
            for (policy, build), own in groups(rows).items()}  # fmt: skip


def _steepest(lines: dict[str, Points]) -> tuple[float, str] | None:
    return max(((power, name) for name, points in lines.items() if (power := slope(points)) is not None), default=None)


def setup_cells(asked: Asked) -> list[Cell]:
    return [{"kind": "command", "policy": policy, "trace": "synth:philly", "jobs": jobs, "cluster": CLUSTERS[QUEUEING],
             "load": 0.9, "build": build}
            for policy in ("fifo", "dally") for build in asked.builds for jobs in (100, 1_000, 10_000, 100_000)
            if jobs <= asked.most]  # fmt: skip


def setup(rows: list[Row]) -> Shown:
    good = _good(rows)
    table = [["policy", "build", "jobs", "CPU s in all", "seconds in all", "peak MB"]]
    table += [[f"`{row['policy']}`", row["build"], f"{row['jobs']:,}", f"{row['cpu']:.2f}", f"{row['wall']:.2f}",
               f"{row['peak_mb']:,}"] for row in good]  # fmt: skip
    small = [row["cpu"] for row in good if row["jobs"] == 100]
    said = (f"`dally simulate` of 100 jobs: {max(small) / 0.5:.2f} of the goal of 0.5 s (CPU)" if small
            else "nothing is measured yet")  # fmt: skip
    return Shown(table, said, _lines(good, "jobs", "cpu"), ("jobs", "CPU s in all"))


def live_cells(asked: Asked) -> list[Cell]:
    return [{"kind": "live", "policy": policy, "pending": pending, "cluster": CLUSTERS[10_240], "build": build}
            for policy in ("fifo", "tiresias", "dally[timers=auto]", "dally") for build in asked.builds
            for pending in (100, 1_000, 10_000) if pending <= asked.most]  # fmt: skip


def live(rows: list[Row]) -> Shown:
    good = _good(rows)
    table = [["policy", "build", "pending", "median ms", "p99 ms"]]
    table += [[f"`{row['policy']}`", row["build"], f"{row['pending']:,}", f"{row['median_ms']:.2f}",
               f"{row['p99_ms']:.2f}"] for row in good]  # fmt: skip
    lines = _lines(good, "pending", "median_ms")
    most = _steepest(lines)
    said = ("one queue length alone" if most is None else
            f"a decision grows at most with the pending jobs to the power of {most[0]:.2f} ({most[1]})")  # fmt: skip
    return Shown(table, said, lines, ("pending jobs", "CPU ms of a decision"))


def contention_cells(asked: Asked) -> list[Cell]:
    return [{"kind": "contention", "policy": "", "gangs": gangs, "build": build}
            for build in asked.builds for gangs in (500, 1_000, 2_500, 5_000) if gangs <= asked.most]  # fmt: skip


def contention(rows: list[Row]) -> Shown:
    good = _good(rows)
    table = [["build", "gangs", "links", "jobs changed", "median CPU ms", "p99 CPU ms"]]
    table += [[row["build"], f"{row['gangs']:,}", f"{row['links']:,}", f"{row['touched']:.0f}",
               f"{row['median_ms']:.3f}", f"{row['p99_ms']:.3f}"] for row in good]  # fmt: skip
    lines = _lines(good, "gangs", "median_ms")
    most = _steepest(lines)
    said = ("one size alone" if most is None
            else f"one change among n gangs grows with n to the power of {most[0]:.2f}")  # fmt: skip
    return Shown(table, said, lines, ("gangs", "CPU ms of one change"))


def network_cells(asked: Asked) -> list[Cell]:
    return [{"kind": "network", "policy": "", "build": build} for build in asked.builds]


def network(rows: list[Row]) -> Shown:
    """Microseconds per question; the first is a new step, the last a remembered one."""
    good = _good(rows)
    names = [name for row in good[:1] for name in row if "ResNet" in name]
    table = [["question", *(f"{row['build']}, µs" for row in good)]]
    table += [[name, *(f"{row[name]:.2f}" for row in good)] for name in names]
    said = (f"a remembered step is {good[0][names[0]] / good[0][names[-1]]:,.0f} times cheaper than a new one" if names
            else "nothing is measured yet")  # fmt: skip
    return Shown(table, said)


def lp_cells(asked: Asked) -> list[Cell]:
    """The solver is HiGHS: what is compiled of ours makes no difference to speak of."""
    return [{"kind": "lp", "policy": "", "jobs": jobs, "build": build}
            for build in asked.builds[:1] for jobs in (100, 300, 1_000, 3_000, 10_000)
            if jobs <= asked.most]  # fmt: skip


def lp(rows: list[Row]) -> Shown:
    good = _good(rows)
    points = [(float(row["jobs"]), float(row["cpu"]) * 1e3) for row in good]
    table = [["jobs", "CPU ms"], *([f"{row['jobs']:,}", f"{row['cpu'] * 1e3:,.1f}"] for row in good)]
    power = slope(points)
    said = ("one size alone" if power is None
            else f"an allocation from nothing grows with the jobs to the power of {power:.2f}")  # fmt: skip
    return Shown(table, said, {"max-min": points}, ("jobs", "CPU ms of an allocation"))
