"""How the cost of a run grows with the number of jobs at equal load: CPU per job against the smallest run.

With a trace file (`--trace FILE`), its jobs are replayed as they arrived, instead of synthesised ones.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from dally.catalog.clusters import load_cluster
from dally.network.registry import make_network
from dally.policies.options import make_policy, split_policies
from dally.simulator.costs import make_cost
from dally.simulator.run import simulate
from dally.simulator.workload import prepare
from dally.traces import load_trace, synthesise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", default="30x10x8")
    parser.add_argument("--policies", default="fifo[backfill=true],srtf,las")
    parser.add_argument("--jobs", default="2500,8000,25000,80000")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--shape", default="philly")
    parser.add_argument("--network", default="ideal")
    parser.add_argument("--trace", help="a trace file instead of a synthesised one")
    options = parser.parse_args()
    topology = load_cluster(options.cluster)
    network = make_network(options.network, topology)
    print(f"{'policy':24} {'jobs':>9} {'CPU s':>8} {'µs/job':>8} {'µs/event':>9} {'× jobs':>7} {'× CPU':>7} "
          f"{'events':>10} {'longest queue':>14} {'peak MB':>8}")  # fmt: skip
    for policy in split_policies(options.policies):
        first: tuple[int, float] | None = None
        for count in [len(load_trace(options.trace))] if options.trace else map(int, options.jobs.split(",")):
            if options.trace:
                trace = load_trace(options.trace)
            else:
                trace = synthesise(options.shape, jobs=count, seed=1, load=options.load, capacity=topology.gpus,
                                   max_gpus=topology.gpus)  # fmt: skip
            started = time.process_time()
            workload = prepare(trace, topology, network)
            run = simulate(workload, topology, make_policy(policy), network, make_cost("model"))
            cpu = time.process_time() - started
            first = first or (count, cpu)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            unfinished = sum(row.outcome == "unfinished" for row in run.ledger.rows)
            print(f"{policy:24} {count:9,} {cpu:8.1f} {cpu / count * 1e6:8.0f} {cpu / run.events * 1e6:9.0f} "
                  f"{count / first[0]:7.1f} {cpu / first[1]:7.1f} {run.events:10,} {max(run.ledger.queue):14,} "
                  f"{peak:8,}", flush=True)  # fmt: skip
            if unfinished:
                sys.exit(f"{policy}: {unfinished} jobs were forgotten")


if __name__ == "__main__":
    main()
