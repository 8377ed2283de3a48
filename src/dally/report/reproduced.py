"""A paper's headlines beside what was measured: changes, what reproduces, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.report import markup
from dally.report.alarm import below_bound
from dally.report.bound import bounds_of
from dally.report.chapters import Chapter, Steps, communication, timers
from dally.report.compared import ReportRun
from dally.report.html import write_report
from dally.report.metrics import Summary, summarise
from dally.report.page import made_by, render_page
from dally.report.wording import hours_text, listed, log_text, share_text, spans_decades
from dally.simulator.reproduce import dally as paper
from dally.simulator.reproduce.dally_network import TimedRun

FIGURES = (("makespan", "makespan"), ("avg_jct", "average JCT"), ("p95_jct", "p95 JCT"), ("p99_jct", "p99 JCT"),
           ("comm_seconds", "communication"), ("avg_queueing", "average queueing"),
           ("p95_queueing", "p95 queueing"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the comparison, measured."""

    setting: paper.Setting
    jobs: int
    contenders: tuple[paper.Contender, ...]
    summaries: tuple[Summary, ...]
    late: tuple[int, ...]  # jobs that end after the last one under auto-tuned Dally

    @classmethod
    def measured(cls, setting: paper.Setting, contenders: tuple[paper.Contender, ...], runs: Sequence[TimedRun],
                 topology: Topology) -> Cell:  # fmt: skip
        bounds = bounds_of(runs, topology)
        figures = [summarise(run, topology, bound) for run, bound in zip(runs, bounds, strict=True)]
        summaries = tuple(replace(each, alarm=below_bound(run, each)) for run, each in zip(runs, figures, strict=True))
        last = next(run.ledger.last_end for each, run in zip(contenders, runs, strict=True)
                    if each.policy == paper.AUTO) or 0.0  # fmt: skip
        late = tuple(sum((row.end or 0.0) > last for row in run.ledger.rows) for run in runs)
        return cls(setting, len(runs[0].workload.trace), contenders, summaries, late)

    def of(self, policy: str) -> Summary | None:
        return next((s for c, s in zip(self.contenders, self.summaries, strict=True) if c.policy == policy), None)

    @property
    def auto(self) -> Summary:
        found = self.of(paper.AUTO)
        assert found is not None, "the comparison is of auto-tuned Dally with the others"
        return found

    @property
    def title(self) -> str:
        return f"{self.setting.title}, {self.jobs:,} jobs"

    def as_dict(self) -> dict[str, Any]:
        rerun = self.setting.rerun
        return {
            "workload": self.setting.load.kind.name, "trace": self.setting.load.file, "jobs": self.jobs,
            "cluster": self.setting.cluster, "fabric": self.setting.fabric, "network": self.setting.network,
            "policies": [summary.as_dict() | {
                "title": contender.title,
                "change_of_dally": {key: change(self.auto, summary, key) for key, _ in FIGURES},
                "jobs_after_dally": late,
                "authors_rerun_hours": rerun.get(contender.policy),
            } for contender, summary, late in zip(self.contenders, self.summaries, self.late, strict=True)],
        }  # fmt: skip


def change(ours: Summary, other: Summary, figure: str) -> float | None:
    """−0.8 where ours is a fifth of the other's; None where the other's is under a second: nothing to gain."""
    mine, theirs = getattr(ours, figure), getattr(other, figure)
    return None if mine is None or theirs is None or theirs < 1.0 else float(mine / theirs - 1.0)


def change_text(value: float | None) -> str:
    if value is None:
        return "–"
    percent = 100 * value
    digits = 1 if -100 < percent < -95 else 0
    text = f"{percent:+,.{digits}f} %".replace("-", "−")
    return "0 %" if text in ("+0 %", "−0 %") else text


def measured_table(cell: Cell) -> tuple[list[str], list[list[str]]]:
    """All policies in figures, the lower bound below them, the authors' clean re-run beside where it is known."""
    rerun = cell.setting.rerun
    head = ["hours", *(title if key != "comm_seconds" else "communication per job" for key, title in FIGURES),
            "its share"]  # fmt: skip
    rows = []
    for contender, summary in zip(cell.contenders, cell.summaries, strict=True):
        # per job: the sum over all of them says nothing to anybody
        values = (getattr(summary, key) / (1 if key != "comm_seconds" else max(summary.finished, 1))
                  if getattr(summary, key) is not None else None for key, _ in FIGURES)  # fmt: skip
        rows.append([contender.title, *map(hours_text, values), share_text(summary.comm_share)])
    bound = cell.auto.lower_bound
    rows.append(["lower bound", hours_text(bound.makespan), hours_text(bound.avg_jct), *[""] * (len(FIGURES) - 1)])
    if rerun:
        head.append("authors' re-run, h")
        for row, contender in zip(rows, cell.contenders, strict=False):
            figures = rerun.get(contender.policy)
            row.append(" / ".join(f"{figure:g}" for figure in figures) if figures else "")
        rows[-1].append("makespan / average / p95")
    return head, rows


def change_table(cell: Cell) -> tuple[list[str], list[list[str]]]:
    """What auto-tuned Dally changes against each of the others, below what was published."""
    published = {claim.measure: claim.text for claim in paper.CLAIMS}
    head = ["auto-tuned Dally against", *(title for _, title in FIGURES)]
    rows = [["published, up to", *(published.get(key, "–") for key, _ in FIGURES)]]
    for contender, summary in zip(cell.contenders, cell.summaries, strict=True):
        if contender.policy != paper.AUTO:
            rows.append([contender.title, *(change_text(change(cell.auto, summary, key)) for key, _ in FIGURES)])
    return head, rows


def findings(cells: Sequence[Cell]) -> list[str]:
    """Which headlines reproduce, by how much, and against whom; every figure is taken from the cells."""
    said = [line for claim in paper.CLAIMS if (line := _claim(claim, cells))]
    said += _tail(cells)
    for against, text in (
        (paper.NO_WAIT, "Waiting against not waiting"),
        (paper.CONSOLIDATED, "Tuned timers against waiting for ever"),
        (paper.GANDIVA, "Tuned timers against Gandiva's affinity and migration"),
        (paper.VALUE, "Tuned timers against waiting by value (ours)"),
    ):  # fmt: skip
        pairs = [(change(cell.auto, other, "avg_jct"), change(cell.auto, other, "makespan"))
                 for cell in cells if (other := cell.of(against)) is not None]  # fmt: skip
        jct, makespan = ([value for value in column if value is not None] for column in zip(*pairs, strict=True)) \
            if pairs else ([], [])  # fmt: skip
        if jct and makespan:
            said.append(f"{text}: average JCT {_range(jct)}, makespan {_range(makespan)}.")
    return said


def _claim(claim: paper.Claim, cells: Sequence[Cell]) -> str:
    """The changes against each consolidating scheduler, which the headline speaks of, over all cells."""
    congested = [cell for cell in cells if cell.setting.fabric != paper.FABRICS[0]]
    if "congested" in claim.text and congested:
        cells = congested
    found: dict[str, list[float]] = {}
    for cell in cells:
        for contender, summary in zip(cell.contenders, cell.summaries, strict=True):
            value = change(cell.auto, summary, claim.measure)
            if contender.consolidates and value is not None:
                found.setdefault(contender.title, []).append(value)
    if not found:
        return ""
    least = claim.change if claim.change is not None else 0.0
    always = [title for title, values in found.items() if max(values) <= least]
    ever = [title for title, values in found.items() if min(values) <= least and title not in always]
    verdict = "; ".join(
        text for text, titles in ((f"reached against {listed(always)}", always),
                                  (f"reached in some cells against {listed(ever)}", ever)) if titles)  # fmt: skip
    title = claim.title[0].upper() + claim.title[1:]
    ranges = ", ".join(f"{_range(values)} against {title}" for title, values in found.items())
    return f"{title}: published {claim.text}; measured {ranges}: {verdict or 'not reached'}."


def _tail(cells: Sequence[Cell]) -> list[str]:
    """Whether a gain is everybody's or that of the few slowest jobs."""
    jct: dict[str, list[float]] = {}
    late: dict[str, list[float]] = {}
    for cell in cells:
        for contender, summary, count in zip(cell.contenders, cell.summaries, cell.late, strict=True):
            value = change(cell.auto, summary, "p95_jct")
            if contender.consolidates and value is not None:
                jct.setdefault(contender.title, []).append(value)
                late.setdefault(contender.title, []).append(count / max(cell.jobs, 1))
    if not jct:
        return []
    changes = ", ".join(f"{_range(values)} against {title}" for title, values in jct.items())
    shares = listed([f"{share_text(min(values))} to {share_text(max(values))} of the jobs under {title}"
                     if min(values) < max(values) else f"{share_text(values[0])} of the jobs under {title}"
                     for title, values in late.items()])  # fmt: skip
    return [f"For all but the slowest twentieth: p95 JCT {changes}.",
            f"Still running when auto-tuned Dally has finished: {shares}; these make the makespan."]  # fmt: skip


def _range(values: Sequence[float]) -> str:
    low, high = change_text(min(values)), change_text(max(values))
    return low if low == high else f"{low} to {high}"


def write_cell(cell: Cell, runs: Sequence[TimedRun], topology: Topology, path: Path, notes: Sequence[str]) -> None:
    """The report of a cell: the general one with the paper's own plots."""
    parts = [ReportRun(contender.title, summary, run.ledger, topology)
             for contender, summary, run in zip(cell.contenders, cell.summaries, runs, strict=True)]  # fmt: skip
    chapters = [_published_chapter(cell), communication(parts)]
    for contender, run in zip(cell.contenders, runs, strict=True):
        if contender.policy == paper.AUTO:
            told: dict[tuple[str, int], list[tuple[float, float]]] = {}
            start = run.ledger.first_submit or 0.0
            for timer in run.timers:
                told.setdefault((timer.level, timer.gpus), []).append((timer.time - start, timer.wait))
            curves: dict[tuple[str, int], Steps] = dict(told)
            end = (run.ledger.last_end or 0.0) - start
            chapter = timers(contender.title, [level.name for level in topology.levels], curves, end)
            chapters += [chapter] if chapter else []
    write_report(parts, path, title=f"Dally's comparison again: {cell.setting.title}", baseline=parts[0].name,
                 notes=notes, chapters=chapters)  # fmt: skip


def _published_chapter(cell: Cell) -> Chapter:
    items = "".join(f"<li>{markup.prose(line)}</li>" for line in findings([cell]))
    html = markup.section(
        "published", "Published against measured",
        "What auto-tuned Dally changes against each of the others; minus is less. The first row is the paper's.",
        f'<div class="card">{markup.table(*change_table(cell))}<ul>{items}</ul></div>')  # fmt: skip
    return Chapter("published", "Published", html)


def write_overview(cells: Sequence[Cell], said: Sequence[str], notes: Sequence[str], path: Path) -> None:
    """All cells on one page: what reproduces, bars of makespan and average JCT, a link to each cell's report."""
    titles = list(dict.fromkeys(contender.title for cell in cells for contender in cell.contenders))
    bars: dict[str, Any] = {}
    parts = []
    for number, cell in enumerate(cells):
        figures = []
        for figure, title in (("makespan", "Makespan"), ("avg_jct", "Average JCT")):
            name = f"{figure.replace('_', '-')}-{number}"
            values = [getattr(summary, figure) for summary in cell.summaries]
            bound = getattr(cell.auto.lower_bound, figure)
            rows = [[each, f"{hours_text(value)} h"] for each, value in zip(titles, values, strict=True)]
            bars[name] = {"rows": [{"value": value or 0.0, "text": f"{hours_text(value)} h"} for value in values],
                          "ref": bound and {"value": bound, "label": f"lower bound {hours_text(bound)} h"},
                          "log": spans_decades(values)}  # fmt: skip
            alt = f"Bar chart. {title}: {listed([' '.join(row) for row in rows])}."
            table = markup.table(["policy", title.lower()], rows)
            text = "Shorter is better." + log_text(values)
            figures.append(markup.figure(name, title, text, alt, table, legend=False))
        link = f'<p><a href="{escape(cell.setting.name)}.html">All plots of this cell</a></p>'
        tables = f'<div class="card">{_cell_tables(cell)}</div>'
        drawn = f'<div class="spaced">{markup.pair_of(*figures)}</div>'
        parts.append(markup.section(f"cell-{number}", cell.title, "", tables, drawn, link))
    items = "".join(f"<li>{markup.prose(line)}</li>" for line in said)
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    headline = ", ".join(f"{claim.title} {claim.text}" for claim in paper.CLAIMS if claim.change is not None)
    links = "".join(f'<a href="#cell-{number}">{escape(cell.setting.title)}</a>'
                    for number, cell in enumerate(cells))  # fmt: skip
    page = render_page(
        title="Dally's comparison again",
        subject=f"{len(cells)} cell{'s' if len(cells) > 1 else ''}, {len(titles)} policies",
        verdict=markup.prose(f"Published, up to: {headline}."), lead="",
        sections=f'<nav aria-label="Cells">{links}</nav>' + markup.section(
            "findings", "What reproduces", "", f'<div class="card"><ul>{items}</ul></div>') + "".join(parts),
        footer=f'<h2 id="notes">Why it differs</h2><ul class="notes">{remarks}</ul>{made_by()}',
        figures={"runs": [{"name": each} for each in titles], "bars": bars})  # fmt: skip
    path.write_text(page, encoding="utf-8")


def _cell_tables(cell: Cell) -> str:
    return f"{markup.table(*measured_table(cell))}<div class=\"spaced\">{markup.table(*change_table(cell))}</div>"
