"""The grid's page from its sweeps: for each group that was told the same, dally against the best of the others.

    python benchmarks/sweeps/grid_page.py out/grid-told out/grid-untold docs/grid

Writes `table.md` and a plot per group, and prints what they add up to.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean

import polars as pl
from grid_plot import Mark, forest

from dally.experiments.sweeps.statistics import Ratio, paired

FIGURES = ("avg_jct", "p99_jct", "makespan")
GROUPS = {"declared": "told durations exactly", "noisy=0.7": "told durations off by σ = 0.7",
          "none": "told no durations"}  # fmt: skip
OURS = "dally"
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Place:
    """One workload on one cluster and fabric, and what one group did there: policy → figure → seed → value."""

    workload: str
    cluster: str
    fabric: str
    found: dict[str, dict[str, dict[int, float]]]

    @property
    def name(self) -> str:
        return f"{self.workload}, {self.cluster}, {self.fabric}"

    def mean(self, policy: str, figure: str) -> float:
        return fmean(self.found[policy][figure].values())

    def ranked(self, figure: str = "avg_jct") -> list[str]:
        return sorted(self.found, key=lambda policy: self.mean(policy, figure))

    def best_other(self, figure: str = "avg_jct") -> str:
        return next(policy for policy in self.ranked(figure) if policy != OURS)

    def ratio(self, policy: str, against: str, figure: str) -> Ratio:
        made = paired(self.found[policy][figure], self.found[against][figure])
        assert made is not None, f"{self.name}: {figure} of {policy} has no ratio to {against}"
        return made

    @property
    def queueing(self) -> float:
        """Share of the first one's average JCT."""
        first = self.ranked()[0]
        return self.mean(first, "avg_queueing") / self.mean(first, "avg_jct")

    @property
    def over_bound(self) -> float:
        """Of the first one."""
        first = self.ranked()[0]
        return self.mean(first, "avg_jct") / self.mean(first, "lower_bound.avg_jct")


def places(frame: pl.DataFrame, knowledge: str) -> list[Place]:
    """Of one group, in the order of the specs; a place that is not whole is an error, not a smaller table."""
    wanted = (*FIGURES, "avg_queueing", "lower_bound.avg_jct")
    made: dict[tuple[str, str, str], Place] = {}
    for row in frame.filter(pl.col("scenario.knowledge") == knowledge).iter_rows(named=True):
        if row["error"]:
            sys.exit(f"{row['label']}: {row['error']}")
        if row["alarm"]:
            sys.exit(f"{row['label']}: {row['alarm']}")
        workload = row["scenario.trace"].removeprefix("synth:").removesuffix("-multi").replace("dally-poisson", "week")
        workload = workload.replace("dally-", "") + (f" {row['scenario.load']}" if row["scenario.load"] else "")
        key = (workload, row["scenario.cluster"], row["scenario.fabric"])
        mine = made.setdefault(key, Place(*key, {})).found.setdefault(row["policy"], {})
        for figure in wanted:
            mine.setdefault(figure, {})[int(row["seed"])] = float(row[figure])
    seeds = {len(values) for place in made.values() for mine in place.found.values() for values in mine.values()}
    if len(seeds) != 1:
        sys.exit(f"{GROUPS[knowledge]}: cells are missing, seeds per cell: {sorted(seeds)}")
    return list(made.values())


def span(ratio: Ratio) -> str:
    """`0.96 [0.93, 0.99]`, and `=` where it may be nothing."""
    assert ratio.low is not None and ratio.high is not None
    word = {"noise": " =", "same": " ="}.get(ratio.verdict, "")
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]{word}"


def table(found: Sequence[Place]) -> list[str]:
    lines = ["| place | queueing | first | its average, h | × bound | second over first | best other "
             "| dally: average JCT | p99 JCT | makespan |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for place in found:
        first, second = place.ranked()[:2]
        other = place.best_other()
        ratios = " | ".join(span(place.ratio(OURS, other, figure)) for figure in FIGURES)
        lines.append(f"| {place.name} | {place.queueing:.0%} | `{first}` | {place.mean(first, 'avg_jct') / HOUR:.2f} | "
                     f"{place.over_bound:.2f} | `{second}` {span(place.ratio(second, first, 'avg_jct'))} | `{other}` | "
                     f"{ratios} |")  # fmt: skip
    return lines


def summary(found: Sequence[Place]) -> list[str]:
    """Where dally is ahead of the best other beyond noise, level, behind; the mean; both ends: by figure, all places,
    those where jobs queue, and every fabric."""
    lines = ["| dally over the best other | ahead | within noise | behind | geometric mean | best | worst |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    titles = {"avg_jct": "average JCT", "p99_jct": "p99 JCT", "makespan": "makespan"}
    queues = [place for place in found if place.queueing >= 0.2]
    parts = {"all": list(found), "queueing at least a fifth of JCT": queues}
    for fabric in sorted({place.fabric for place in found}):
        parts[fabric] = [place for place in found if place.fabric == fabric]
    for where, some in parts.items():
        for figure in FIGURES if some else ():
            ratios = [(place.ratio(OURS, place.best_other(), figure), place) for place in some]
            counted = Counter(ratio.verdict for ratio, _ in ratios)
            mean = exp(fmean(log(ratio.value) for ratio, _ in ratios))
            ranked = sorted(ratios, key=lambda each: each[0].value)
            (best, at_best), (worst, at_worst) = ranked[0], ranked[-1]
            lines.append(f"| {titles[figure]}, {where} ({len(some)}) | {counted['less']} | "
                         f"{counted['noise'] + counted['same']} | {counted['more']} | {mean:.3f} | {best.value:.2f} "
                         f"({at_best.name}) | {worst.value:.2f} ({at_worst.name}) |")  # fmt: skip
    return lines


def firsts(found: Sequence[Place]) -> list[str]:
    """Who is first how often, and how often beyond noise of the second."""
    won = Counter(place.ranked()[0] for place in found)
    clear = Counter(place.ranked()[0] for place in found
                    if place.ratio(place.ranked()[0], place.ranked()[1], "avg_jct").verdict == "less")  # fmt: skip
    lines = ["| policy | first in average JCT at | of these beyond noise of the second | geometric mean over the "
             "first |", "|---|---|---|---|"]  # fmt: skip
    means = {policy: exp(fmean(log(place.ratio(policy, place.ranked()[0], "avg_jct").value) for place in found))
             for policy in found[0].found}  # fmt: skip
    for policy in sorted(means, key=lambda name: means[name]):
        lines.append(f"| `{policy}` | {won[policy]} of {len(found)} | {clear[policy]} | {means[policy]:.3f} |")
    return lines


def marks(found: Iterable[Place], figure: str) -> list[Mark]:
    made = []
    for place in found:
        ratio = place.ratio(OURS, place.best_other(), figure)
        assert ratio.low is not None and ratio.high is not None
        made.append(Mark(place.name, ratio.value, ratio.low, ratio.high, f"{place.name}: {span(ratio)}, against "
                         f"{place.best_other()}"))  # fmt: skip
    return made


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(f"usage: {__doc__}")
    told, untold, out = map(Path, sys.argv[1:])
    frames = [pl.read_parquet(folder / "results.parquet") for folder in (told, untold)]
    frame = pl.concat(frames, how="diagonal_relaxed")
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# The grid: every place", "", "Ratios with 95 % intervals over five paired seeds; `=`: within noise; "
             "below 1 is less. *dally*: over the best other of its group by average JCT.", ""]  # fmt: skip
    for number, (knowledge, title) in enumerate(GROUPS.items()):
        found = places(frame, knowledge)
        print(f"\n## {title}, {len(found)} places\n\n" + "\n".join([*firsts(found), "", *summary(found)]))
        lines += [f"## {title.capitalize()}", "", *table(found), ""]
        name = ("exact", "noisy", "untold")[number]
        both = {"average JCT": marks(found, "avg_jct"), "makespan": marks(found, "makespan")}
        heading = f"dally over the best of the others, {title}: 95 % intervals"
        (out / f"{name}.svg").write_text(forest(heading, both), encoding="utf-8")
    (out / "table.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
