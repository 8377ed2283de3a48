"""What knowledge of durations is worth: none, limits, learned and exact, side by side, on slices of a trace.

    python benchmarks/learned.py philly.csv --slices 20000,60000 --jobs 800
    python benchmarks/learned.py KTH-SP2-1996-2.1-cln.swf.gz --slices 8000,20000 --cluster 1x25x4 --network ideal
    python benchmarks/learned.py made --seeds 13,14 --jobs 800

`made` is a history drawn here: forty users who repeat themselves more or less, with round time limits that are mostly
far too long. It is no real trace: it shows what `learned` makes of users where there are any. Any trace that says who
submitted its jobs will do; the files of the Parallel Workloads Archive have users and time limits, their processors
stand for GPUs.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import replace

from dally.core.job import Job, Truth
from dally.simulator.experiment import as_policy
from dally.simulator.knowledge import declared
from dally.simulator.scenario import Scenario
from dally.traces import load_trace
from dally.traces.trace import Trace

POLICIES = ("dally", "tiresias[index=gittins]", "tiresias[index=gittins,continuous=true]", "srtf",
            "srtf[gpu_time=true]")  # fmt: skip
KNOWLEDGE = ("none", "limits", "learned", "exact")
ROUND = (600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 3 * 86400.0, 7 * 86400.0)  # limits people write


def made(seed: int, jobs: int) -> Trace:
    chance = random.Random(f"learned {seed}")
    users = [(chance.lognormvariate(8.0, 1.6), chance.uniform(0.2, 1.5), chance.paretovariate(1.2)) for _ in range(40)]
    found: list[Job] = []
    truths: list[Truth] = []
    now = 0.0
    while len(found) < jobs:
        number = chance.choices(range(len(users)), [weight for _, _, weight in users])[0]
        usual, spread, _ = users[number]
        for _ in range(min(jobs - len(found), 1 + int(chance.expovariate(0.3)))):  # people submit in batches
            now += chance.expovariate(1 / 60.0)
            ran = min(7 * 86400.0, max(10.0, usual * chance.lognormvariate(0.0, spread)))
            careful = ran * chance.choice((1.2, 3.0, 30.0))
            limit = next((each for each in ROUND if each >= careful), ROUND[-1])
            found.append(Job(f"j{len(found)}", now, chance.choice((1, 1, 1, 2, 4, 8)), user=f"u{number}", limit=limit,
                             declared_duration=limit))  # fmt: skip
            truths.append(Truth(ran))
    return Trace(f"made {seed}", "made", found, truths)


def sliced(trace: Trace, first: int, jobs: int) -> Trace:
    zero = trace.jobs[first].submit_time
    chosen = [replace(job, submit_time=job.submit_time - zero) for job in trace.jobs[first : first + jobs]]
    return replace(trace, name=f"{trace.name}[{first}:{first + jobs}]", jobs=chosen,
                   truths=[replace(truth, start=None) for truth in trace.truths[first : first + jobs]])  # fmt: skip


def error_of_limits(trace: Trace) -> str:
    """As the calibration of what is learned: typical factor, share within two, real ÷ told, median and of 80 %."""
    factors = sorted(max(1.0, truth.duration) / said for job, truth in zip(trace.jobs, trace.truths, strict=True)
                     if truth.duration is not None and (said := declared(job)) is not None and said > 0)  # fmt: skip
    if not factors:
        return "no limits"
    off = [abs(math.log(each)) for each in factors]
    near = sum(each <= math.log(2) for each in off) / len(off)
    low, middle, high = (factors[int(len(factors) * share)] for share in (0.1, 0.5, 0.9))
    return said_of(math.exp(sum(off) / len(off)), near, middle, low, high)


def said_of(error: float, near: float, middle: float, low: float, high: float) -> str:
    return f"× {error:.1f}, {near:.0%} within 2; real ÷ told {middle:.2g} ({low:.2g} … {high:.2g})"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("trace")
    asked.add_argument("--slices", default="0", help="first rows, with commas")
    asked.add_argument("--seeds", default="1", help="of `made`, with commas")
    asked.add_argument("--jobs", type=int, default=1500)
    asked.add_argument("--cluster", default="2x4x8")
    asked.add_argument("--load", type=float, default=1.2)
    asked.add_argument("--network", default="analytic")
    options = asked.parse_args()
    if options.trace == "made":
        traces = [made(int(seed), options.jobs) for seed in options.seeds.split(",")]
    else:
        whole = load_trace(options.trace)
        traces = [sliced(whole, int(first), options.jobs) for first in options.slices.split(",")]
    print("| trace | knowledge | error of what is told |", " | ".join(f"`{policy}`" for policy in POLICIES), "|")
    print("|---" * (3 + len(POLICIES)) + "|")
    for trace in traces:
        users = len({job.user for job in trace.jobs if job.user is not None})
        untold: dict[str, float] = {}  # figures of policies that are told nothing: the same whatever is known
        for knowledge in KNOWLEDGE:
            if knowledge == "limits" and all(declared(job) is None for job in trace.jobs):
                continue
            scenario = Scenario(trace=trace, cluster=options.cluster, load=options.load, network=options.network,
                                knowledge=knowledge)  # fmt: skip
            experiment = scenario.prepare()
            times, error = [], {"limits": error_of_limits(trace), "exact": "none"}.get(knowledge, "–")
            for policy in POLICIES:
                if policy in untold:
                    times.append(untold[policy])
                    continue
                run = experiment.run(policy)
                rows = [row for row in run.ledger.rows if row.end is not None and "~before" not in row.job_id]
                times.append(sum((row.end or 0.0) - row.submit for row in rows) / len(rows) / 3600)
                if not as_policy(policy).uses:
                    untold[policy] = times[-1]
                if run.calibration is not None:
                    found = run.calibration
                    error = said_of(found.error, found.within_two, found.median, found.low, found.high)
            figures = " | ".join(f"{hours:.2f}" for hours in times)
            print(f"| {trace.name}, {users} users | `{knowledge}` | {error} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
