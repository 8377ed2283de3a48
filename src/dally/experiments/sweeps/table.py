"""A sweep as a table of text: each policy at each place, against the baseline, with what is noise called so."""

from __future__ import annotations

from collections.abc import Sequence

from dally.experiments.sweeps.results import Line, SweepResult
from dally.experiments.sweeps.statistics import Ratio
from dally.report.groups import grouped
from dally.report.wording import count_text, share_text, time_text, times_text

TIMES = ("_jct", "_queueing", "makespan", "_seconds", "minibatches")


def figure_text(figure: str, value: float | None) -> str:
    if value is None:
        return "–"
    if figure.endswith("_over_bound"):
        return times_text(value)
    if figure.endswith(TIMES):
        return time_text(value)
    if figure.endswith(("_share", "_utilization")):
        return share_text(value)
    return count_text(value)


def ratio_text(ratio: Ratio | None) -> str:
    """`0.834× [0.801, 0.869]`, with a word where it may be nothing."""
    if ratio is None:
        return "–"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3f}× (too few seeds)"
    word = " noise" if ratio.verdict == "noise" else ""
    return f"{ratio.value:.3f}× [{ratio.low:.3f}, {ratio.high:.3f}]{word}"


def title_of(figure: str) -> str:
    return figure.replace("_", " ").replace("jct", "JCT")


def table_of(result: SweepResult) -> tuple[list[str], list[list[str]]]:
    axes = list(result.spec.axes)
    head = [*axes, "policy", "told", "seeds"]
    for figure in result.spec.figures:
        head += [title_of(figure), f"× {result.spec.baseline}"]
    rows = []
    ordered = [line for lines in result.places().values()
               for group in grouped(lines, [line.told for line in lines]) for line in group.members]  # fmt: skip
    for line in ordered:
        place = [str(dict(line.place).get(axis, "–")) for axis in axes]
        rows.append([*place, line.policy, line.told, str(line.seeds), *_cells(line, result)])
    return [*head, "GPUs held"], rows


def _cells(line: Line, result: SweepResult) -> list[str]:
    cells = []
    for figure in result.spec.figures:
        is_base = line.policy == result.spec.baseline
        cells += [figure_text(figure, line.means[figure]), "1" if is_base else ratio_text(line.ratios[figure])]
    return [*cells, share_text(line.held)]


def headlines(result: SweepResult, figure: str) -> list[str]:
    """One sentence per place and group told the same: first, second, and whether the difference is one."""
    said = []
    for place, lines in result.places().items():
        for sentence in result.headlines(lines, figure):
            said.append(f"{place_text(place)}{title_of(figure)}: {sentence}")
    return said


def place_text(place: Sequence[tuple[str, object]]) -> str:
    return f"{', '.join(f'{axis} {value}' for axis, value in place)}: " if place else ""


def definitions(result: SweepResult) -> str:
    return (f"Means over the seeds; ratios to {result.spec.baseline} are geometric means over paired seeds with 95 % "
            "intervals (expanded percentile bootstrap); noise: the interval holds 1. GPUs held: while it was measured.")
