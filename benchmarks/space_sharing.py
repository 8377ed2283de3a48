"""What Gavel gains by packing pairs of jobs: `python benchmarks/space_sharing.py --throughputs FILE [--rates 1.5 2.5]
[--jobs N] [--seeds N] [--single] [--objective NAME] [--preemption-cost C] [--options partners=8]`.

Jobs of Gavel's own mix on 36 V100, 36 P100 and 36 K80, with and without space sharing: average JCT of all jobs,
makespan and CPU seconds, mean over seeds. `--single`: all jobs ask for one GPU. The table is Markdown.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

from dally.catalog.clusters import load_cluster
from dally.catalog.throughputs import read_throughputs
from dally.simulator.experiment import Experiment
from dally.simulator.reproduce import gavel as paper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--throughputs", type=Path, required=True)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.5], help="jobs an hour")
    parser.add_argument("--jobs", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--objective", default="max-min-fairness")
    parser.add_argument("--preemption-cost", default="model")
    parser.add_argument("--options", default="", help="more options of the policy that shares, e.g. partners=8")
    chosen = parser.parse_args()
    table, topology = read_throughputs(chosen.throughputs), load_cluster(paper.CLUSTER)
    base = f"objective={chosen.objective}"
    shared = f"{base},space_sharing=true" + (f",{chosen.options}" if chosen.options else "")
    print("| jobs an hour | | average JCT h | makespan h | CPU s | JCT against no sharing |")
    print("|---|---|---|---|---|---|")
    for rate in chosen.rates:
        first = 0.0
        for options in (base, shared):
            jcts, spans, cpu = [], [], []
            for seed in range(chosen.seeds):
                trace = paper.Setting(chosen.jobs, seed).workload(rate)
                if chosen.single:
                    trace = replace(trace, jobs=[replace(job, gpus=1) for job in trace.jobs])
                made = Experiment(trace, topology, "ideal", chosen.preemption_cost, seed, throughputs=table)
                run = made.run(f"gavel[{options}]")
                jcts.append(statistics.mean(row.jct or 0.0 for row in run.ledger.rows) / 3600)
                spans.append(paper.makespan(run) / 3600)
                cpu.append(run.cpu_seconds)
            found = statistics.mean(jcts)
            first = first or found
            print(f"| {rate:g} | {options} | {found:.2f} | {statistics.mean(spans):.1f} | {statistics.mean(cpu):.1f} | "
                  f"{found / first:.3f} × |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
