"""Waiting by its value against the paper's timers and Tiresias on a grid of workloads, clusters, fabrics and seeds.

    python benchmarks/grid.py run                       # what is missing of the whole grid (hours on two cores)
    python benchmarks/grid.py run --seeds 1 --clusters 2x4x8 --workers 1
    python benchmarks/grid.py run --batch FILE --week FILE   # the Dally authors' own jobs beside the synthetic ones
    python benchmarks/grid.py show                      # the goals, cell by cell, from what was run
    python benchmarks/grid.py write docs/grid           # the same as a page with plots

Every run is one line of `--results` (JSON), written when it ends: a run that is there is not repeated, and stopping
loses nothing. A cell is a workload on a cluster with a fabric; figures of a cell are means over its seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from grid_page import show, write_page

RESULTS = Path("out/grid.jsonl")
CLUSTERS = {"2x4x8": 400, "4x8x8": 600, "8x8x8": 900}  # jobs synthesised at a load: enough to fill it for days
FABRICS = ("dally", "dally-congested", "ethernet-100g-4to1")
LOADS = (0.5, 0.8, 1.1)
SEEDS = (1, 2, 3, 4, 5)


class Entrant(NamedTuple):
    """A policy and what jobs declare to it."""

    policy: str
    knowledge: str = "declared"


ENTRANTS = {
    "value": Entrant("dally[timers=value]"),
    "value, noisy 0.7": Entrant("dally[timers=value]", "noisy=0.7"),
    "value, none": Entrant("dally[timers=value]", "none"),
    "auto": Entrant("dally[timers=auto]"),
    "manual": Entrant("dally[timers=manual]"),
    "none": Entrant("dally[timers=none]"),
    "infinite": Entrant("dally[timers=infinite]"),
    "tiresias, Dally's": Entrant("tiresias[variant=dally-paper]"),
    "tiresias": Entrant("tiresias"),
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One trace on one cluster: what every policy is run on."""

    workload: str  # batch, week, helios 0.5, …
    cluster: str
    fabric: str
    seed: int
    file: str | None = None

    def key(self, entrant: str) -> tuple[str, str, str, int, str]:
        return self.workload, self.cluster, self.fabric, self.seed, entrant


def instances(args: argparse.Namespace) -> Iterator[Instance]:
    """All of them, seed by seed, so that what has been run so far covers the whole grid."""
    shapes = ["batch", "week", *(f"{name} {load}" for load in LOADS for name in ("helios", "philly"))]
    wanted = args.workloads or shapes
    for seed in args.seeds:
        for cluster in args.clusters:
            for fabric in args.fabrics:
                for shape in wanted:
                    yield Instance(shape, cluster, fabric, seed)
                for name, file in (("authors' batch", args.batch), ("authors' week", args.week)):
                    if file is not None and seed == args.seeds[0]:
                        yield Instance(name, cluster, fabric, 0, file)


def build(instance: Instance) -> Any:
    from dally.simulator.scenario import Scenario

    name, _, load = instance.workload.partition(" ")
    shared = {"cluster": instance.cluster, "fabric": instance.fabric, "seed": instance.seed}
    if instance.file is not None:
        return Scenario.of({**shared, "trace": instance.file}).prepare()
    if name in ("batch", "week"):
        trace, jobs = ("synth:dally-batch", 500) if name == "batch" else ("synth:dally-poisson", 411)
        return Scenario.of({**shared, "trace": trace, "jobs": jobs}).prepare()
    jobs = CLUSTERS.get(instance.cluster, 1000)
    # the table on the page was made from an empty cluster, every job measured
    return Scenario.of({**shared, "trace": f"synth:{name}-multi", "jobs": jobs, "load": float(load),
                        "warm_start": False, "window": "all"}).prepare()  # fmt: skip


def run_instance(task: tuple[Instance, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The entrants asked for, on one instance; the lower bound is computed once."""
    from dally.report.metrics import summarise

    instance, entrants = task
    base = build(instance)
    lines = []
    for name in entrants:
        entrant = ENTRANTS[name]
        run = replace(base, knowledge=entrant.knowledge).run(entrant.policy)
        found = summarise(run, base.topology)
        lines.append({
            "workload": instance.workload, "cluster": instance.cluster, "fabric": instance.fabric,
            "seed": instance.seed, "entrant": name, "jobs": found.jobs, "unfinished": found.unfinished,
            "avg_jct": found.avg_jct, "p95_jct": found.p95_jct, "p99_jct": found.p99_jct, "makespan": found.makespan,
            "avg_queueing": found.avg_queueing, "comm_share": found.comm_share, "preemptions": found.preemptions,
            "migrations": found.migrations, "bound": found.lower_bound.avg_jct,
            "makespan_bound": found.lower_bound.makespan, "cpu_seconds": found.cpu_seconds, "events": found.events,
        })  # fmt: skip
    return lines


def read(results: Path) -> dict[tuple[str, str, str, int, str], dict[str, Any]]:
    """The latest line of every run."""
    if not results.exists():
        return {}
    lines = (json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line.strip())
    return {(r["workload"], r["cluster"], r["fabric"], r["seed"], r["entrant"]): r for r in lines}


def missing(args: argparse.Namespace) -> list[tuple[Instance, tuple[str, ...]]]:
    done = read(args.results)
    tasks = []
    for instance in instances(args):
        todo = tuple(name for name in args.entrants if args.again or instance.key(name) not in done)
        if todo:
            tasks.append((instance, todo))
    return tasks


def run(args: argparse.Namespace) -> None:
    tasks = missing(args)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    count = sum(len(todo) for _, todo in tasks)
    print(f"{count} runs on {len(tasks)} instances to do", file=sys.stderr)
    with args.results.open("a", encoding="utf-8") as file:
        for number, lines in enumerate(_each(tasks, args.workers), 1):
            for line in lines:
                file.write(json.dumps(line) + "\n")
            file.flush()
            last = lines[-1]
            print(f"\r{number}/{len(tasks)} {last['workload']} {last['cluster']} {last['fabric']} seed {last['seed']}"
                  f"{'':20}", end="", file=sys.stderr)  # fmt: skip
    print(file=sys.stderr)


def _each(tasks: list[tuple[Instance, tuple[str, ...]]], workers: int) -> Iterable[list[dict[str, Any]]]:
    if workers <= 1:
        yield from map(run_instance, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=20) as pool:
        yield from pool.imap_unordered(run_instance, tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "write"), nargs="?", default="show")
    parser.add_argument("page", nargs="?", type=Path, help="folder for write")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--workloads", type=lambda text: text.split(","), help="batch,week,helios 0.5,…")
    parser.add_argument("--clusters", type=lambda text: text.split(","), default=list(CLUSTERS))
    parser.add_argument("--fabrics", type=lambda text: text.split(","), default=list(FABRICS))
    parser.add_argument("--seeds", type=lambda text: [int(x) for x in text.split(",")], default=list(SEEDS))
    parser.add_argument("--entrants", type=lambda text: text.split("/"), default=list(ENTRANTS), help="value/auto/…")
    parser.add_argument("--batch", help="the authors' batch, a file")
    parser.add_argument("--week", help="the authors' Poisson week, a file")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--again", action="store_true", help="run also what was run before")
    args = parser.parse_args()
    if args.what == "run":
        run(args)
    elif args.what == "write":
        if args.page is None:
            parser.error("write needs a folder")
        write_page(list(read(args.results).values()), args.page)
    else:
        show(list(read(args.results).values()))


if __name__ == "__main__":
    main()
