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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "properties")]

from every_policy import NAMES, variants  # noqa: E402

from dally.core.errors import PlanError, UserError  # noqa: E402
from dally.report.alarm import below_bound  # noqa: E402
from dally.report.bound import bounds_of  # noqa: E402
from dally.report.metrics import summarise  # noqa: E402
from dally.simulator.best import BestPlacement  # noqa: E402
from random_worlds import (  # noqa: E402
    NETWORKS,
    a_cluster,
    a_job,
    a_network,
    a_placement,
    a_step_from,
    an_experiment,
)

_TOLERANCE = 1e-9
_PLACEMENTS = 40  # per cluster, network and job


@dataclass(slots=True)
class Seen:
    """What the draws of one network model showed."""

    draws: int = 0
    below: int = 0
    beaten: int = 0  # placements faster than the best one found
    known: int = 0  # jobs whose best placement is known to be the best
    ratios: list[float] = field(default_factory=list)  # floor over best placement found, per job

    def line(self, name: str) -> str:
        jobs = len(self.ratios)
        low, least = np.percentile(self.ratios, 5), min(self.ratios)
        return (f"| {name} | {self.draws:,} | {self.below} | {self.beaten} | {jobs:,} | {self.known / jobs:.1%} "
                f"| {np.mean(self.ratios):.4f} | {low:.3f} | {least:.3f} |")  # fmt: skip


def draw(total: int, seed: int) -> int:
    """Random placements against the floor; returns how many were below it."""
    chance = random.Random(f"{seed}/draws")
    seen: dict[str, Seen] = defaultdict(Seen)
    begin, done = time.monotonic(), 0
    while done < total:
        topology, text = a_cluster(chance), chance.choice(NETWORKS)
        network = a_network(chance, text, topology)
        best = BestPlacement(topology, network)
        for _ in range(3):
            job = a_job(chance, topology)
            found = best.shortest(job)
            if found is None or found.step.seconds == float("inf"):
                continue
            each = seen[text]
            each.known += found.known
            each.ratios.append(found.floor / found.step.seconds)
            for number in range(_PLACEMENTS):
                # every other one near the best one found: that is where a better one would be
                if number % 2:
                    placement = a_placement(chance, topology, job)
                else:
                    placement = a_step_from(chance, topology, found.placement)
                step = network.step_time(job, placement, 0.0)
                each.draws += 1
                done += 1
                each.beaten += step.seconds < found.step.seconds * (1 - _TOLERANCE)
                if step.seconds < found.floor * (1 - _TOLERANCE):
                    each.below += 1
                    print(f"BELOW: {text} {job} {placement} {topology} {step} floor {found.floor}", flush=True)
    print(f"{done:,} draws in {time.monotonic() - begin:.0f} s\n")
    print("| network | draws | below the floor | below the best found | jobs | best known | floor / best "
          "| 5th percentile | least |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for name in sorted(seen):
        print(seen[name].line(name))
    return sum(each.below for each in seen.values())


def run(total: int, seed: int) -> int:
    """Small random runs over all policies; returns how many were below their bound."""
    chance = random.Random(f"{seed}/runs")
    below = done = 0
    refused: Counter[str] = Counter()
    ratios: dict[str, list[float]] = defaultdict(list)
    policies: Counter[str] = Counter()
    packed = resized = 0
    begin = time.monotonic()
    while done < total:
        # those that pack and resize more often: they do so only in some of their runs
        experiment, policy = an_experiment(chance), chance.choice(variants(chance.choice([*NAMES, *["gandiva"] * 3])))
        calls = iter(range(20))  # of 256 instants each; a run that is cut short counts with what has finished

        def go_on(now: float, ended: int, jobs: int, calls: Iterator[int] = calls) -> bool:
            return next(calls, None) is not None

        try:
            played = experiment.run(policy, progress=go_on)
        except (UserError, PlanError) as error:
            refused[f"{type(error).__name__} of {policy}"] += 1
            continue
        summary = summarise(played, experiment.topology, bounds_of([played], experiment.topology)[0])
        done += 1
        policies[policy.partition("[")[0]] += 1
        packed += summary.packs > 0
        resized += summary.resizes > 0
        said = below_bound(played, summary)
        if said:
            below += 1
            print(f"BELOW: {policy} {experiment.network}: {said}", flush=True)
        if summary.avg_jct_over_bound is not None:
            ratios[experiment.network + (" with throughputs" if experiment.throughputs else "")].append(
                summary.avg_jct_over_bound)  # fmt: skip
    print(f"\n{done:,} runs in {time.monotonic() - begin:.0f} s, {packed:,} with packed and {resized:,} with resized "
          f"jobs: {', '.join(f'{name} {count}' for name, count in policies.most_common())}")  # fmt: skip
    print(f"refused: {dict(refused)}\n\n| network | runs | least × bound | median × bound |\n|---|---|---|---|")
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
