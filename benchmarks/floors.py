"""Is the lower bound one? `python benchmarks/floors.py [--draws N] [--runs N] [--seed S]`.

Draws random (cluster, network model, job, placement) and looks for a placement faster than the floor the model
gave; then runs small random workloads under every policy and looks for a run, or a job, below its bound. Prints how
many there were, which must be none, and how tight floor and bound are. Nothing here is tuned to a seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dally.core.errors import UserError
from dally.report.alarm import below_bound
from dally.report.bound import bounds_of
from dally.report.metrics import summarise
from dally.simulator.best import BestPlacement
from random_worlds import NETWORKS, a_cluster, a_job, a_network, a_placement, an_experiment

_TOLERANCE = 1e-9
_PLACEMENTS = 20  # per cluster, network and job


@dataclass(slots=True)
class Seen:
    """What the draws of one network model showed."""

    draws: int = 0
    below: int = 0
    beaten: int = 0  # placements faster than the best one found
    jobs: int = 0
    known: int = 0  # jobs whose best placement is known to be the best
    ratios: list[float] | None = None  # floor over best placement found

    def line(self, name: str) -> str:
        ratios = np.asarray(self.ratios)
        return (f"| {name} | {self.draws:,} | {self.below} | {self.beaten} | {self.jobs:,} | {self.known / self.jobs:.1%} "
                f"| {ratios.mean():.4f} | {np.percentile(ratios, 5):.3f} | {ratios.min():.3f} |")  # fmt: skip


def draw(total: int, seed: int) -> int:
    """Random placements against the floor; returns how many were below it."""
    chance = random.Random(f"{seed}/draws")
    seen: dict[str, Seen] = defaultdict(Seen)
    begin, done, shown = time.monotonic(), 0, 0
    while done < total:
        topology = a_cluster(chance)
        text = chance.choice(NETWORKS)
        network = a_network(chance, text, topology)
        best = BestPlacement(topology, network)
        for _ in range(3):
            job = a_job(chance, topology)
            found = best.shortest(job)
            if found is None or found.step.seconds == float("inf"):
                continue
            each = seen[text]
            each.jobs += 1
            each.known += found.known
            each.ratios = [*(each.ratios or []), found.floor / found.step.seconds] if found.step.seconds else [1.0]
            for _ in range(_PLACEMENTS):
                step = network.step_time(job, a_placement(chance, topology, job), 0.0)
                each.draws += 1
                done += 1
                each.beaten += step.seconds < found.step.seconds * (1 - _TOLERANCE)
                if step.seconds < found.floor * (1 - _TOLERANCE):
                    each.below += 1
                    if shown < 5:
                        shown += 1
                        print(f"BELOW: {text} {job} {topology} {step} floor {found.floor}", flush=True)
    print(f"{done:,} draws in {time.monotonic() - begin:.0f} s\n")
    print("| network | draws | below the floor | below the best found | jobs | best known | floor / best | 5th percentile | least |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in sorted(seen):
        print(seen[name].line(name))
    return sum(each.below for each in seen.values())


def run(total: int, seed: int) -> int:
    """Small random runs over all policies; returns how many were below their bound."""
    chance = random.Random(f"{seed}/runs")
    below = done = refused = 0
    ratios: dict[str, list[float]] = defaultdict(list)
    policies: Counter[str] = Counter()
    begin = time.monotonic()
    while done < total:
        experiment, policy = an_experiment(chance)
        try:
            played = experiment.run(policy, progress=lambda now, ended, jobs: True)
        except UserError:
            refused += 1  # no job of the draw runs on this cluster, or the table has no speed for it
            continue
        summary = summarise(played, experiment.topology, bounds_of([played], experiment.topology)[0])
        done += 1
        policies[policy.partition("[")[0]] += 1
        said = below_bound(played, summary)
        below += bool(said)
        if said:
            print(f"BELOW: {policy} {experiment.network}: {said}", flush=True)
        if summary.avg_jct_over_bound is not None:
            ratios[experiment.network.partition("[")[0]].append(summary.avg_jct_over_bound)
    print(f"\n{done:,} runs of {len(policies)} policies in {time.monotonic() - begin:.0f} s, {refused:,} draws without a run\n")
    print("| network | runs | least × bound | median × bound |\n|---|---|---|---|")
    for name, values in sorted(ratios.items()):
        print(f"| {name} | {len(values):,} | {min(values):.4f} | {np.median(values):.2f} |")
    return below


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--draws", type=int, default=20_000)
    arguments.add_argument("--runs", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    below = draw(chosen.draws, chosen.seed) if chosen.draws else 0
    runs = run(chosen.runs, chosen.seed) if chosen.runs else 0
    print(f"\nviolations: {below} of the draws, {runs} of the runs")
    sys.exit(1 if below or runs else 0)


if __name__ == "__main__":
    main()
