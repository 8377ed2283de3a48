"""The page of a sweep: who is ahead where, the table, and a plot over every axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from dally.experiments.sweeps.results import RESULTS, Line, SweepResult
from dally.experiments.sweeps.table import TIMES, definitions, figure_text, headlines, place_text, table_of, title_of
from dally.report import markup
from dally.report.page import made_by, render_page
from dally.report.wording import listed, log_text, spans_decades

MOST_PLOTS = 24  # of one axis; the table has the rest


def write_page(result: SweepResult, path: Path, notes: Sequence[str]) -> None:
    spec = result.spec
    plots: dict[str, Any] = {}
    bars: dict[str, Any] = {}
    sections = [markup.section("table", "All places", definitions(result), f'<div class="card">{_table(result)}</div>')]
    for axis, values in spec.axes.items():
        drawn = _numeric_axis(result, axis, plots) if _numbers(values) else _named_axis(result, axis, bars)
        if drawn:
            sections.append(markup.section(f"axis-{axis}", f"Over {axis}", "Means over the seeds.", drawn))
    if not spec.axes:
        sections.append(markup.section("figures", "Figures", "Means over the seeds.", _named_axis(result, None, bars)))
    said = "".join(f"<li>{markup.prose(line)}</li>" for figure in spec.figures for line in headlines(result, figure))
    alarms = "".join(f"<li>{escape(cell)}: {escape(alarm)}</li>" for cell, alarm in result.alarms)
    failed = "".join(f"<li>{escape(cell)}: {escape(why)}</li>" for cell, why in result.failures)
    lead = f"{len(result.failures)} cells failed, {result.missing} have not been run." \
        if result.failures or result.missing else ""  # fmt: skip
    if alarms:
        lead = f"{len(result.alarms)} cells did what is proved impossible. {lead}".rstrip()
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    page = render_page(
        title=spec.name,
        subject=f"{len(spec):,} cells: {len(spec.labels)} policies, {len(spec.seeds)} seeds"
                + "".join(f", {len(values)} × {axis}" for axis, values in spec.axes.items()),
        verdict="First and second at each place, among those told the same", lead=markup.prose(lead),
        sections=(markup.section("alarms", "Below the lower bound", "", f"<ul>{alarms}</ul>") if alarms else "")
                 + f'<div class="card"><ul>{said}</ul></div>' + "".join(sections)
                 + (markup.section("failures", "What failed", "", f"<ul>{failed}</ul>") if failed else ""),
        footer=f'<h2 id="notes">How it was made</h2><ul class="notes">{remarks}</ul>'
               f"<p>Every cell with its whole configuration is in {RESULTS}.</p>{made_by()}",
        figures={"runs": [{"name": label} for label in spec.labels], "bars": bars, "plots": plots})  # fmt: skip
    path.write_text(page, encoding="utf-8")


def _table(result: SweepResult) -> str:
    head, rows = table_of(result)
    slots = {label: slot for slot, label in enumerate(result.spec.labels)}
    at = head.index("policy")
    # the policy leads the row, with its colour
    turned = [[row[at], *row[:at], *row[at + 1 :]] for row in rows]
    return markup.table(["policy", *head[:at], *head[at + 1 :]], turned, swatches=[slots[row[0]] for row in turned])


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _numeric_axis(result: SweepResult, axis: str, plots: dict[str, Any]) -> str:
    """A curve per policy over the axis; a plot per figure and per place on the other axes."""
    drawn: list[str] = []
    for figure in result.spec.figures:
        for number, (rest, lines) in enumerate(_without(result.lines, axis).items()):
            if len(drawn) >= MOST_PLOTS:
                break
            name = f"{axis}-{figure}-{number}"
            series, rows = [], []
            for slot, label in enumerate(result.spec.labels):
                points = sorted((float(dict(line.place)[axis]), mean) for line in lines
                                if line.policy == label and (mean := line.means[figure]) is not None)  # fmt: skip
                series.append({"name": label, "slot": slot, "x": [x for x, _ in points], "y": [y for _, y in points]})
                rows.append([label, *(f"{x:g}: {figure_text(figure, y)}" for x, y in points)])
            width = max(len(row) for row in rows)
            rows = [[*row, *[""] * (width - len(row))] for row in rows]
            means = [y for one in series for y in one["y"]]  # type: ignore[attr-defined]
            above = [y for y in means if y > 0]
            kind = {"kind": "log", "range": [min(above) / 1.3, max(above) * 1.3]} if spans_decades(means) else {}
            plots[name] = {"series": series, "nearest": True,
                           "x": {"fmt": "count", "label": axis, "tip": f"{axis} ", "fromZero": False},
                           "y": {"fmt": _format(figure), "label": title_of(figure), **kind}}  # fmt: skip
            title = f"{title_of(figure)} over {axis}"
            alt = f"Line chart: {title}, {listed(result.spec.labels)}."
            drawn.append(markup.figure(name, title, place_text(rest).removesuffix(": ") + log_text(means), alt,
                                       markup.table(["policy", *[""] * (width - 1)], rows)))  # fmt: skip
    return _in_pairs(drawn)


def _named_axis(result: SweepResult, axis: str | None, bars: dict[str, Any]) -> str:
    """Bars per policy; a picture per value of the axis and figure."""
    drawn: list[str] = []
    for figure in result.spec.figures:
        for number, (place, lines) in enumerate(result.places().items()):
            if len(drawn) >= MOST_PLOTS:
                break
            name = f"{axis or 'all'}-{figure}-{number}"
            labels = result.spec.labels
            values = [next((line.means[figure] for line in lines if line.policy == label), None) for label in labels]
            rows = [[label, figure_text(figure, value)] for label, value in zip(labels, values, strict=True)]
            bars[name] = {"rows": [{"value": value or 0.0, "text": row[1]} for value, row in
                                   zip(values, rows, strict=True)],
                          "ref": None, "log": spans_decades(values)}  # fmt: skip
            alt = f"Bar chart. {title_of(figure)}: {listed([' '.join(row) for row in rows])}."
            text = place_text(place).removesuffix(": ") + log_text(values)
            table = markup.table(["policy", title_of(figure)], rows)
            drawn.append(markup.figure(name, title_of(figure), text, alt, table, legend=False))
    return _in_pairs(drawn)


def _without(lines: Sequence[Line], axis: str) -> dict[tuple[tuple[str, Any], ...], list[Line]]:
    found: dict[tuple[tuple[str, Any], ...], list[Line]] = {}
    for line in lines:
        found.setdefault(tuple(each for each in line.place if each[0] != axis), []).append(line)
    return found


def _format(figure: str) -> str:
    if figure.endswith(TIMES):
        return "time"
    if figure.endswith(("_share", "_utilization")):
        return "share"
    return "ratio" if figure.endswith("_over_bound") else "count"


def _in_pairs(drawn: Sequence[str]) -> str:
    return "".join(markup.pair_of(*drawn[at : at + 2]) for at in range(0, len(drawn), 2))
