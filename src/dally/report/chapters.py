"""Chapters: parts of a report beyond what every report has, with line plots of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from dally.core.records import dataclass
from dally.report import markup
from dally.report.compared import ReportRun
from dally.report.series import cdf, compact
from dally.report.wording import gpus_text, listed, time_text

MOST_CURVES = 8  # as many as can be told apart

Steps = Sequence[tuple[float, float]]  # (time, value from then on)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Placed after the table of figures. `plots` are drawn by the page's script where `html` has their figures."""

    anchor: str
    link: str
    html: str
    plots: dict[str, Any] = field(default_factory=dict)


def communication(runs: Sequence[ReportRun]) -> Chapter:
    """How long each job communicated with nothing to hide it."""
    series, rows = [], []
    shares = (25, 50, 75, 95, 100)
    for slot, run in enumerate(runs):
        values = run.jobs.comm[run.jobs.finished]
        x, y = cdf(values)
        series.append({"name": run.name, "slot": slot, "x": compact(x), "y": compact(y)})
        found = np.percentile(values, shares) if len(values) else [math.nan] * len(shares)
        mean = float(values.mean()) if len(values) else math.nan
        rows.append([run.name, time_text(mean), *(time_text(float(value)) for value in found)])
    medians = listed([f"{row[0]} {row[3]}" for row in rows])
    drawn = markup.figure(
        "comm-cdf", "Communication per job", "Time in communication that no computation hides, over finished jobs.",
        f"Line chart: cumulative share of finished jobs over exposed communication. Medians: {medians}.",
        markup.table(["policy", "mean", *(f"{share} % within" for share in shares)], rows))  # fmt: skip
    spec = {"series": series, "step": True, "first": 0,
            "x": {"fmt": "time", "kind": "log", "label": "communication of a job (below 1 s drawn at 1 s)",
                  "tip": "communicating up to "},
            "y": {"fmt": "share", "range": [0, 1], "label": "share of finished jobs"}}  # fmt: skip
    html = markup.section("communication", "Communication", "What distance costs each job.", drawn)
    return Chapter("communication", "Communication", html, {"comm-cdf": spec})


def timers(policy: str, levels: Sequence[str], told: dict[tuple[str, int], Steps], end: float) -> Chapter | None:
    """A tuner's timers over time, a plot per level and a curve per GPU demand; None where it never spoke of any."""
    figures, plots = [], {}
    for level in levels:
        curves = sorted((gpus, steps) for (of, gpus), steps in told.items() if of == level)
        curves = [curve for curve in curves if all(math.isfinite(value) for _, value in curve[1])]
        if not curves:
            continue
        # Where there are too many, those that moved most.
        kept = sorted(sorted(curves, key=lambda curve: -len(curve[1]))[:MOST_CURVES])
        name = f"timer-{level}"
        plots[name] = {
            "own": True, "step": True,
            "series": [{"name": gpus_text(str(gpus)), "slot": slot, "x": compact([at for at, _ in steps], 7),
                        "y": compact([value for _, value in steps])} for slot, (gpus, steps) in enumerate(kept)],
            "x": {"fmt": "time", "label": "time since the first submission", "tip": "at ", "to": end},
            "y": {"fmt": "time", "label": f"timer for one {level}"},
        }  # fmt: skip
        rows = [[gpus_text(str(gpus)), str(len(steps) - 1), time_text(min(value for _, value in steps)),
                 time_text(max(value for _, value in steps)), time_text(steps[-1][1])]
                for gpus, steps in curves]  # fmt: skip
        text = "From the first time somebody declined GPUs for it." + (
            f" The {MOST_CURVES} of {len(curves)} demands that changed most." if len(curves) > MOST_CURVES else "")
        alt = f"Line chart of the timer for one {level} over time, per GPU demand: " + listed(
            [f"{row[0]} {row[2]} to {row[3]}" for row in rows]) + "."  # fmt: skip
        table = markup.table(["demand", "changes", "shortest", "longest", "last"], rows)
        figures.append(markup.figure(name, f"Waiting for one {level}", text, alt, table, legend=False))
    if not figures:
        return None
    said = f"How long {policy} lets a gang wait for nearer GPUs, as it tuned it; taken from the reasons it gave."
    html = markup.section("timers", "Timers over time", said, markup.pair_of(*figures))
    return Chapter("timers", "Timers", html, plots)
