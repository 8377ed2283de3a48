"""The twin as one page to forward: what was assumed, the back-test with its verdict, and then what would have been."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dally.experiments.folder import write_json
from dally.experiments.naming import make_folder
from dally.experiments.twin.backtest import BackTest
from dally.experiments.twin.history import partition_of
from dally.experiments.twin.tables import groups_if_table, groups_table, held_row, off_text, tried_table, what_if_table
from dally.experiments.twin.trip import Twin
from dally.report import markup
from dally.report.page import made_by, render_page
from dally.report.series import cdf, compact
from dally.report.wording import jobs_text, listed, log_text, spans_decades, time_text

RECORDED, SIMULATED = "recorded", "simulated"
_OVER_TIME = 40  # points of the curves over time


def write_twin(twin: Twin, document: dict[str, Any], assumptions: Sequence[str], out: Path) -> None:
    """`twin.json`, `jobs.csv` with every measured job, and `twin.html`."""
    make_folder(out, out)
    write_json(document, out / "twin.json")
    write_jobs(twin.test, out / "jobs.csv")
    (out / "twin.html").write_text(render_twin(twin, assumptions), encoding="utf-8")


def write_jobs(test: BackTest, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["job", "user", "partition", "gpus", "submit", "wait_recorded", "wait_simulated", "jct_recorded",
                       "jct_simulated"])  # fmt: skip
        for index, each in enumerate(test.jobs):
            job = each.job
            both = test.actual.wait, test.simulated.wait, test.actual.jct, test.simulated.jct
            rows.writerow([job.id, job.user or "", partition_of(job), job.gpus, f"{job.submit_time:g}",
                           *(f"{float(values[index]):.3f}" for values in both)])  # fmt: skip


def render_twin(twin: Twin, assumptions: Sequence[str]) -> str:
    test = twin.test
    names = [RECORDED, SIMULATED, *(each.title for each in twin.what_ifs)]
    plots: dict[str, Any] = {}
    bars: dict[str, Any] = {}
    sections = [_assumed(assumptions), _back_test(twin, plots), _misfit(twin)]
    if twin.what_ifs:
        sections.append(_what_ifs(twin, bars))
    topology = twin.topology
    return render_page(
        title=f"Twin of {topology.name}",
        subject=f"{jobs_text(test.whole.jobs)} of {twin.history.trace.name} on {topology.gpus:,} GPUs in "
                f"{len(topology.machines):,} machines ({topology.name}); replayed under {test.policy}",
        verdict=markup.prose(twin.verdict.headline), lead=markup.prose(twin.verdict.advice),
        sections="".join(sections), footer=_footer(), figures={"runs": [{"name": name} for name in names], "bars": bars,
                                                              "plots": plots})  # fmt: skip


def _items(texts: Sequence[str]) -> str:
    return f'<div class="card"><ul>{"".join(f"<li>{markup.prose(text)}</li>" for text in texts)}</ul></div>'


def _assumed(assumptions: Sequence[str]) -> str:
    return markup.section("assumed", "What this stands on", "Read this before any figure.", _items(assumptions))


def _back_test(twin: Twin, plots: dict[str, Any]) -> str:
    test = twin.test
    parts = [f'<div class="card">{markup.table(*groups_table(test))}</div>']
    for what, title in (("user", "By user, those with most jobs first"), ("account", "By account"),
                        ("hour", "By the hour of submission")):  # fmt: skip
        if test.groups[what]:
            head = groups_table(test, ())[0]
            rows = [held_row(each, "") for each in test.groups[what]]
            parts.append(f"<details><summary>{title}</summary>{markup.table(head, rows)}</details>")
    parts.append(markup.pair_of(_waits(test, plots), _over_time(test, plots)))
    if twin.fit is not None:
        table = markup.table(*tried_table(twin.fit))
        parts.append(f"<details><summary>Policies that were tried on {twin.fit.fitted_on:,} jobs"
                     f"</summary>{table}</details>")  # fmt: skip
    return markup.section("backtest", "First: does the model do what the cluster did?",
                          f"The recorded jobs were submitted again to a simulated cluster under {test.policy} "
                          f"({twin.how}). Nothing of what was decided is given to it.", *parts)  # fmt: skip


def _waits(test: BackTest, plots: dict[str, Any]) -> str:
    series, rows = [], []
    for slot, (name, values) in enumerate(((RECORDED, test.actual.wait), (SIMULATED, test.simulated.wait))):
        x, y = cdf(values)
        series.append({"name": name, "slot": slot, "x": compact(x), "y": compact(y)})
        rows.append([name, *(time_text(float(value)) for value in np.percentile(values, (25, 50, 75, 90, 99)))])
    plots["waits"] = {"series": series, "step": True, "first": 0, "own": True,
                      "x": {"fmt": "time", "kind": "log", "label": "wait of a job (below 1 s drawn at 1 s)",
                            "tip": "waiting up to "},
                      "y": {"fmt": "share", "range": [0, 1], "label": "share of jobs"}}  # fmt: skip
    alt = f"Line chart: cumulative share of jobs over waits. Medians: {rows[0][2]} recorded, {rows[1][2]} simulated."
    return markup.figure("waits", "Waits", "How many jobs have stopped waiting within a given time.", alt,
                         markup.table(["", *(f"{share} % within" for share in (25, 50, 75, 90, 99))], rows),
                         legend=False)  # fmt: skip


def _over_time(test: BackTest, plots: dict[str, Any]) -> str:
    count = min(_OVER_TIME, max(1, len(test.jobs) // 10))
    submit = np.array([each.job.submit_time for each in test.jobs])
    parts = np.array_split(np.arange(len(submit)), count)
    middle = [float(submit[part].mean()) for part in parts]
    series, rows = [], []
    for slot, (name, values) in enumerate(((RECORDED, test.actual.wait), (SIMULATED, test.simulated.wait))):
        means = [float(values[part].mean()) for part in parts]
        series.append({"name": name, "slot": slot, "x": middle, "y": means})
        fifths = np.array_split(values, 5)
        rows.append([name, *(time_text(float(part.mean())) if len(part) else "–" for part in fifths)])
    plots["over-time"] = {"series": series, "nearest": True, "own": True,
                          "x": {"fmt": "time", "label": "time of submission", "tip": "around ", "fromZero": False},
                          "y": {"fmt": "time", "label": "mean wait"}}  # fmt: skip
    return markup.figure("over-time", "Waits over time", f"Mean of about {max(1, len(submit) // count)} jobs each.",
                         "Line chart of the mean wait over time, recorded and simulated.",
                         markup.table(["", *(f"fifth {k}" for k in range(1, 6))], rows), legend=False)  # fmt: skip


def _misfit(twin: Twin) -> str:
    whole, chance = twin.test.whole, twin.test.wait.chance
    text = (f"The replay's average wait is off by {off_text(whole.wait_bias, whole.actual_wait)}, and by "
            f"{time_text(chance)} more or less from one stretch of time to the next.")  # fmt: skip
    return markup.section("misfit", "What may explain the rest", text, _items(twin.explained))


def _what_ifs(twin: Twin, bars: dict[str, Any]) -> str:
    whole = twin.test.whole
    figures = []
    for name, title, values in (
        ("wait", "Average wait", [whole.actual_wait, whole.simulated_wait, *(each.avg_wait for each in twin.what_ifs)]),
        ("jct", "Average JCT", [whole.actual_jct, whole.simulated_jct, *(each.avg_jct for each in twin.what_ifs)]),
    ):
        bars[name] = {"rows": [{"value": value, "text": time_text(value)} for value in values], "ref": None,
                      "log": spans_decades(values)}  # fmt: skip
        titles = [RECORDED, SIMULATED, *(each.title for each in twin.what_ifs)]
        rows = [[each, time_text(value)] for each, value in zip(titles, values, strict=True)]
        figures.append(markup.figure(name, title, f"Of the measured jobs.{log_text(values)}",
                                     f"Bar chart. {title}: {listed([' '.join(row) for row in rows])}.",
                                     markup.table(["", title], rows), legend=False))  # fmt: skip
    warning = "" if twin.verdict.usable else "The replay is not what happened, so that this is no statement about it. "
    failed = [f"{each.policy} could not be run: {each.error}" for each in twin.failures]
    tables = [(what, *groups_if_table(twin, what)) for what in twin.test.groups]
    details = [f"<details><summary>Who would wait longer or shorter, by {what}</summary>{markup.table(head, rows)}"
               "</details>" for what, head, rows in tables if len(rows) > 1]  # fmt: skip
    return markup.section(
        "whatif", "Then: what would have been", f"{warning}Differences are to the replayed present, not to the record: "
        "what the model gets wrong is wrong on both sides. In brackets the range over the model's error: its bias, and "
        "two standard errors of it and of the difference over stretches of time; where it has both signs, there is no "
        "difference to speak of.",
        f'<div class="card">{markup.table(*what_if_table(twin))}</div>', markup.pair_of(*figures), *details,
        _items(failed) if failed else "")  # fmt: skip


def _footer() -> str:
    terms = (("wait", "time without GPUs between submission (or when it could have started) and end"),
             ("JCT", "job completion time: end minus submission"),
             ("off by", "simulated minus recorded average, of the recorded one"),
             ("single waits off by", "mean over jobs of the difference, whatever its sign"),
             ("told", "what a policy was told of the future and uses"),
             ("makespan", "from the begin of the record to the last end of all jobs"))  # fmt: skip
    said = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in terms)
    files = "<p>Every measured job is in jobs.csv, all figures in twin.json.</p>"
    return f"<h2>What the words mean</h2><dl>{said}</dl>{files}{made_by()}"
