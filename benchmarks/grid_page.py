"""What the grid's runs add up to: the goals cell by cell, as a table and as a page with plots."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

BASELINES = ("auto", "manual", "none", "infinite", "tiresias, Dally's", "tiresias")
VALUES = {"value": 0.20, "value, noisy 0.7": 0.10, "value, none": 0.05}  # gain wanted where jobs queue
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload, cluster and fabric: the mean of each figure over the seeds that every entrant has been run on."""

    workload: str
    cluster: str
    fabric: str
    seeds: int
    figures: dict[str, dict[str, float]]  # entrant → figure → mean

    def best(self, figure: str) -> str:
        return min((name for name in BASELINES if name in self.figures), key=lambda n: self.figures[n][figure])

    @property
    def name(self) -> str:
        return f"{self.workload}, {self.cluster}, {self.fabric}"

    @property
    def queueing_share(self) -> float:
        """Of the best baseline's average JCT."""
        best = self.figures[self.best("avg_jct")]
        return best["avg_queueing"] / best["avg_jct"]

    @property
    def contended(self) -> bool:
        return self.queueing_share > 0.2

    @property
    def possible(self) -> float:
        """The lowest ratio to the best baseline's average JCT that the lower bound leaves possible."""
        return self.figures["value"]["bound"] / self.figures[self.best("avg_jct")]["avg_jct"]

    def ratio(self, entrant: str, figure: str, against: str | None = None) -> float:
        """The entrant's figure over that of a baseline: the best there is in this figure, unless named."""
        return self.figures[entrant][figure] / self.figures[against or self.best(figure)][figure]


def cells(rows: list[Row]) -> list[Cell]:
    found: dict[tuple[str, str, str], dict[int, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["workload"], row["cluster"], row["fabric"]][row["seed"]][row["entrant"]] = row
    made = []
    for (workload, cluster, fabric), by_seed in found.items():
        whole = [runs for runs in by_seed.values() if all(name in runs for name in (*BASELINES, "value"))]
        if not whole:
            continue
        names = [name for name in (*VALUES, *BASELINES) if all(name in runs for runs in whole)]
        keys = ("avg_jct", "p95_jct", "p99_jct", "makespan", "avg_queueing", "bound", "makespan_bound", "comm_share")
        figures = {name: {key: fmean(runs[name][key] for runs in whole) for key in keys} for name in names}
        made.append(Cell(workload, cluster, fabric, len(whole), figures))
    return sorted(made, key=lambda cell: (cell.cluster, cell.fabric, _order(cell.workload)))


def _order(workload: str) -> tuple[int, str]:
    return ("batch", "authors' batch", "week", "authors' week").index(workload) if workload.split()[-1] in (
        "batch", "week") else 4, workload  # fmt: skip


@dataclass(frozen=True, slots=True)
class Goal:
    """One of the issue's goals: where it was asked for, and by how much it was missed in which cells."""

    text: str
    asked: int
    missed: list[tuple[float, Cell]]  # how far beyond the limit, as a ratio to it


def goals(found: list[Cell]) -> list[Goal]:
    made = [
        _goal("average JCT at most 3 % above the best baseline", found, lambda c: c.ratio("value", "avg_jct"), 1.03),
        _goal("makespan at most 5 % above the best baseline", found, lambda c: c.ratio("value", "makespan"), 1.05),
    ]
    contended = [cell for cell in found if cell.contended]
    for name, gain in VALUES.items():
        some = [cell for cell in contended if name in cell.figures]
        made.append(_goal(f"{name}: average JCT at least {gain:.0%} below the best baseline where jobs queue", some,
                          lambda c, n=name: c.ratio(n, "avg_jct"), 1.0 - gain))  # fmt: skip
    made.append(_goal("99th percentile no worse than that of the baseline with the best average JCT", contended,
                      lambda c: c.ratio("value", "p99_jct", c.best("avg_jct")), 1.0))  # fmt: skip
    light = [cell for cell in found if cell.workload.split()[-1] in ("0.5", "0.8")]
    made.append(_goal("average JCT at most 1.5 × the lower bound at load ≤ 0.8", light,
                      lambda c: c.figures["value"]["avg_jct"] / c.figures["value"]["bound"], 1.5))  # fmt: skip
    return made


def _goal(text: str, found: list[Cell], measure: Any, limit: float) -> Goal:
    missed = sorted(((measure(cell), cell) for cell in found if measure(cell) > limit), key=lambda m: -m[0])
    return Goal(text, len(found), missed)


def show(rows: list[Row]) -> None:
    found = cells(rows)
    if not found:
        print("nothing has been run on every entrant yet")
        return
    print(f"{len(found)} cells, {sum(cell.seeds for cell in found)} instances")
    print(f"{'workload':>15} {'cluster':>6} {'fabric':>18} n {'best':>17} {'h':>6} {'q':>4}| jct noisy  none   p99   mk"
          "| over bound")  # fmt: skip
    for cell in found:
        best = cell.best("avg_jct")
        jct = [f"{cell.ratio(name, 'avg_jct'):5.2f}" if name in cell.figures else "    –" for name in VALUES]
        p99 = cell.ratio("value", "p99_jct", best)
        queue = cell.figures[best]["avg_queueing"] / cell.figures[best]["avg_jct"]
        bound = cell.figures["value"]["avg_jct"] / cell.figures["value"]["bound"]
        print(f"{cell.workload:>15} {cell.cluster:>6} {cell.fabric:>18} {cell.seeds} {best:>17} "
              f"{cell.figures[best]['avg_jct'] / 3600:6.2f} {queue:4.0%}|{' '.join(jct)} {p99:5.2f} "
              f"{cell.ratio('value', 'makespan'):4.2f}| {bound:4.2f}")  # fmt: skip
    for goal in goals(found):
        worst = f"; worst {goal.missed[0][0]:.2f} ({goal.missed[0][1].workload} {goal.missed[0][1].cluster} " \
                f"{goal.missed[0][1].fabric})" if goal.missed else ""  # fmt: skip
        print(f"{goal.asked - len(goal.missed):>3} of {goal.asked}: {goal.text}{worst}")


def write_page(rows: list[Row], folder: Path) -> None:
    """`table.md` and the plots beside it."""
    from grid_plots import rows as rows_plot
    from grid_plots import scatter

    found = cells(rows)
    contended = [cell for cell in found if cell.contended]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jct.svg").write_text(scatter(found, "avg_jct", "Average JCT over that of the best baseline, all cells"))
    (folder / "makespan.svg").write_text(
        scatter(found, "makespan", "Makespan over that of the best baseline, all cells", ("value",)))  # fmt: skip
    title = "Average JCT over that of the best baseline, cells where jobs queue"
    (folder / "contended.svg").write_text(rows_plot(contended, "avg_jct", title))
    lines = [f"{len(found)} cells, {sum(cell.seeds for cell in found)} instances of 9 runs each.", "",
             "| goal | reached in | missed by most |", "|---|---|---|"]  # fmt: skip
    for goal in goals(found):
        worst = f"{goal.missed[0][0]:.2f} ({goal.missed[0][1].name})" if goal.missed else "–"
        lines.append(f"| {goal.text} | {goal.asked - len(goal.missed)} of {goal.asked} | {worst} |")
    beyond = sum(cell.possible > 0.8 for cell in contended)
    lines += ["", f"In {beyond} of the {len(contended)} cells where jobs queue, the lower bound itself is less than "
              "20 % below the best baseline: nothing could reach the goal there.", "", "## Cells", "",
              "Ratios to the best baseline of the cell, below 1 is better; p99 to the baseline with the best average; "
              "*possible*: the lower bound over the best baseline's average; *n*: seeds.", "",
              "| cell | n | best baseline | its average, h | queueing | declared | noisy 0.7 | none | p99 | makespan "
              "| possible | over bound |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for cell in found:
        best = cell.best("avg_jct")
        own = [f"{cell.ratio(name, 'avg_jct'):.2f}" if name in cell.figures else "" for name in VALUES]
        bound = cell.figures["value"]["avg_jct"] / cell.figures["value"]["bound"]
        lines.append(f"| {cell.name} | {cell.seeds} | {best} | {cell.figures[best]['avg_jct'] / 3600:.2f} | "
                     f"{cell.queueing_share:.0%} | {' | '.join(own)} | {cell.ratio('value', 'p99_jct', best):.2f} | "
                     f"{cell.ratio('value', 'makespan'):.2f} | {cell.possible:.2f} | {bound:.2f} |")  # fmt: skip
    (folder / "table.md").write_text("\n".join(["# The grid: every cell", "", *lines, ""]), encoding="utf-8")
