"""How long to wait for near GPUs, measured: `python benchmarks/waiting.py run|show|write FILE`.

    run FILE [--study lasting|preempting|parts] [--cells a,b] [--seeds 201,202] [--jobs 250]
    show FILE      the tables, as Markdown
    write FILE docs/waiting.md   the same into the page, between its marks

`run` adds a line of JSON per run to the file and leaves out what is there already. The studies:
`lasting`: nobody is preempted; our rule against never waiting, always waiting, and fixed timers.
`preempting`: what a preemption costs, and each policy with preemption as if it were free, as it costs, and without.
`parts`: dally with one part after the other switched off.
Seeds 1 to 3 were used while the rules were made; 201 to 205 were not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dally.core.job import Job, Truth
from dally.experiments.sweeps.statistics import paired
from dally.report.columns import job_columns
from dally.simulator.experiment import Experiment
from dally.simulator.preparing import prepare_scenario
from dally.simulator.run import Run
from dally.simulator.scenario import Scenario
from dally.traces.trace import Trace

GPUS, CLUSTER = 64, "2x4x8"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"
LARGE = ("bert-base", "gpt2-xl")
SEVERAL = ("bert-base", "gpt2-xl", "resnet50", "vgg16")
TIMERS = ("10m", "1h", "4h", "12h")


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload on 64 GPUs. With `sizes`, gangs are drawn: Poisson arrivals, log-normal durations (median 1 h, σ 1.2)
    that mean the best placement, sizes and models evenly."""

    fabric: str
    load: float | None
    synth: str = ""
    sizes: Sequence[int] = ()
    models: Sequence[str] = ()

    def scenario(self, seed: int, jobs: int, **more: Any) -> Scenario:
        if self.synth:
            return Scenario(f"synth:{self.synth}", CLUSTER, jobs=jobs, load=self.load, fabric=self.fabric, seed=seed,
                            **more)  # fmt: skip
        return Scenario(self.drawn(seed, jobs), CLUSTER, fabric=self.fabric, seed=seed, window="10%..90%", **more)

    def drawn(self, seed: int, jobs: int) -> Trace:
        assert self.load is not None
        draw = random.Random(f"waiting/{seed}")
        rows = [(draw.choice(self.sizes), draw.choice(self.models), min(3600 * math.exp(draw.gauss(0, 1.2)), 3 * 86400))
                for _ in range(jobs)]  # fmt: skip
        gaps = [draw.expovariate(1.0) for _ in rows]
        scale = sum(gpus * seconds for gpus, _, seconds in rows) / (self.load * GPUS * sum(gaps))
        times = [0.0]
        for gap in gaps[:-1]:
            times.append(times[-1] + gap * scale)
        made = [Job(f"j{i}", time, gpus, model=model)
                for i, (time, (gpus, model, _)) in enumerate(zip(times, rows, strict=True))]  # fmt: skip
        return Trace(f"gangs-{seed}", "drawn", made, [Truth(seconds) for _, _, seconds in rows])


CELLS = {
    "odd gangs, 25g, 0.8": Cell("ethernet-25g", 0.8, sizes=(3, 5, 6), models=LARGE),
    "odd gangs, 100g 4:1, 0.8": Cell("ethernet-100g-4to1", 0.8, sizes=(3, 5, 6), models=LARGE),
    "wide gangs, 100g 4:1, 0.7": Cell("ethernet-100g-4to1", 0.7, sizes=(8, 16, 24, 32), models=SEVERAL),
    "wide gangs, 25g, 0.85": Cell("ethernet-25g", 0.85, sizes=(8, 16, 24, 32), models=SEVERAL),
    "mixed, 25g, 0.9": Cell("ethernet-25g", 0.9, sizes=(1, 1, 2, 4, 8, 16), models=SEVERAL),
    "mixed, 25g, 0.6": Cell("ethernet-25g", 0.6, sizes=(1, 1, 2, 4, 8, 16), models=SEVERAL),
    "helios-multi, 100g 4:1, 0.7": Cell("ethernet-100g-4to1", 0.7, "helios-multi"),
    "helios-multi, 25g, 0.9": Cell("ethernet-25g", 0.9, "helios-multi"),
    "philly-multi, 100g 4:1, 0.7": Cell("ethernet-100g-4to1", 0.7, "philly-multi"),
    "week, 100g 4:1, 0.7": Cell("ethernet-100g-4to1", 0.7, "dally-poisson"),
    "batch, 100g 4:1": Cell("ethernet-100g-4to1", None, "dally-batch"),
}

OURS = "dally[preempt=never]"
COSTS = ("60s", "300s")
STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    "lasting": {OURS: {}, **{f"dally[waits={waits},preempt=never]": {} for waits in ("never", "always", *TIMERS)},
                "srtf[gpu_time=true,placement=best-fit,preempt=never]": {}},
    "preempting": {f"{policy} at {cost}": {"preemption_cost": cost} for cost in COSTS for policy in (
        "dally", "dally[preempt=costly]", "las", "las[preempt=costly]", "tiresias", "tiresias[preempt=costly]",
        "srtf[gpu_time=true]", "srtf[gpu_time=true,preempt=costly]")},
    "parts": {policy: {} for policy in (
        "dally", "dally[waits=never]", "dally[waits=always]", "dally[fit=first]", "dally[preempt=never]",
        "srtf[gpu_time=true,placement=best-fit]", "tiresias[variant=dally-paper]")},
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "write"))
    parser.add_argument("file", type=Path)
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--study", choices=tuple(STUDIES), default="lasting")
    parser.add_argument("--cells", default="", help="beginnings of their names, with a semicolon between them")
    parser.add_argument("--seeds", default="201,202,203,204,205")
    parser.add_argument("--jobs", type=int, default=250)
    given = parser.parse_args(words)
    if given.what == "run":
        cells = [name for name in CELLS if any(name.startswith(part) for part in given.cells.split(";"))]
        run(given.file, given.study, cells, [int(seed) for seed in given.seeds.split(",")], given.jobs)
    elif given.what == "show":
        print("\n".join(tables(read(given.file))))
    elif given.page is None:
        parser.error("write needs a page")
    else:
        before, _, rest = given.page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        given.page.write_text(before + BEGIN + "\n".join(tables(read(given.file))) + "\n" + END + after)


def run(file: Path, study: str, cells: Sequence[str], seeds: Sequence[int], jobs: int) -> None:
    done = {(row["study"], row["cell"], row["seed"], row["jobs"], row["policy"]) for row in read(file)}
    for cell in cells:
        for seed in seeds:
            for title, more in STUDIES[study].items():
                if (study, cell, seed, jobs, title) in done:
                    continue
                made = prepare_scenario(CELLS[cell].scenario(seed, jobs, **more))
                found = figures(made, made.run(title.partition(" at ")[0]))
                row = {"study": study, "cell": cell, "seed": seed, "jobs": jobs, "policy": title, **found}
                with file.open("a") as out:
                    out.write(json.dumps(row) + "\n")
            print(f"{study}: {cell}, seed {seed}", file=sys.stderr)


def figures(made: Experiment, run: Run) -> dict[str, float]:
    """Hours; slowdown is JCT over the run time at the best placement, of which a minute counts at least."""
    jobs, window = job_columns(run.ledger), made.window
    measured = np.array([window is None or window.holds(*job) for job in zip(jobs.job_id, jobs.submit, strict=True)])
    assert not (measured & ~jobs.finished).any(), "every job that is measured ends"
    alone = np.array([run.workload.best_run_time.get(name, math.nan) for name in jobs.job_id])
    slowdown = np.maximum(jobs.jct / np.maximum(alone, 60.0), 1.0)
    wide, narrow = (slowdown[measured & which] for which in (jobs.gpus > 8, jobs.gpus <= 8))
    jct, queueing = jobs.jct[measured] / 3600, jobs.queueing[measured] / 3600
    return {"avg_jct": float(jct.mean()), "p99_jct": float(np.percentile(jct, 99)),
            "wide": float(wide.mean()) if len(wide) else 0.0, "narrow": float(narrow.mean()) if len(narrow) else 0.0,
            "longest_queueing": float(queueing.max()),
            "makespan": float(np.nanmax(jobs.end) - jobs.submit.min()) / 3600,
            "preemptions": int(jobs.preemptions.sum())}  # fmt: skip


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tables(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for study, policies in STUDIES.items():
        mine = [row for row in rows if row["study"] == study]
        if not mine:
            continue
        seeds, sizes = sorted({row["seed"] for row in mine}), sorted({row["jobs"] for row in mine})
        yield (f"**{study}**: seeds {', '.join(map(str, seeds))}; {', '.join(map(str, sizes))} jobs a run. "
               "Average JCT, hours.\n")  # fmt: skip
        if study == "lasting":
            yield from lasting(mine)
        else:
            there = [policy for policy in policies if any(row["policy"] == policy for row in mine)]
            yield "| cell | " + " | ".join(f"`{policy}`" for policy in there) + " |\n|---|" + "---|" * len(there)
            for cell in cells_of(mine):
                found = {policy: by_seed(mine, cell, policy) for policy in there}
                means = [f"{fmean(values.values()):.2f}" if values else "" for values in found.values()]
                yield f"| {cell} | {' | '.join(means)} |"
        yield ""


def lasting(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Against the best in hindsight: the one of never, always and the fixed timers that has the lowest mean over the
    seeds of a cell. `best per seed` is against the best of each seed, which is another one each time."""
    others = {waits: f"dally[waits={waits},preempt=never]" for waits in ("never", "always", *TIMERS)}
    yield "| cell | never | always | best timer | value | value / best of them | best per seed | srtf |"
    yield "|---" * 8 + "|"
    for cell in cells_of(rows):
        ours = by_seed(rows, cell, OURS)
        found = {waits: by_seed(rows, cell, policy) for waits, policy in others.items()}
        means = {waits: fmean(values.values()) for waits, values in found.items()}
        timer = min(TIMERS, key=means.__getitem__)
        best = min(means, key=means.__getitem__)
        ratio = paired(ours, found[best])
        assert ratio is not None
        hindsight = fmean(ours[seed] / min(values[seed] for values in found.values()) for seed in ours)
        informed = fmean(by_seed(rows, cell, "srtf[gpu_time=true,placement=best-fit,preempt=never]").values())
        between = "" if ratio.low is None else f" ({ratio.low:.2f}–{ratio.high:.2f})"
        yield (f"| {cell} | {means['never']:.2f} | {means['always']:.2f} | {means[timer]:.2f} ({timer}) | "
               f"{fmean(ours.values()):.2f} | {ratio.value:.2f}{between}, {best} | {hindsight:.2f} | "
               f"{informed:.2f} |")  # fmt: skip


def cells_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    there = {row["cell"] for row in rows}
    return [cell for cell in CELLS if cell in there]


def by_seed(rows: Sequence[dict[str, Any]], cell: str, policy: str, figure: str = "avg_jct") -> dict[int, float]:
    return {row["seed"]: row[figure] for row in rows if row["cell"] == cell and row["policy"] == policy}


if __name__ == "__main__":
    main()
