"""What Gavel costs and gains here: `python benchmarks/gavel.py [speed|placement] [--throughputs FILE] [--seeds N]
…`.

`speed`: 500 jobs of Gavel's own mix on 36 V100, 36 P100 and 36 K80 under max-min fairness: jobs per CPU second, and the
ratio to the released simulator's 44 (a figure of the reference results, not of these very jobs).
`placement`: placement_sensitive on and off on gangs of communication-heavy models with the network on, average JCT over
seeds.
Tables are Markdown. Speeds per GPU type come from the file, or from the catalog.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

from dally.catalog.clusters import load_cluster
from dally.catalog.throughputs import Throughputs, read_throughputs
from dally.core.job import Job, Truth
from dally.simulator.experiment import Experiment
from dally.simulator.reproduce import gavel as paper
from dally.simulator.tabled import from_catalog
from dally.traces import Trace

RELEASED = 44.0  # jobs per CPU second of the released simulator, on a workload like this one
HEAVY = ("vgg16", "alexnet", "vgg19", "bert-large")


def speed(table: Throughputs | None, jobs: int, rate: float, seeds: int) -> None:
    topology = load_cluster(paper.CLUSTER)
    print(f"{jobs} jobs, {rate:g} an hour, {seeds} seeds\n")
    print("| policy | jobs per CPU second | against the released simulator | average JCT h |")
    print("|---|---|---|---|")
    for policy in ("gavel", "gavel[optimum=corner]", "gavel[variant=released]", "gavel[aware=false]",
                   "gavel[objective=fifo]"):  # fmt: skip
        rates, jcts = [], []
        for seed in range(seeds):
            trace = paper.Setting(jobs, seed).workload(rate)
            known = table or from_catalog(trace.jobs, topology)
            run = Experiment(trace, topology, "ideal", "0", seed, throughputs=known).run(policy)
            rates.append(jobs / run.cpu_seconds)
            jcts.append(statistics.mean(row.jct or 0.0 for row in run.ledger.rows))
        found = statistics.mean(rates)
        print(f"| {policy} | {found:.0f} | {found / RELEASED:.1f} × | {statistics.mean(jcts) / 3600:.1f} |")


def heavy_mix(seed: int, jobs: int = 80) -> Trace:
    """Gangs of 2 to 8 of models with large gradients, an hour or so each, submitted faster than they can all run."""
    chance = np.random.default_rng(seed)
    times = np.cumsum(chance.exponential(500.0, jobs))
    made = [Job(str(i), round(float(at), 3), int(chance.choice([2, 4, 8], p=[0.4, 0.4, 0.2])),
                model=HEAVY[int(chance.integers(len(HEAVY)))]) for i, at in enumerate(times)]  # fmt: skip
    return Trace(f"heavy-{seed}", "drawn", made, [Truth(float(chance.uniform(1800, 9000))) for _ in made])


def placement(seeds: int) -> None:
    topology = load_cluster("v100=24,p100=24,k80=24", fabric="ethernet-10g")
    print("| seed | off, average JCT h | on | gain |")
    print("|---|---|---|---|")
    gains = []
    for seed in range(seeds):
        found = []
        for option in ("false", "true"):
            experiment = Experiment(heavy_mix(seed), topology, "analytic", "model", seed)
            rows = experiment.run(f"gavel[placement_sensitive={option}]").ledger.rows
            found.append(statistics.mean(row.jct or 0.0 for row in rows) / 3600)
        gains.append(found[0] / found[1])
        print(f"| {seed} | {found[0]:.2f} | {found[1]:.2f} | {gains[-1]:.3f} × |")
    print(f"\nmean gain {statistics.mean(gains):.3f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["speed", "placement"], default="speed")
    parser.add_argument("--throughputs", type=Path)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rate", type=float, default=1.5, help="jobs an hour")
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    if options.what == "speed":
        table = read_throughputs(options.throughputs) if options.throughputs else None
        speed(table, options.jobs, options.rate, options.seeds or 1)
    else:
        placement(options.seeds or 5)


if __name__ == "__main__":
    main()
