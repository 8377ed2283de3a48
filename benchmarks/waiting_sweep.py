"""The study `sweep` of `waiting.py`: the rule against whoever is told the same, on every cell there is.

Four workloads × four fabrics × three loads × four prices of preemption × three kinds of knowledge, and two workloads
that have their own load: 672 cells. The first 48 are a balanced fraction: every workload meets every fabric twice, each
time with a load, a price and a knowledge from shuffled lists in which all of them are as frequent. All others follow in
a shuffled order: wherever the runs end, what there is is a sample of all. A cell counts once it has all the seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from dally.core.job import Job, Truth
from dally.experiments.sweeps.statistics import paired
from dally.simulator.scenario import Scenario
from dally.traces.trace import Trace

CLUSTER, GPUS = "2x4x8", 64
WORKLOADS = ("helios-multi", "philly-multi", "dally-poisson", "week", "acme", "batch")
FABRICS = ("ethernet-25g", "ethernet-100g-4to1", "infiniband-hdr", "dally-congested")
LOADS = (0.6, 0.9, 1.1)
PRICES = ("free", "60s", "300s", "never")
KNOWLEDGE = ("none", "noisy=0.7", "exact")
OWN_LOAD = ("week", "batch")  # come as they are


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload with what is known of it, on 64 GPUs."""

    workload: str
    fabric: str
    load: float | None  # None: as the workload has it
    price: str
    knowledge: str

    @property
    def name(self) -> str:
        load = "" if self.load is None else f" at {self.load:g}"
        return f"{self.workload}{load}, {self.fabric}, {self.price}, {self.knowledge}"

    def scenario(self, seed: int, jobs: int) -> Scenario:
        more: dict[str, Any] = {"fabric": self.fabric, "seed": seed, "knowledge": self.knowledge}
        if self.price != "never":
            more["preemption_cost"] = "0s" if self.price == "free" else self.price
        if self.workload == "acme":
            assert self.load is not None
            return Scenario(acme(seed, jobs, self.load), CLUSTER, window="10%..90%", **more)
        synth = {"week": "dally-poisson", "batch": "dally-batch"}.get(self.workload, self.workload)
        return Scenario(f"synth:{synth}", CLUSTER, jobs=jobs, load=self.load, **more)

    def policies(self) -> dict[str, str]:
        """By what they are called in the tables. Who preempts knows the price, as measured, where there is one."""
        how = {"free": "", "never": "preempt=never"}.get(self.price, "preempt=costly")
        found = {"dally": _with("dally", how), "never": _with("dally", "waits=never", how),
                 "always": _with("dally", "waits=always", how), "las": _with("las", how),
                 "tiresias": _with("tiresias", how), "fifo, easy": "fifo[backfill=easy]"}  # fmt: skip
        if self.price != "never":
            found["gandiva"] = "gandiva"  # it takes turns on GPUs: that is what it is
        if self.knowledge != "none":
            found["srtf"] = _with("srtf", "gpu_time=true", "placement=best-fit", how)
        return found


def _with(policy: str, *options: str) -> str:
    return f"{policy}[{','.join(filter(None, options))}]" if any(options) else policy


def acme(seed: int, jobs: int, load: float) -> Trace:
    """Jobs of a cluster that makes language models, in outline: nine of ten evaluate for minutes on 1 to 8 GPUs, a few
    fine-tune for hours, one in thirty trains for a day or so on half of the cluster or more and takes most of its time.
    The shares are rounded from what Hu et al., NSDI'24, say of Acme; it is no fit."""
    draw = random.Random(f"acme/{seed}")
    rows: list[tuple[int, str, float]] = []
    for _ in range(jobs):
        kind = draw.random()
        sizes, median, spread = (((1, 1, 2, 4, 8), 300.0, 1.0) if kind < 0.9 else ((8, 16), 2 * 3600.0, 1.0)
                                 if kind < 0.97 else ((32, 48), 12 * 3600.0, 0.8))  # fmt: skip
        rows.append((draw.choice(sizes), draw.choice(("bert-large", "gpt2-xl")),
                     min(median * math.exp(draw.gauss(0, spread)), 3 * 86400.0)))  # fmt: skip
    gaps = [draw.expovariate(1.0) for _ in rows]
    scale = sum(gpus * seconds for gpus, _, seconds in rows) / (load * GPUS * sum(gaps))
    time, made = 0.0, []
    for i, (gpus, model, _) in enumerate(rows):
        made.append(Job(f"j{i}", time, gpus, model=model))
        time += gaps[i] * scale
    return Trace(f"acme-{seed}", "drawn", made, [Truth(seconds) for _, _, seconds in rows])


def design() -> list[Cell]:
    draw = random.Random("waiting, sweep")
    pairs = list(product(WORKLOADS, FABRICS)) * 2
    rest = zip(pairs, *(_shuffled(draw, levels, len(pairs)) for levels in (LOADS, PRICES, KNOWLEDGE)), strict=True)
    cells = [_cell(workload, fabric, load, price, known) for (workload, fabric), load, price, known in rest]
    draw.shuffle(cells)
    others = [_cell(*levels) for levels in product(WORKLOADS, FABRICS, LOADS, PRICES, KNOWLEDGE)]
    draw.shuffle(others)
    return list(dict.fromkeys([*cells, *others]))


def _cell(workload: str, fabric: str, load: float, price: str, known: str) -> Cell:
    return Cell(workload, fabric, None if workload in OWN_LOAD else load, price, known)


def _shuffled(draw: random.Random, levels: Sequence[Any], count: int) -> list[Any]:
    """So many, each as often as the others."""
    found = [level for level in levels for _ in range(count // len(levels))]
    draw.shuffle(found)
    return found


# --- what must be shown ------------------------------------------------------------------------------------------

BASELINES = ("srtf", "tiresias", "las", "gandiva", "fifo, easy")
WORST = 12  # cells that are listed one by one
Row = Mapping[str, Any]


class Ratio(NamedTuple):
    """Of dally to another, over paired seeds; with one seed there is no interval."""

    value: float
    low: float
    high: float
    to: str

    def __str__(self) -> str:
        return f"{self.value:.2f}" if math.isnan(self.low) else f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


class Results:
    """The rows by cell and policy, of the cells that have all policies with all seeds."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.seeds = sorted({row["seed"] for row in rows})
        self._found: dict[tuple[str, str], dict[int, Row]] = {}
        for row in rows:
            self._found.setdefault((row["cell"], row["policy"]), {})[row["seed"]] = row
        self.cells = [cell for cell in design() if all(len(self._found.get((cell.name, name), ())) == len(self.seeds)
                                                       for name in cell.policies())]  # fmt: skip

    def by_seed(self, cell: Cell, policy: str, figure: str = "avg_jct") -> dict[int, float]:
        return {seed: row[figure] for seed, row in self._found.get((cell.name, policy), {}).items()}

    def mean(self, cell: Cell, policy: str, figure: str = "avg_jct") -> float:
        return fmean(self.by_seed(cell, policy, figure).values())

    def against(self, cell: Cell, others: Sequence[str], figure: str = "avg_jct") -> Ratio:
        """To the one with the lowest mean over the seeds: chosen after the runs, for each figure anew. NaN where there
        is no such figure."""
        there = [name for name in others if self.by_seed(cell, name)]
        best = min(there, key=lambda name: self.mean(cell, name, figure))
        found = paired(self.by_seed(cell, "dally", figure), self.by_seed(cell, best, figure))
        if found is None:
            return Ratio(math.nan, math.nan, math.nan, best)
        return Ratio(found.value, *((math.nan,) * 2 if found.low is None or found.high is None else
                                    (found.low, found.high)), best)  # fmt: skip

    def of_means(self, cell: Cell, other: str, figure: str) -> Ratio:
        """A longest queueing may be 0."""
        ours, theirs = self.mean(cell, "dally", figure), self.mean(cell, other, figure)
        return Ratio(ours / theirs if theirs else 1.0 if not ours else math.inf, math.nan, math.nan, other)

    def plain(self, cell: Cell, figure: str) -> Ratio:
        return Ratio(self.mean(cell, "dally", figure), math.nan, math.nan, "")

    def differ(self, cell: Cell) -> float:
        """How much it matters whether gangs wait."""
        never, always = self.mean(cell, "never"), self.mean(cell, "always")
        return max(never, always) / min(never, always)


def tables(rows: Sequence[Row], *, every: bool = False) -> Iterator[str]:
    """The goals, the levels, and the worst cells, or every cell."""
    found = Results(rows)
    seeds, jobs = (", ".join(map(str, each)) for each in (found.seeds, sorted({row["jobs"] for row in rows})))
    yield f"**sweep**: {len(found.cells)} of {len(design())} cells, seeds {seeds}; {jobs} jobs a run.\n"
    if not found.cells:
        return
    yield "| goal | cells it is about | met | missed beyond noise | worst |\n|---|---|---|---|---|"
    yield from goals(found)
    yield ""
    yield from _levels(found)
    yield ""
    ratios = {cell: found.against(cell, BASELINES) for cell in found.cells}
    listed = sorted(found.cells, key=lambda cell: -ratios[cell].value)[: None if every else WORST]
    which = "Every cell, the worst" if every else f"The {len(listed)} worst cells, the worst"
    yield f"{which} first. Average JCT in hours; ratios with 95 % over paired seeds.\n"
    yield "| cell | dally | best other | dally / best | never, always | p99 / best | over 8 GPUs / best |"
    yield "|---" * 7 + "|"
    for cell in listed:
        ratio = ratios[cell]
        p99, wide = (found.against(cell, BASELINES, figure).value for figure in ("p99_jct", "wide"))
        means = [found.mean(cell, name) for name in ("dally", ratio.to, "never", "always")]
        yield (f"| {cell.name} | {means[0]:.2f} | {means[1]:.2f} {ratio.to} | {ratio} | {means[2]:.2f}, "
               f"{means[3]:.2f} | {p99:.2f} | {'' if math.isnan(wide) else f'{wide:.2f}'} |")  # fmt: skip
    yield ""


def _levels(found: Results) -> Iterator[str]:
    """What each level of each factor does: geometric means over its cells."""
    yield "| of | cells | JCT / best told the same | at most 3 % behind | p99 / best | over 8 GPUs / best |"
    yield "|---" * 6 + "|"
    factors: dict[str, Sequence[Any]] = {"workload": WORKLOADS, "fabric": FABRICS, "load": LOADS, "price": PRICES,
                                         "knowledge": KNOWLEDGE}  # fmt: skip
    for factor, levels in factors.items():
        for level in levels:
            cells = [cell for cell in found.cells if getattr(cell, factor) == level]
            if not cells:
                continue
            ratios = [found.against(cell, BASELINES).value for cell in cells]
            p99, wide = ([value for cell in cells if (value := found.against(cell, BASELINES, figure).value) > 0]
                         for figure in ("p99_jct", "wide"))  # fmt: skip
            met = sum(ratio <= 1.03 for ratio in ratios) / len(ratios)
            yield (f"| {factor} {level} | {len(cells)} | {_geometric(ratios)} | {met:.0%} | {_geometric(p99)} | "
                   f"{_geometric(wide)} |")  # fmt: skip


def _geometric(values: Sequence[float]) -> str:
    return f"{math.exp(fmean(math.log(value) for value in values)):.2f}" if values else ""


def goals(found: Results) -> Iterator[str]:
    cells = found.cells
    jct = {cell: found.against(cell, BASELINES) for cell in cells}
    yield _goal("average JCT at most 3 % behind the best baseline told the same", jct, 1.03)
    for known in KNOWLEDGE:
        yield _goal(f"… told {known}", {cell: ratio for cell, ratio in jct.items() if cell.knowledge == known}, 1.03)
    yield _goal("… preempting nobody", {cell: ratio for cell, ratio in jct.items() if cell.price == "never"}, 1.03)
    yield _goal("… on InfiniBand", {cell: ratio for cell, ratio in jct.items() if "infiniband" in cell.fabric}, 1.03)
    informed = {cell: found.against(cell, ("srtf",)) for cell in cells if cell.knowledge == "exact"}
    yield _goal("told exactly, at most 3 % behind `srtf`", informed, 1.03)
    blind = {cell: ratio for cell, ratio in jct.items() if cell.knowledge == "none"}
    yield _goal("told nothing, ahead of the best that is told nothing", blind, 1.0)
    differ = {cell: ratio for cell, ratio in jct.items() if found.differ(cell) > 1.2}
    yield _goal("at least 15 % ahead where never and always waiting differ by more than 20 %", differ, 0.85)
    hindsight = {cell: found.against(cell, ("never", "always")) for cell in cells}
    yield _goal("at most 5 % behind the better of never and always, in hindsight", hindsight, 1.05)
    ahead = {cell: ratio for cell, ratio in hindsight.items() if cell in differ and cell.price == "never"}
    yield _goal("preempting nobody, ahead of both where they differ by more than 20 %", ahead, 1.0)
    yield _goal("p99 JCT no worse than the best baseline's",
                {cell: found.against(cell, BASELINES, "p99_jct") for cell in cells}, 1.0)  # fmt: skip
    yield _goal("slowdown of gangs over 8 GPUs no worse than the best baseline's",
                {cell: ratio for cell in cells
                 if not math.isnan((ratio := found.against(cell, BASELINES, "wide")).value)}, 1.0)  # fmt: skip
    classes = {cell: found.plain(cell, "worst_class") for cell in cells}
    yield _goal("mean slowdown of the worst size class at most 3 times the best's", classes, 3.0)
    yield _goal("… where jobs may be preempted", _preempting(classes), 3.0)
    queueing = {cell: found.of_means(cell, "tiresias", "longest_queueing") for cell in cells}
    yield _goal("longest queueing no longer than Tiresias'", queueing, 1.0)
    bound = {cell: found.plain(cell, "over_bound") for cell in cells if cell.load == 0.6}
    yield _goal("average JCT at most 1.5 times the lower bound, at load 0.6", bound, 1.5)
    yield _goal("… where jobs may be preempted", _preempting(bound), 1.5)


def _preempting(found: Mapping[Cell, Ratio]) -> dict[Cell, Ratio]:
    return {cell: ratio for cell, ratio in found.items() if cell.price != "never"}


def _goal(text: str, found: Mapping[Cell, Ratio], limit: float) -> str:
    """Missed beyond noise: all of the interval is above the limit."""
    if not found:
        return f"| {text} | 0 | | | |"
    met = sum(ratio.value <= limit for ratio in found.values()) / len(found)
    surely = [ratio.low > limit for ratio in found.values() if not math.isnan(ratio.low)]
    worst = max(found, key=lambda cell: found[cell].value)
    missed = f"{sum(surely) / len(surely):.0%}" if surely else ""
    return f"| {text} | {len(found)} | {met:.0%} | {missed} | {found[worst].value:.2f}: {worst.name} |"
