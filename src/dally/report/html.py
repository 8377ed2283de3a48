"""The HTML report: one file that opens offline, says who won and why, and shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dally.report import markup
from dally.report.alarm import allowance_text
from dally.report.chapters import Chapter
from dally.report.compared import Comparison, ReportRun, compare
from dally.report.findings import findings, verdict
from dally.report.gantt import gantt
from dally.report.more import figure_rows
from dally.report.page import made_by, render_page
from dally.report.series import BANDS, by_demand, curves, gains, level_shares
from dally.report.wording import (
    count_text,
    gpu_hours_text,
    gpus_text,
    jobs_text,
    listed,
    log_text,
    run_notes,
    share_text,
    spans_decades,
    time_text,
    times_text,
)

__all__ = ["ReportRun", "write_report"]

DEFINITIONS = (
    ("JCT", "job completion time: end minus submission, over finished jobs only"),
    ("told", "what a policy was told of the future and uses: time limits, what was learned, exact durations (which no "
     "real cluster has); speeds from profiles"),
    ("queueing", "seconds between submission and end in which the job held no GPUs"),
    ("makespan", "last end of a finished job minus the first submission"),
    ("× bound", "multiple of a lower bound that no schedule of these jobs on this cluster can beat"),
    ("comm share", "GPU time spent in communication that no computation hides, of all GPU time held"),
    ("utilisation", "GPU time of work that counted, of GPUs × makespan; loading and work done again do not count"),
    ("useful", "utilisation without communication that nothing hides: a GPU that waits for others is used, not useful"),
    ("lost GPU time", "checkpoints, loading, hand-over and work done again"),
)


def write_report(runs: Sequence[ReportRun], path: Path, *, title: str = "Dally report",
                 baseline: str | None = None, notes: Sequence[str] = (),
                 chapters: Sequence[Chapter] = ()) -> None:  # fmt: skip
    """Write the report of one or more runs of the same trace. `baseline` is the run others are measured against;
    without it the first FIFO, else the first run, is. `chapters` are further parts of the page."""
    page = render_report(runs, title=title, baseline=baseline, notes=notes, chapters=chapters)
    path.write_text(page, encoding="utf-8")


def render_report(runs: Sequence[ReportRun], *, title: str, baseline: str | None, notes: Sequence[str],
                  chapters: Sequence[Chapter] = ()) -> str:  # fmt: skip
    comparison = compare(runs, baseline)
    data = _figures(comparison) | {"plots": {name: spec for each in chapters for name, spec in each.plots.items()}}
    first, *others = verdict(comparison)
    lead = '</p><p class="lead">'.join(markup.prose(text) for text in (" ".join(others), _lead(comparison)) if text)
    return render_page(title=title, subject=_subject(comparison), verdict=markup.prose(first), lead=lead,
                       sections=_sections(comparison, data, chapters), footer=_footer(comparison, notes),
                       figures=data)  # fmt: skip


def _subject(comparison: Comparison) -> str:
    topology, summary = comparison.baseline.topology, comparison.baseline.summary
    count = len(topology.machines)
    return (
        f"{jobs_text(summary.jobs)} on {topology.gpus:,} GPUs in {count:,} machine{'' if count == 1 else 's'} "
        f"({topology.name}); {'1 policy' if len(comparison.runs) == 1 else f'{len(comparison.runs)} policies'}"
    )


def _lead(comparison: Comparison) -> str:
    """The second sentence: what the winner's figures are beyond the average."""
    best = comparison.ranked[0]
    mine, base = best.summary, comparison.baseline.summary
    if mine.avg_jct is None or mine.makespan is None:
        return ""
    multiple = times_text(mine.makespan_over_bound)
    said = f"The makespan of {best.name} is {time_text(mine.makespan)}, {multiple} the bound"
    shortest = min((run for run in comparison.runs if run.summary.makespan is not None),
                   key=lambda run: run.summary.makespan or 0.0)  # fmt: skip
    if shortest is not best and time_text(shortest.summary.makespan) != time_text(mine.makespan):
        said += f"; the shortest is {shortest.name}’s with {time_text(shortest.summary.makespan)}"
    said += f". Half of its jobs finish within {time_text(mine.median_jct)}, 95 % within {time_text(mine.p95_jct)}"
    if best is not comparison.baseline and base.median_jct is not None:
        said += f" (under {comparison.baseline.name}: {time_text(base.median_jct)} and {time_text(base.p95_jct)})"
    return f"{said}. GPUs are used {share_text(mine.gpu_utilization)} of the time."


def _figures(comparison: Comparison) -> dict[str, Any]:
    """Everything the page's script draws."""
    runs = comparison.runs
    order = {run.name: slot for slot, run in enumerate(runs)}
    topology = comparison.baseline.topology
    picture = gantt(comparison)
    picture["best"] = order[comparison.ranked[0].name]
    return {
        "runs": [{"name": run.name} for run in runs],
        "baseline": comparison.baseline.name,
        "machineLevel": topology.machine_level,
        "bars": {
            "avg-jct": _bars(runs, "avg_jct", "avg_jct_over_bound"),
            "makespan": _bars(runs, "makespan", "makespan_over_bound"),
            "comm": {"rows": [{"value": run.summary.comm_share or 0.0, "text": share_text(run.summary.comm_share)}
                              for run in runs]},
            "lost": {"rows": [{"value": run.summary.lost_gpu_seconds,
                               "text": gpu_hours_text(run.summary.lost_gpu_seconds)} for run in runs]},
            "preemptions": {"rows": [_preemption_bar(run) for run in runs]},
        },
        "curves": curves(comparison),
        "demand": by_demand(comparison),
        "bands": list(BANDS),
        "gains": [gain | {"slot": order[gain["name"]]} for gain in gains(comparison)],
        "levels": {"names": [level.name for level in topology.levels],
                   "shares": [[round(float(share), 4) for share in level_shares(run)] for run in runs]},
        "gantt": picture,
    }  # fmt: skip


def _preemption_bar(run: ReportRun) -> dict[str, Any]:
    stopped, moved = run.summary.preemptions, run.summary.migrations
    return {"value": stopped + moved, "text": count_text(stopped), "note": f"+ {moved:,} moves" if moved else ""}


def _bars(runs: Sequence[ReportRun], figure: str, multiple: str) -> dict[str, Any]:
    rows = []
    for run in runs:
        value, times = getattr(run.summary, figure), getattr(run.summary, multiple)
        rows.append({"value": value or 0.0, "text": time_text(value),
                     "note": "" if times is None else f"{times_text(times)} bound{_impossible(times)}"})  # fmt: skip
    bound = _common_bound(runs, figure)
    return {"rows": rows, "ref": bound and {"value": bound, "label": f"lower bound {time_text(bound)}"},
            "log": spans_decades([getattr(run.summary, figure) for run in runs])}  # fmt: skip


def _impossible(multiple: float) -> str:
    return " (impossible)" if multiple < 1 - 1e-9 else ""


def _common_bound(runs: Sequence[ReportRun], figure: str) -> float | None:
    """Where different jobs finished the bounds differ: one line would be wrong for some run."""
    bounds: set[float | None] = {getattr(run.summary.lower_bound, figure) for run in runs}
    return bounds.pop() if len(bounds) == 1 else None


def _sections(comparison: Comparison, data: dict[str, Any], chapters: Sequence[Chapter]) -> str:
    several = len(comparison.runs) > 1
    links = [("table", "Table"), *((each.anchor, each.link) for each in chapters), ("why", "Why"),
             ("times", "Completion and waiting"), ("time", "Over time"), ("machines", "Machines"),
             ("demand", "By GPU demand")]  # fmt: skip
    if several:
        links.append(("gained", "Gained and lost"))
    links += [("costs", "Distance and preemption"), ("notes", "Notes")]
    nav = "".join(f'<a href="#{anchor}">{text}</a>' for anchor, text in links)
    return "".join([
        f'<nav aria-label="Sections">{nav}</nav>', _table_section(comparison),
        *(each.html for each in chapters),
        markup.section("why", "Why", "Computed from the runs: what each policy does to jobs, and what it pays "
                       "for it. Beside the names: rank and value of average JCT.",
                       markup.why_cards(comparison, findings(comparison))),
        _times_section(comparison), _load_section(comparison, data), _gantt_section(data),
        _demand_section(comparison, data), _gains_section(comparison, data) if several else "",
        _costs_section(comparison, data),
    ])  # fmt: skip


def _table_section(comparison: Comparison) -> str:
    def caption(text: str, field: str) -> str:
        return text + log_text([getattr(run.summary, field) for run in comparison.runs])

    shorter = "Shorter is better; nothing can be left of the dashed line."
    if _common_bound(comparison.runs, "avg_jct") is None:
        shorter = "Shorter is better; the policies have different lower bounds."
    if any(run.summary.alarm for run in comparison.runs):
        shorter = "What is left of its lower bound cannot be: read the first sentence of this page."
    figures = [
        markup.figure(name, title, caption(text, field), _bar_alt(comparison, name, title),
                      _figure_table(comparison, field, multiple), legend=False)
        for name, title, text, field, multiple in (
            ("avg-jct", "Average JCT", shorter, "avg_jct", "avg_jct_over_bound"),
            ("makespan", "Makespan", "From the first submission to the last end.", "makespan",
             "makespan_over_bound"))
    ]  # fmt: skip
    sharing = markup.sharing_rows(comparison.runs)
    words = ("★ marks the best of a column among those told the same of the future. "
            "Multiples are of the lower bound, which no schedule can beat.")
    said = " ".join(filter(None, [words, allowance_text(comparison.runs[0].summary.lower_bound)]))
    if sharing:
        said += (" The second table is about GPUs that were shared: the mean time from submission to the hundredth"
                 " mini-batch, and how often jobs were suspended, moved, packed, unpacked and resized.")  # fmt: skip
    return markup.section(
        "table", "The figures", said,
        f'<div class="card">{markup.summary_rows(comparison.runs)}{sharing}{_more(comparison)}</div>',
        f'<div class="spaced">{markup.pair_of(*figures)}</div>',
    )  # fmt: skip


def _more(comparison: Comparison) -> str:
    head, rows = figure_rows([replace(run.summary, policy=run.name) for run in comparison.runs])
    return f"<details><summary>All figures</summary>{markup.table(head, rows)}</details>"


def _bar_alt(comparison: Comparison, field: str, title: str) -> str:
    attribute = field.replace("-", "_")
    parts = [f"{run.name} {time_text(getattr(run.summary, attribute))}" for run in comparison.runs]
    return f"Bar chart. {title}: {listed(parts)}."


def _figure_table(comparison: Comparison, field: str, multiple: str) -> str:
    rows = [[run.name, time_text(getattr(run.summary, field)), times_text(getattr(run.summary, multiple)),
             time_text(getattr(run.summary.lower_bound, field))] for run in comparison.runs]  # fmt: skip
    return markup.table(["policy", "value", "× bound", "lower bound"], rows)


def _times_section(comparison: Comparison) -> str:
    def alt(what: str, field: str) -> str:
        parts = [f"{run.name} {time_text(getattr(run.summary, field))}" for run in comparison.runs]
        return f"Line chart: cumulative share of finished jobs over {what}. Medians: {listed(parts)}."

    return markup.section(
        "times", "Completion and waiting", "How many jobs are done, or have stopped waiting, within a given time.",
        markup.pair_of(
            markup.figure("jct-cdf", "Job completion time",
                          "Further up and left is better. At most 400 points per curve.",
                          alt("JCT", "median_jct"), markup.quantile_table(comparison, "jct")),
            markup.figure("queueing-cdf", "Queueing", "Time without GPUs between submission and end.",
                          alt("queueing", "median_queueing"), markup.quantile_table(comparison, "queueing"))),
        how="Drag to zoom, double-click to reset; on the keyboard, arrows read values, + zooms and 0 resets. "
            "Click a policy in a legend to hide it everywhere.",
    )  # fmt: skip


def _load_section(comparison: Comparison, data: dict[str, Any]) -> str:
    bins = f"Mean over bins of {time_text(data['curves']['bin'])}."
    used = [f"{run.name} {share_text(run.summary.gpu_utilization)}" for run in comparison.runs]
    peaks = [f"{run.name} {int(run.timeline.queue.max()) if len(run.timeline.queue) else 0:,}"
             for run in comparison.runs]  # fmt: skip
    load, queue = ([each["y"] for each in data["curves"][name]] for name in ("load", "queue"))
    return markup.section(
        "time", "Over time", "What the cluster and its queue looked like while the trace ran.",
        markup.pair_of(
            markup.figure("load", "GPUs held by jobs", bins, f"Line chart of the share of GPUs held over time. "
                          f"Utilisation over the whole run: {listed(used)}.",
                          markup.load_table(comparison, load, "share")),
            markup.figure("queue", "Queue length", bins,
                          f"Line chart of the number of waiting jobs over time. Longest queue: {listed(peaks)}.",
                          markup.load_table(comparison, queue, "count"))),
    )  # fmt: skip


def _gantt_section(data: dict[str, Any]) -> str:
    picture = data["gantt"]
    intro = "Who held which machines when, grouped by rack."
    if picture["mode"] == "none":
        return markup.section("machines", "Machines", picture["said"])
    rows = picture["runs"][picture["best"]]["rows"]
    facts = markup.table(["what", "figure"], [["rows", f"{len(rows['names']):,} ({rows['level']})"],
                                             ["time shown", time_text(picture["span"])]])  # fmt: skip
    alt = f"Gantt picture by machine over {time_text(picture['span'])}. {picture['said']}"
    drawn = markup.figure("gantt", "Gantt by rack and machine", picture["said"], alt, facts, legend=False)
    return markup.section("machines", "Machines", intro, drawn, how="Drag to zoom; arrows, + and − work too.")


def _demand_section(comparison: Comparison, data: dict[str, Any]) -> str:
    demand = data["demand"]

    def fallback(what: str) -> str:
        head = ["policy", *(gpus_text(name) for name in demand["names"])]
        each_run = zip(comparison.runs, demand[what], strict=True)
        rows = [[run.name, *map(time_text, values)] for run, values in each_run]
        return markup.table(head, [*rows, ["jobs", *map(count_text, demand["jobs"])]])

    classes = listed([gpus_text(name) for name in demand["names"]])
    return markup.section(
        "demand", "By GPU demand", "Averages hide who pays: the same figures by the GPUs a job asks for.",
        markup.pair_of(
            markup.figure("jct-demand", "JCT by GPU demand", "Mean over finished jobs of that size.",
                          f"Point chart of mean JCT per policy for jobs of {classes}.", fallback("jct")),
            markup.figure("queueing-demand", "Queueing by GPU demand",
                          "Mean over finished jobs of that size; on a logarithmic axis below 1 s is drawn at 1 s.",
                          f"Point chart of mean queueing per policy for jobs of {classes}.", fallback("queueing"))),
    )  # fmt: skip


def _gains_section(comparison: Comparison, data: dict[str, Any]) -> str:
    base = comparison.baseline.name
    found = data["gains"]
    bands = markup.table(["policy", *BANDS, "jobs compared"],
                         [[g["name"], *map(share_text, g["bands"]), f"{g['jobs']:,}"] for g in found])  # fmt: skip
    change = markup.table(
        ["policy", *(gpus_text(name) for name in comparison.classes.names)],
        [[g["name"], *map(_change, g["change"])] for g in found],
        caption=f"Change of mean JCT against {base}; minus is sooner",
        swatches=[g["slot"] for g in found],
    )
    return markup.section(
        "gained", f"Gained and lost against {base}",
        f"Each job that finished under both, compared with itself under {base}.",
        markup.pair_of(
            markup.figure("gains", "Shares of jobs", f"JCT against {base}.",
                          "Stacked bars: " + "; ".join(
                              f"{g['name']}: {share_text(g['bands'][0] + g['bands'][1])} sooner, "
                              f"{share_text(g['bands'][3] + g['bands'][4])} later" for g in found) + ".",
                          bands, legend=False),
            markup.figure("ratio", "From the best off to the worst off",
                          "Below the dashed line a job finishes sooner. Ratios beyond 1,000 are cut.",
                          f"Line chart of each job's JCT over its JCT under {base}, jobs sorted by it.", bands,
                          without=base)),
        f'<div class="card spaced">{change}'
        f"<details><summary>Jobs that gained and lost most</summary>{_extremes(comparison)}</details></div>",
    )  # fmt: skip


def _change(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:+.0f} %".replace("-", "−")


def _extremes(comparison: Comparison, most: int = 5) -> str:
    rows = []
    for run in comparison.others:
        paired = comparison.paired[run.name]
        order = np.argsort(paired.saved, kind="stable")
        for index in [*order[::-1][:most], *order[:most][::-1]]:
            saved = float(paired.saved[index])
            if saved:
                word = "sooner" if saved > 0 else "later"
                rows.append([run.name, paired.job_id[index], str(paired.gpus[index]),
                             time_text(paired.base_jct[index]), time_text(paired.jct[index]),
                             f"{time_text(abs(saved))} {word}"])  # fmt: skip
    head = ["policy", "job", "GPUs", f"JCT under {comparison.baseline.name}", "JCT", "difference"]
    return markup.table(head, rows)


def _costs_section(comparison: Comparison, data: dict[str, Any]) -> str:
    names = data["levels"]["names"]
    rows = [[run.name, *map(share_text, shares)] for run, shares in zip(comparison.runs, data["levels"]["shares"],
                                                                       strict=True)]  # fmt: skip
    figures = [markup.figure(
        "levels", "Where the GPU time is spent",
        "Share of GPU time by the smallest unit that holds the whole gang.",
        "Stacked bars of GPU time per placement level: " + "; ".join(
            f"{row[0]}: {listed([f'{name} {share}' for name, share in zip(names, row[1:], strict=True)])}"
            for row in rows) + ".", markup.table(["policy", *names], rows), legend=False)]  # fmt: skip
    for plot, title, text, field in (
        ("comm", "Communication share", "GPU time in communication that nothing hides.", "comm_share"),
        ("preemptions", "Preemptions", "How often a running job was stopped or moved.", "preemptions"),
        ("lost", "GPU time lost", "Checkpoints, loading, hand-over and work done again.", "lost_gpu_seconds"),
    ):
        texts = [row["text"] for row in data["bars"][plot]["rows"]]
        cells = [[run.name, each] for run, each in zip(comparison.runs, texts, strict=True)]
        alt = f"Bar chart. {title}: {listed([' '.join(pair) for pair in cells])}."
        fallback = markup.table(["policy", title.lower()], cells)
        if any(getattr(run.summary, field) for run in comparison.runs):
            figures.append(markup.figure(plot, title, text, alt, fallback, legend=False))
    silent = [] if len(figures) == 4 else ["What is not shown here was zero in every run."]
    text = "Gangs that are spread wide communicate more slowly; jobs that are stopped lose time."
    return markup.section("costs", "Distance and preemption", " ".join([text, *silent]), markup.pair_of(*figures))


def _footer(comparison: Comparison, notes: Sequence[str]) -> str:
    said = [*run_notes([run.summary for run in comparison.runs]), *notes]
    items = "".join(f"<li>{escape(note)}</li>" for note in said) or "<li>Nothing to add: every job counts.</li>"
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in DEFINITIONS)
    return (f'<h2 id="notes">Notes</h2><ul class="notes">{items}</ul><h2>What the words mean</h2><dl>{terms}</dl>'
            + made_by())  # fmt: skip
