"""Back-tests on public histories that say when jobs really started: one row per trace, window and policy.

    python benchmarks/public_backtests.py KTH-SP2-1996-2.1-cln.swf.gz --cluster 1x100x1 --days 100..130 \\
        --present "fifo[backfill=easy],fit"
    python benchmarks/public_backtests.py openb_pods.csv --cluster openb_nodes.csv --present "fifo[backfill=any]"

Files are read where they are. A window of days is cut as `sacct -S … -E …` cuts: every job that ended after its begin
and was submitted before its end.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.experiments.twin.history import History, history_of
from dally.experiments.twin.site import Site
from dally.experiments.twin.trip import Asked, make_twin
from dally.report.wording import time_text
from dally.simulator.scenario import Scenario
from dally.traces import load_trace
from dally.traces.trace import Trace

DAY = 86400.0
HEAD = ("trace", "policy", "jobs measured", "wait recorded", "simulated", "off by", "JCT recorded", "simulated",
        "off by", "verdict")  # fmt: skip


def between(trace: Trace, days: str) -> Trace:
    """`100..160`: what a dump of these days would hold."""
    first, last = (float(part) * DAY for part in days.split(".."))
    kept = [(job, truth) for job, truth in zip(trace.jobs, trace.truths, strict=True)
            if job.submit_time < last and _end(job, truth) >= first]  # fmt: skip
    zero = min(job.submit_time for job, _ in kept)
    jobs = [replace(job, submit_time=job.submit_time - zero) for job, _ in kept]
    truths = [replace(truth, start=None if truth.start is None else truth.start - zero,
                      cancel_at=None if truth.cancel_at is None else truth.cancel_at - zero)
              for _, truth in kept]  # fmt: skip
    return replace(trace, jobs=jobs, truths=truths, name=f"{trace.name}, days {days}", problems=[])


def _end(job: Job, truth: Truth) -> float:
    return (job.submit_time if truth.start is None else truth.start) + (truth.duration or 0.0)


def tested(past: History, cluster: str | None, nodes: str | None, present: str) -> tuple[list[str], tuple[str, ...]]:
    site = Site(past.trace, cluster, Path(nodes) if nodes else None)
    topology, _ = site.topology(None)
    scenario = Scenario.of({"trace": past.trace, "cluster": topology, "network": "ideal"})
    twin = make_twin(past, site, scenario, Asked(present, None, ()), workers=1)
    whole = twin.test.whole
    row = [past.trace.name, f"`{twin.test.policy}`" + (", fitted" if present == "fit" else ""), f"{whole.jobs:,}"]
    for actual, simulated in ((whole.actual_wait, whole.simulated_wait), (whole.actual_jct, whole.simulated_jct)):
        off = f"{(simulated - actual) / actual:+.0%}" if actual > 0 else "–"
        row += [time_text(actual), time_text(simulated), off]
    return [*row, twin.verdict.grade], twin.explained


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("trace")
    asked.add_argument("--cluster", "-c", help="as for every command; default: the nodes of the history")
    asked.add_argument("--nodes")
    asked.add_argument("--present", default="fit", help="policies, with commas; `fit` finds the nearest of several")
    asked.add_argument("--days", action="append", help="FIRST..LAST from the first submission, as often as you like")
    options = asked.parse_args()
    from dally.policies.options import split_policies

    whole = load_trace(options.trace)
    print("|", " | ".join(HEAD), "|")
    print("|---" * len(HEAD) + "|")
    for days in options.days or [None]:
        try:
            past = history_of(whole if days is None else between(whole, days))
        except UserError as error:
            print(f"no back-test: {error}")
            continue
        for present in split_policies(options.present):
            row, explained = tested(past, options.cluster, options.nodes, present)
            print("|", " | ".join(row), "|", flush=True)
        for text in explained:
            print(f"  may explain the rest: {text}")


if __name__ == "__main__":
    main()
