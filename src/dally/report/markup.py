"""The report's building blocks as HTML: tables, figures with a text alternative, and cards of findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from dally.report.compared import Comparison, ReportRun
from dally.report.groups import groups_of
from dally.report.metrics import Summary
from dally.report.table import COLUMNS, Column, column_texts
from dally.report.wording import count_text, share_text, time_text


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, best: Sequence[set[int]] = (),
          caption: str = "", swatches: Sequence[int | None] = (), words: Sequence[int] = ()) -> str:  # fmt: skip
    """A table; `best[column]` are the rows marked in it, columns of `words` may be broken. All text is escaped."""
    parts = ['<div class="scroll"><table>']
    if caption:
        parts.append(f"<caption>{escape(caption)}</caption>")
    parts.append("<thead><tr>" + "".join(f'<th scope="col">{escape(text)}</th>' for text in head) + "</tr></thead>")
    parts.append("<tbody>")
    for row, cells in enumerate(rows):
        slot = swatches[row] if row < len(swatches) else None
        mark = "" if slot is None else f' data-swatch="{slot}"'
        parts.append(f'<tr><th scope="row"{mark}> {escape(cells[0])}</th>')
        for column, text in enumerate(cells[1:], start=1):
            chosen = ' class="best"' if column < len(best) and row in best[column] else ""
            chosen = ' class="words"' if column in words else chosen
            parts.append(f"<td{chosen}>{escape(text)}</td>")
        parts.append("</tr>")
    return "".join([*parts, "</tbody></table></div>"])


def figure(plot: str, title: str, text: str, alt: str, fallback: str, *, legend: bool = True,
           without: str = "") -> str:  # fmt: skip
    """A plot with its caption, what a screen reader says of it, and the numbers behind it."""
    return (
        f'<figure id="{plot}-figure"><figcaption><h3>{escape(title)}</h3><p>{prose(text)}</p></figcaption>'
        + (f'<div class="legend" data-without="{escape(without)}"></div>' if legend else "")
        + '<div class="tools"></div>'
        + f'<div class="plot" data-plot="{plot}" role="img" tabindex="0" aria-label="{escape(alt)}"></div>'
        + f"<details><summary>Numbers behind this plot</summary>{fallback}</details></figure>"
    )


def prose(text: str) -> str:
    """Escaped, with figures and their units kept on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|s|ms|min|h|d|GPUs?|jobs?)\b|%)", "\u00a0", escape(text))


def pair_of(*figures: str) -> str:
    return f'<div class="grid2">{"".join(figures)}</div>'


def section(anchor: str, title: str, text: str, *content: str, how: str = "") -> str:
    """A part of the page; `how` tells how to work its plots and is not printed."""
    handling = f' <span class="how">{escape(how)}</span>' if how else ""
    head = f'<h2 id="{anchor}">{escape(title)}</h2><p>{prose(text)}{handling}</p>'
    return f"<section>{head}{''.join(content)}</section>"


_MAIN: tuple[Column, ...] = tuple(column for column in COLUMNS if not column.shared)
_SHARING: tuple[Column, ...] = tuple(column for column in COLUMNS if column.shared)


def sharing_rows(runs: Sequence[ReportRun]) -> str:
    """A second table about shared and resized GPUs; empty where there were none."""
    summaries: list[Summary] = [run.summary for run in runs]
    if not any(each.shared for each in summaries):
        return ""
    columns = [column_texts(column, summaries) for column in _SHARING]
    rows = [[run.name, *(texts[row] for texts, _ in columns)] for row, run in enumerate(runs)]
    head = ["policy", *(column.title for column in _SHARING)]
    return table(head, rows, best=[set()] * len(head), swatches=list(range(len(runs))))


def summary_rows(runs: Sequence[ReportRun]) -> str:
    """The main table: the terminal's columns, one run per row, those told the same below each other."""
    slots = [slot for group in groups_of([run.summary for run in runs]) for slot in group.members]
    runs = [runs[slot] for slot in slots]
    summaries: list[Summary] = [run.summary for run in runs]
    columns = [column_texts(column, summaries) for column in _MAIN]
    head = ["policy", "told", *(column.title for column in _MAIN)]
    rows = [[run.name, run.summary.told or "?", *(texts[row] for texts, _ in columns)] for row, run in enumerate(runs)]
    bounds = {(each.lower_bound.avg_jct, each.lower_bound.makespan) for each in summaries}
    if len(bounds) == 1:
        avg, makespan = bounds.pop()
        if avg is not None:
            rows.append(["lower bound", "", *_bound_cells(time_text(avg), time_text(makespan))])
    return table(head, rows, best=[set(), set(), *(marked for _, marked in columns)], swatches=slots,
                 words=[1])  # fmt: skip


def _bound_cells(avg: str, makespan: str) -> list[str]:
    cells = {"avg JCT": avg, "makespan": makespan}
    found, previous = [], ""
    for column in _MAIN:
        multiple = "1.00×" if column.title == "× bound" and previous in cells else ""
        found.append(cells.get(column.title, multiple))
        previous = column.title
    return found


def why_cards(comparison: Comparison, told: Sequence[tuple[str, list[str]]]) -> str:
    slots = {run.name: slot for slot, run in enumerate(comparison.runs)}
    texts = [time_text(run.summary.avg_jct) for run in comparison.ranked]  # who reads the same shares the place
    place = {run.name: texts.index(text) + 1 for run, text in zip(comparison.ranked, texts, strict=True)}
    cards = []
    for name, sentences in told:
        summary = comparison.runs[slots[name]].summary
        rank = f"#{place[name]} · {time_text(summary.avg_jct)}" if len(comparison.runs) > 1 else ""
        items = "".join(f"<li>{prose(sentence)}</li>" for sentence in sentences)
        cards.append(f'<div class="card"><h3><span data-swatch="{slots[name]}"></span>{escape(name)}'
                     f'<span class="rank">{rank}</span></h3><ul>{items}</ul></div>')  # fmt: skip
    return f'<div class="why">{"".join(cards)}</div>'


def quantile_table(comparison: Comparison, what: str) -> str:
    """Shares of jobs and how long they take, per run: the CDF in figures."""
    import numpy as np

    shares = (10, 25, 50, 75, 90, 95, 99, 100)
    rows = []
    for run in comparison.runs:
        done = run.jobs.finished
        values = (run.jobs.jct if what == "jct" else run.jobs.queueing)[done]
        found = np.percentile(values, shares) if len(values) else [float("nan")] * len(shares)
        rows.append([run.name, *(time_text(float(value)) for value in found)])
    return table(["policy", *(f"{share} % within" for share in shares)], rows)


def load_table(comparison: Comparison, series: Sequence[Sequence[float | None]], kind: str) -> str:
    """A curve over time in five figures per run."""
    rows = []
    for run, values in zip(comparison.runs, series, strict=True):
        known = [value for value in values if value is not None]
        write = share_text if kind == "share" else count_text
        fifths = [known[k * len(known) // 5 : (k + 1) * len(known) // 5] for k in range(5)]
        rows.append([run.name, *(write(sum(part) / len(part)) if part else "–" for part in fifths),
                     write(max(known)) if known else "–"])  # fmt: skip
    return table(["policy", *(f"mean, fifth {k}" for k in range(1, 6)), "peak bin"], rows)
