"""What a run costs: CPU per job and event, and how that grows with the number of jobs at equal load.

    python benchmarks/scale.py                        # 20,000 Philly-shaped jobs at load 0.9 on 640 GPUs: queues
    python benchmarks/scale.py --policies srtf,las --jobs 30000,300000 --cluster 4x8x8 --cold-start
    python benchmarks/scale.py --trace FILE --cluster 7x8x8      # a file's jobs as they arrived, or at a --load

The CPU time is that of the simulation alone. Whether there was anything to decide is said beside it: how many jobs
waited, how long the queue got, how often somebody was preempted.
"""

from __future__ import annotations

import argparse
import resource
import sys

from dally.policies.options import split_policies
from dally.simulator.scenario import SYNTH, Scenario

QUEUEING = "fifo[backfill=true],srtf,las,tiresias,gandiva,dally[timers=auto],dally"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="8x10x8")
    parser.add_argument("--policies", default=QUEUEING)
    parser.add_argument("--jobs", help="20000 of a synthesised trace; with commas: each of them in turn")
    parser.add_argument("--load", type=float, help="0.9 for a synthesised trace; a file's jobs come as they came")
    parser.add_argument("--cold-start", action="store_true", help="an empty cluster at the first job")
    parser.add_argument("--network", default="analytic")
    parser.add_argument("--trace", default=f"{SYNTH}philly")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    drawn = options.trace.startswith(SYNTH)
    load = options.load if options.load is not None else 0.9 if drawn else None
    counts = [int(count) for count in (options.jobs or "20000").split(",")] if drawn or options.jobs else [None]
    print(f"{'policy':20} {'jobs':>8} {'CPU s':>7} {'jobs/s':>7} {'µs/event':>8} {'events':>10} {'waited':>6} "
          f"{'queue':>6} {'preempted':>9} {'× jobs':>6} {'× CPU':>6} {'peak MB':>7}")  # fmt: skip
    first: dict[str, tuple[int, float]] = {}
    for count in counts:
        experiment = Scenario.of({
            "trace": options.trace, "cluster": options.cluster, "jobs": count, "load": load, "seed": options.seed,
            "network": options.network, "knowledge": "exact", "warm_start": False if options.cold_start else None,
        }).prepare()  # fmt: skip
        for policy in split_policies(options.policies):
            run = experiment.run(policy)
            rows, cpu = run.ledger.rows, run.cpu_seconds
            jobs = len(rows)
            begun = first.setdefault(policy, (jobs, cpu))
            waited = sum((row.queueing or 0.0) > 1e-6 * max(1.0, row.submit) for row in rows) / jobs
            preempted = sum(row.preemptions for row in rows)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"{policy:20} {jobs:8,} {cpu:7.1f} {jobs / cpu:7,.0f} {cpu / run.events * 1e6:8.0f} {run.events:10,} "
                  f"{waited:6.1%} {max(run.ledger.queue):6,} {preempted:9,} {jobs / begun[0]:6.1f} "
                  f"{cpu / begun[1]:6.1f} {peak:7,}", flush=True)  # fmt: skip
            unfinished = sum(row.outcome == "unfinished" for row in rows)
            if unfinished:
                sys.exit(f"{policy}: {unfinished} jobs were forgotten")


if __name__ == "__main__":
    main()
