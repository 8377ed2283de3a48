"""What Gandiva's mechanisms are worth and an event costs: `python benchmarks/gandiva.py [ablation|scale|pairs]`.

`ablation`: each mechanism alone, all together, and all but one, on one overloaded workload of 180 GPUs, five draws.
`scale`: 10,000 jobs on 512 GPUs at load 1.3, and the cost of an event at two lengths of the queue.
`pairs FILE`: the interference formula against Gavel's measured pairs (its throughputs.json).
All tables are Markdown; a spread is the least and the most over the draws.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from dally.catalog.clusters import load_cluster
from dally.catalog.interference import gpu_memory, slowdown, use_of
from dally.catalog.measured_pairs import read_gavel
from dally.core.job import Job
from dally.network.mix import assign_models, read_mix
from dally.policies.gandiva.memory import GandivaMemory
from dally.simulator.reproduce import gandiva as paper
from dally.traces import Trace, synthesise

OFF = "slicing=false,packing=false,migration=false,grow_shrink=false"
MECHANISMS = ("slicing", "packing", "migration", "grow_shrink")


def variants() -> dict[str, str]:
    """Title → policy: none, each alone, all, all but one."""
    found = {"none: exclusive GPUs": f"gandiva[{OFF}]"}
    for one in MECHANISMS:
        rest = ",".join(f"{other}=false" for other in MECHANISMS if other != one)
        found[f"{one.replace('_', '-')} alone"] = f"gandiva[{rest}]"
    found["all"] = "gandiva"
    for one in MECHANISMS:
        found[f"all but {one.replace('_', '-')}"] = f"gandiva[{one}=false]"
    found["affinity and migration (`variant=dally-paper`)"] = "gandiva[variant=dally-paper]"
    return found


@dataclass(frozen=True, slots=True)
class Case:
    policy: str
    jobs: int
    load: float
    seed: int


@dataclass(frozen=True, slots=True)
class Figures:
    throughput: float
    avg_jct: float
    first_hundred: float
    suspensions: float
    migrations: int
    kept: int
    undone: int
    resizes: int


def elastic(trace: Trace, every: int = 4) -> Trace:
    """Every fourth job can run on up to twice its GPUs."""
    jobs = [replace(job, max_gpus=2 * job.gpus) if i % every == 0 else job for i, job in enumerate(trace.jobs)]
    return replace(trace, jobs=jobs)


def run(case: Case) -> Figures:
    topology = load_cluster(paper.CLUSTER, fabric=paper.FABRIC, gpu_type=paper.GPU)
    trace = elastic(paper.workload(case.jobs, case.seed, topology.gpus, case.load, "light"))
    outcome = paper.play(paper.experiment(topology, trace, case.seed), case.policy)
    memory, rows = outcome.run.memory, outcome.run.ledger.rows
    assert isinstance(memory, GandivaMemory)
    return Figures(outcome.seen.throughput(), outcome.average_jct,
                   statistics.mean(outcome.first_hundred().values()), sum(row.suspensions for row in rows),
                   sum(row.migrations for row in rows), memory.kept, memory.parted,
                   sum(row.resizes for row in rows))  # fmt: skip


def spread(values: Sequence[float], digits: int = 0) -> str:
    return f"{statistics.mean(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def ablation(jobs: int, draws: int, load: float) -> None:
    rows = []
    with ProcessPoolExecutor() as pool:
        for title, policy in variants().items():
            found = list(pool.map(run, [Case(policy, jobs, load, seed) for seed in range(draws)]))
            rows.append([title, spread([f.throughput for f in found], 1), spread([f.avg_jct for f in found]),
                         spread([f.first_hundred for f in found]), spread([f.suspensions for f in found]),
                         spread([f.migrations for f in found]), spread([f.kept for f in found]),
                         spread([f.undone for f in found]), spread([f.resizes for f in found])])  # fmt: skip
    table(["mechanisms", "throughput, GPUs", "average JCT, s", "first 100 mini-batches, s", "suspensions",
           "migrations", "pairs kept", "undone", "resizes"], rows)  # fmt: skip


def overloaded(jobs: int, load: float, seed: int = 0) -> Trace:
    """Helios-like jobs on 512 GPUs, durations cut at 12 hours, so that the overload lasts."""
    drawn = synthesise("helios", jobs=jobs, seed=seed, max_gpus=64)
    truths = [replace(truth, duration=min(12 * 3600.0, truth.duration or 0.0)) for truth in drawn.truths]
    asked = sum(job.gpus * (truth.duration or 0.0) for job, truth in zip(drawn.jobs, truths, strict=True))
    first, span = drawn.jobs[0].submit_time, drawn.jobs[-1].submit_time - drawn.jobs[0].submit_time
    scale = asked / (load * 512) / span
    made: list[Job] = [replace(job, submit_time=(job.submit_time - first) * scale) for job in drawn.jobs]
    made, _ = assign_models(made, [truth.duration for truth in truths], seed, read_mix(None))
    return Trace(f"overload-{jobs}", "synthetic", made, truths)


def scale(jobs: int) -> None:
    """At load 4 the queue is many times longer, and an event should cost the same."""
    topology = load_cluster("8x8x8", gpu_type="V100")
    rows = []
    for load in (1.3, 4.0):
        outcome = paper.play(paper.experiment(topology, overloaded(jobs, load), 0), "gandiva")
        ledger, cpu = outcome.run.ledger, outcome.run.cpu_seconds
        ended = sum(row.outcome == "finished" for row in ledger.rows)
        rows.append([f"{load:g}", f"{jobs:,}", f"{ended:,}", f"{max(ledger.queue):,}", f"{outcome.run.events:,}",
                     f"{cpu:.1f}", f"{1e6 * cpu / outcome.run.events:.0f}"])  # fmt: skip
    table(["load", "jobs", "finished", "longest queue", "events", "CPU s", "µs per event"], rows)


def pairs(path: Path) -> None:
    found = read_gavel(path)
    rows = []
    for gpu_type in sorted({key[2] or "" for key in found}):
        here = {key[:2]: value for key, value in found.items() if key[2] == gpu_type}
        formula = {pair: slowdown(use_of(pair[0]).utilization, [use_of(pair[1]).utilization]) for pair in here}
        both = {pair: 1 / here[pair] + 1 / here[pair[::-1]] for pair in here if pair[::-1] in here}
        said = {pair: 1 / formula[pair] + 1 / formula[pair[::-1]] for pair in both}
        errors = [abs(formula[pair] / here[pair] - 1) for pair in here]
        right = sum((both[pair] > 1.05) == (said[pair] > 1.05) for pair in both) / len(both)
        room = gpu_memory(gpu_type) or 0.0
        fit = sum((use_of(a).memory or 0.0) + (use_of(b).memory or 0.0) <= room for a, b in here) / len(here)
        rows.append([gpu_type, f"{len(here)}", f"{rank_correlation(formula, here):.2f}",
                     f"{statistics.median(errors):.0%}", f"{statistics.quantiles(errors, n=10)[8]:.0%}",
                     f"{statistics.median(both.values()):.2f}", f"{statistics.median(said.values()):.2f}",
                     f"{rank_correlation(said, both):.2f}", f"{right:.0%}", f"{fit:.0%}"])  # fmt: skip
    table(["GPU", "pairs that ran", "rank correlation of slowdowns", "median error", "90th percentile",
           "together over alone, measured", "formula", "rank correlation", "keep or undo agreed",
           "memory said to fit"], rows)  # fmt: skip


def rank_correlation(a: dict[tuple[str, str], float], b: dict[tuple[str, str], float]) -> float:
    """Spearman's."""
    keys = list(b)
    return statistics.correlation(_ranks([a[key] for key in keys]), _ranks([b[key] for key in keys]))


def _ranks(values: list[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [statistics.mean(places[value]) for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=("ablation", "scale", "pairs"))
    parser.add_argument("file", nargs="?", type=Path, help="pairs: Gavel's throughputs.json")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--load", type=float, default=2.0)
    chosen = parser.parse_args()
    if chosen.which in (None, "ablation"):
        ablation(chosen.jobs or 1000, chosen.draws, chosen.load)
    if chosen.which in (None, "scale"):
        scale(chosen.jobs or 10_000)
    if chosen.which == "pairs":
        if chosen.file is None:
            parser.error("pairs needs Gavel's throughputs.json")
        pairs(chosen.file)


if __name__ == "__main__":
    main()
