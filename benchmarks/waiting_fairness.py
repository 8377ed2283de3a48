"""The study `fairness` of `waiting.py`: what `breadth` gives wide gangs, and what it takes from the average.

The cells are those of the balanced fraction of the sweep in which jobs may be preempted: where nobody may be, a gang as
wide as the cluster waits for everybody, whatever the order is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import waiting_sweep

from dally.experiments.sweeps.statistics import paired

BREADTHS = ("1", "0.5", "0")
FIGURES = {"avg_jct": "average JCT", "p99_jct": "p99 JCT", "wide": "slowdown over 8 GPUs",
           "worst_class": "worst class over best", "longest_queueing": "longest queueing"}  # fmt: skip
Row = Mapping[str, Any]


def cells() -> list[waiting_sweep.Cell]:
    return [cell for cell in waiting_sweep.design()[:48] if cell.price != "never"]


def policies(cell: waiting_sweep.Cell) -> dict[str, str]:
    how = "" if cell.price == "free" else "preempt=costly"
    found = {f"breadth {each}": waiting_sweep._with("dally", f"breadth={each}", how) for each in BREADTHS}
    return {**found, "tiresias": waiting_sweep._with("tiresias", how)}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Every breadth over 1: per seed the geometric mean over the cells, 95 % over seeds; and what it comes to."""
    by: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        by.setdefault((row["cell"], row["policy"]), {})[row["seed"]] = row
    seeds = sorted({row["seed"] for row in rows})
    whole = [cell.name for cell in cells() if all(len(by.get((cell.name, name), ())) == len(seeds)
                                                  for name in policies(cell))]  # fmt: skip
    said = ", ".join(map(str, seeds))
    yield f"**fairness**: {len(whole)} cells of the sweep in which jobs may be preempted; seeds {said}.\n"
    yield "| breadth | " + " | ".join(FIGURES.values()) + \
        " | worst class at most 3 × the best | longest queueing at most Tiresias' |"
    yield "|---" * (len(FIGURES) + 3) + "|"
    for breadth in (f"breadth {each}" for each in BREADTHS):
        found = [_over(by, whole, seeds, breadth, figure) for figure in FIGURES]
        fair = [_mean(by, cell, breadth, "worst_class") <= 3.0 for cell in whole]
        soon = [_mean(by, cell, breadth, "longest_queueing") <= _mean(by, cell, "tiresias", "longest_queueing")
                for cell in whole]  # fmt: skip
        shares = " | ".join(f"{sum(each) / len(each):.0%}" if each else "" for each in (fair, soon))
        yield f"| {breadth.partition(' ')[2]} | {' | '.join(found)} | {shares} |"
    yield ""


def _mean(by: Mapping[tuple[str, str], Mapping[int, Row]], cell: str, policy: str, figure: str) -> float:
    return fmean(row[figure] for row in by[cell, policy].values())


def _over(by: Mapping[tuple[str, str], Mapping[int, Row]], names: Sequence[str], seeds: Sequence[int], policy: str,
          figure: str) -> str:  # fmt: skip
    per_seed = {}
    for seed in seeds:
        logs = [math.log(by[name, policy][seed][figure] / by[name, "breadth 1"][seed][figure]) for name in names
                if by[name, policy][seed][figure] > 0 and by[name, "breadth 1"][seed][figure] > 0]  # fmt: skip
        if logs:
            per_seed[seed] = math.exp(fmean(logs))
    ratio = paired(per_seed, dict.fromkeys(per_seed, 1.0)) if per_seed else None
    if ratio is None:
        return ""
    return f"{ratio.value:.2f}" if ratio.low is None else f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
