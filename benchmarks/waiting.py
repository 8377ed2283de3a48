"""How long to wait for near GPUs, measured: `python benchmarks/waiting.py run|show|write FILE`.

    run FILE --study lasting|preempting|parts|constants|sweep|… [--cells a;b] [--seeds 201,202] [--jobs 250]
             [--workers 2] [--minutes 60]
    show FILE [--every]          the tables, as Markdown
    write FILE docs/waiting.md   the same into the page, between its marks

`run` adds a line of JSON per run to the file and leaves out what is there already: it may be stopped and begun again. A
worker makes the jobs of one cell and seed once and runs every policy on them. After `--minutes` no new one is begun.
`lasting`: nobody is preempted, durations told exactly; our rule against never waiting, always waiting, and fixed
timers; `lasting-untold`: the same with nothing told.
`preempting`: what a preemption costs, and each policy with preemption as if it were free, as it costs, and without.
`parts`: dally with one part after the other taken out, durations told exactly, and `parts-untold`: with nothing told;
`constants`: the same of the rule where nobody is preempted (`waiting_parts`). All take parts out of the sources:
DALLY_PURE=1.
`sweep`: the rule against all who are told the same (`waiting_sweep`); `fairness`: what `breadth` gives and takes.
Seeds 1 to 3, 101 to 106, 201 to 205 and 301 to 305 were looked at while the rules were made; 401 to 405 were not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TextIO

import numpy as np
import waiting_fairness
import waiting_parts
import waiting_sweep

from dally.compiled import is_compiled
from dally.core.job import Job, Truth
from dally.experiments.sweeps.statistics import paired
from dally.report.bound import bound_of
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
LASTING: dict[str, dict[str, Any]] = {
    OURS: {}, **{f"dally[waits={waits},preempt=never]": {} for waits in ("never", "always", *TIMERS)},
    "srtf[gpu_time=true,placement=best-fit,preempt=never]": {}}  # fmt: skip
STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    "lasting": LASTING, "lasting-untold": LASTING,
    "preempting": {f"{policy} at {cost}": {"preemption_cost": cost} for cost in COSTS for policy in (
        "dally", "dally[preempt=costly]", "las", "las[preempt=costly]", "tiresias", "tiresias[preempt=costly]",
        "srtf[gpu_time=true]", "srtf[gpu_time=true,preempt=costly]")},
}  # fmt: skip
PARTS, PARTS_UNTOLD, CONSTANTS, SWEEP, FAIRNESS = "parts", "parts-untold", "constants", "sweep", "fairness"
IN_PARTS = (PARTS, PARTS_UNTOLD, CONSTANTS)
TOLD = {"lasting": "exact", "preempting": "exact", PARTS: "exact", CONSTANTS: "exact"}  # the other studies: nothing
SEEDS = (401, 402, 403, 404, 405)
PARTS_OF = ("mixed, 25g, 0.9", "wide gangs, 25g, 0.85", "helios-multi, 25g, 0.9", "philly-multi, 100g 4:1, 0.7",
            "week, 100g 4:1, 0.7", "batch, 100g 4:1")  # fmt: skip
CONSTANTS_OF = ("odd gangs, 25g, 0.8", "odd gangs, 100g 4:1, 0.8", "wide gangs, 100g 4:1, 0.7", "mixed, 25g, 0.9",
                "philly-multi, 100g 4:1, 0.7", "week, 100g 4:1, 0.7")  # fmt: skip
CLASSES = (0, 1, 4, 8, 16, 10**9)  # GPUs: sizes of gangs between which slowdowns are compared
_FEW = 5  # jobs of a class that count for nothing


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "write"))
    parser.add_argument("file", type=Path)
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--study", choices=(*STUDIES, *IN_PARTS, SWEEP, FAIRNESS), default="lasting")
    parser.add_argument("--cells", default="", help="beginnings of their names, with a semicolon between them")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=250)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which nothing new is begun")
    parser.add_argument("--every", action="store_true", help="every cell of the sweep, not only the worst")
    given = parser.parse_args(words)
    if given.what == "run":
        if given.study in IN_PARTS and is_compiled():
            parser.error("nothing can be taken out of what is compiled: DALLY_PURE=1")
        seeds = [int(seed) for seed in given.seeds.split(",")]
        run(given.file, given.study, given.cells.split(";"), seeds, given.jobs, given.workers, given.minutes * 60)
    elif given.what == "show":
        print("\n".join(tables(read(given.file), every=given.every)))
    elif given.page is None:
        parser.error("write needs a page")
    else:
        before, _, rest = given.page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        given.page.write_text(before + BEGIN + "\n".join(tables(read(given.file))) + "\n" + END + after)


@dataclass(frozen=True, slots=True)
class Task:
    """What is run in one cell: titles in the tables, with the policy and what is changed for it."""

    name: str
    scenario: Callable[[int, int], Scenario]
    policies: Mapping[str, tuple[str, Sequence[waiting_parts.Change]]]
    cost: str = ""


def tasks(study: str) -> Iterator[Task]:
    told = TOLD.get(study, "none")
    if study == SWEEP:
        for made in waiting_sweep.design():
            yield Task(made.name, made.scenario, {title: (policy, ()) for title, policy in made.policies().items()})
    elif study == FAIRNESS:
        for made in waiting_fairness.cells():
            breadths = waiting_fairness.policies(made)
            yield Task(made.name, made.scenario, {title: (policy, ()) for title, policy in breadths.items()})
    elif study in IN_PARTS:
        names, parts = ((CONSTANTS_OF, waiting_parts.CONSTANTS) if study == CONSTANTS else
                        (PARTS_OF, waiting_parts.PARTS))  # fmt: skip
        for name in names:
            yield Task(name, partial(CELLS[name].scenario, knowledge=told), dict(parts))
    elif study == "preempting":
        for name, cell in CELLS.items():
            for cost in COSTS:
                policies = {title: (title.partition(" at ")[0], ()) for title in STUDIES[study] if title.endswith(cost)}
                yield Task(name, partial(cell.scenario, preemption_cost=cost, knowledge=told), policies, cost)
    else:
        for name, cell in CELLS.items():
            yield Task(name, partial(cell.scenario, knowledge=told), {title: (title, ()) for title in STUDIES[study]})


class Left(NamedTuple):
    """Of one cell and seed, what has not been run: the titles."""

    study: str
    cell: str
    cost: str  # of a preemption, where the study has several
    seed: int
    jobs: int
    titles: tuple[str, ...]


def run(file: Path, study: str, begins: Sequence[str], seeds: Sequence[int], jobs: int, workers: int,
        seconds: float) -> None:  # fmt: skip
    done = {(row["study"], row["cell"], row["seed"], row["jobs"], row["policy"]) for row in read(file)}
    left = []
    for task in tasks(study):
        for seed in seeds if any(task.name.startswith(begin) for begin in begins) else ():
            titles = tuple(title for title in task.policies if (study, task.name, seed, jobs, title) not in done)
            if titles:
                left.append(Left(study, task.name, task.cost, seed, jobs, titles))
    began, count = time.monotonic(), len(left)
    with ProcessPoolExecutor(workers) as pool, file.open("a") as out:
        under_way = {pool.submit(found, each): each for each in left[:workers]}
        for each in left[workers:]:
            _write(wait(under_way, return_when=FIRST_COMPLETED).done, under_way, out, count)
            if time.monotonic() - began > seconds:
                break
            under_way[pool.submit(found, each)] = each
        while under_way:
            _write(wait(under_way, return_when=FIRST_COMPLETED).done, under_way, out, count)


def _write(done: Iterable[Any], under_way: dict[Any, Left], out: TextIO, count: int) -> None:
    for each in done:
        rows, seconds = each.result()
        task = under_way.pop(each)
        out.writelines(json.dumps(row) + "\n" for row in rows)
        out.flush()
        print(f"{task.study}: {task.cell}, seed {task.seed}: {seconds:.1f} CPU s ({count} in all)", file=sys.stderr)


def found(left: Left) -> tuple[list[dict[str, Any]], float]:
    """The rows, and the CPU seconds they took."""
    began = time.process_time()
    task = next(each for each in tasks(left.study) if (each.name, each.cost) == (left.cell, left.cost))
    made = prepare_scenario(task.scenario(left.seed, left.jobs))
    rows = []
    for title in left.titles:
        policy, changes = task.policies[title]
        with waiting_parts.taken_out(changes):
            got = figures(made, made.run(policy))
        rows.append({"study": left.study, "cell": left.cell, "seed": left.seed, "jobs": left.jobs, "policy": title,
                     **got})  # fmt: skip
    return rows, time.process_time() - began


def figures(made: Experiment, run: Run) -> dict[str, float]:
    """Hours; slowdown is JCT over the run time at the best placement, of which a minute counts at least."""
    jobs, window = job_columns(run.ledger), made.window
    measured = np.array([window is None or window.holds(*job) for job in zip(jobs.job_id, jobs.submit, strict=True)])
    assert not (measured & ~jobs.finished).any(), "every job that is measured ends"
    alone = np.array([run.workload.best_run_time.get(name, math.nan) for name in jobs.job_id])
    slowdown = np.maximum(jobs.jct / np.maximum(alone, 60.0), 1.0)
    wide, narrow = (slowdown[measured & which] for which in (jobs.gpus > 8, jobs.gpus <= 8))
    jct, queueing = jobs.jct[measured] / 3600, jobs.queueing[measured] / 3600
    least = bound_of(run, made.topology).avg_jct
    return {"avg_jct": float(jct.mean()), "p99_jct": float(np.percentile(jct, 99)),
            "wide": float(wide.mean()) if len(wide) else 0.0, "narrow": float(narrow.mean()) if len(narrow) else 0.0,
            "worst_class": worst_class(jobs.gpus[measured], slowdown[measured]),
            "longest_queueing": float(queueing.max()),
            "makespan": float(np.nanmax(jobs.end) - jobs.submit.min()) / 3600,
            "preemptions": int(jobs.preemptions.sum()),
            "over_bound": float(jobs.jct[jobs.finished].mean()) / least if least else 0.0}  # fmt: skip


def worst_class(gpus: Any, slowdown: Any) -> float:
    """Mean slowdown of the size class with the largest, over that of the one with the least."""
    means = [float(slowdown[inside].mean()) for low, high in pairwise(CLASSES)
             if (inside := (gpus > low) & (gpus <= high)).sum() >= _FEW]  # fmt: skip
    return max(means) / min(means) if means else 1.0


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tables(rows: Sequence[dict[str, Any]], *, every: bool = False) -> Iterator[str]:
    for study, policies in STUDIES.items():
        mine = whole([row for row in rows if row["study"] == study], list(policies))
        if not mine:
            continue
        seeds, sizes = sorted({row["seed"] for row in mine}), sorted({row["jobs"] for row in mine})
        yield (f"**{study}**: seeds {', '.join(map(str, seeds))}; {', '.join(map(str, sizes))} jobs a run. "
               f"Durations told: {TOLD.get(study, 'none')}. Average JCT, hours.\n")  # fmt: skip
        if study.startswith("lasting"):
            yield from lasting(mine)
        else:
            yield "| cell | " + " | ".join(f"`{policy}`" for policy in policies) + " |\n|---|" + "---|" * len(policies)
            for cell in cells_of(mine):
                means = [f"{fmean(by_seed(mine, cell, policy).values()):.2f}" for policy in policies]
                yield f"| {cell} | {' | '.join(means)} |"
        yield ""
    for study in IN_PARTS:
        parts = [row for row in rows if row["study"] == study]
        if parts:
            said = ", ".join(map(str, sorted({row["seed"] for row in parts})))
            yield (f"**{study}**: over dally as it is; durations told: {TOLD.get(study, 'none')}; seeds {said}, "
                   f"{parts[0]['jobs']} jobs a run (95 % over seeds).\n")  # fmt: skip
            yield from waiting_parts.tables(parts)
            yield ""
    fairness = [row for row in rows if row["study"] == FAIRNESS]
    if fairness:
        yield from waiting_fairness.tables(fairness)
    sweep = [row for row in rows if row["study"] == SWEEP]
    if sweep:
        yield from waiting_sweep.tables(sweep, every=every)


def whole(rows: Sequence[dict[str, Any]], policies: Sequence[str]) -> list[dict[str, Any]]:
    """Without cells that do not have every policy for all the seeds of the study."""
    seeds = {row["seed"] for row in rows}
    done = {cell for cell in cells_of(rows) if all(by_seed(rows, cell, policy).keys() == seeds for policy in policies)}
    return [row for row in rows if row["cell"] in done]


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
