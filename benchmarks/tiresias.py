"""What Tiresias' parts are worth: `python benchmarks/tiresias.py [placement|starvation|queues|limits] [--jobs N] …`.

`placement`: consolidation by profile against always and never, average JCT over draws of a Helios-like workload.
`starvation`: the longest wait on a stream of short jobs that never ends, with and without the promotion knob.
`queues`: preemptions and average JCT of the continuous index against two and three queues.
`limits`: average JCT against the queue limit and the order inside a queue, on the workload of the reproduction.
All tables are Markdown, times are means over the draws, and a spread is the least and the most of them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from dally.catalog.clusters import load_cluster
from dally.core.job import Job, Truth
from dally.core.journal import one_by_one
from dally.core.plan import Preempt, Start
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import make_cost
from dally.simulator.experiment import Experiment
from dally.simulator.reproduce import tiresias as paper
from dally.simulator.run import simulate
from dally.simulator.workload import prepare
from dally.traces import Trace, synthesise


@dataclass(frozen=True, slots=True)
class Case:
    """One run: workload, cluster, network and policy by name."""

    workload: str
    cluster: str
    fabric: str
    network: str
    jobs: int
    load: float
    seed: int
    policy: str


@dataclass(frozen=True, slots=True)
class Outcome:
    avg_jct: float
    preemptions: int


def run(case: Case) -> Outcome:
    topology = load_cluster(case.cluster, fabric=case.fabric)
    if case.workload == "testbed":
        trace = paper.workload(paper.TESTBED, case.seed, topology.gpus, case.load)
    else:
        trace = synthesise(case.workload, jobs=case.jobs, seed=case.seed, load=case.load, capacity=topology.gpus,
                           max_gpus=topology.gpus)  # fmt: skip
    rows = Experiment(trace, topology, case.network, "model", case.seed).run(case.policy).ledger.rows
    jcts = [row.jct for row in rows if row.jct is not None]
    return Outcome(statistics.mean(jcts), sum(row.preemptions for row in rows))


def run_many(cases: Sequence[Case]) -> list[Outcome]:
    with ProcessPoolExecutor() as pool:
        return list(pool.map(run, cases))


def spread(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def placement(jobs: int, draws: int) -> None:
    """Average JCT over that of consolidation by profile, draw by draw."""
    kinds = (
        ("profile, learned", "tiresias"),
        ("profile, limit fixed at 0.4", "tiresias[learn=false]"),
        ("always, or wait", "tiresias[placement=strict]"),
        ("where it costs no wait", "tiresias[placement=best-fit]"),
        ("never: first free GPUs", "tiresias[placement=any]"),
        ("never: spread", "tiresias[placement=spread]"),
    )
    rows = []
    for workload in ("helios", "helios-multi"):
        for fabric in ("ethernet-25g", "ethernet-100g", "none: ideal"):
            network = "analytic" if fabric.startswith("ethernet") else "ideal"
            cases = [Case(workload, "2x8x8", fabric if network == "analytic" else "ethernet-100g", network, jobs, 0.9,
                          seed, policy) for _, policy in kinds for seed in range(draws)]  # fmt: skip
            found = [outcome.avg_jct for outcome in run_many(cases)]
            base = found[:draws]
            for at, (name, _) in enumerate(kinds):
                mine = found[at * draws : (at + 1) * draws]
                ratios = [jct / other for jct, other in zip(mine, base, strict=True)]
                rows.append([workload, fabric, name, f"{statistics.mean(mine):,.0f} s", spread(ratios)])
    table(["workload", "fabric", "consolidation", "average JCT", "over profile"], rows)


def queues(jobs: int, draws: int) -> None:
    """Preemptions and average JCT; the same jobs for all."""
    rows = []
    for index in ("las", "gittins"):
        for name, options in (("continuous, 1 min", "continuous=true,quantum=60"),
                              ("continuous, 6 min", "continuous=true"), ("2 queues", "queues=2"),
                              ("3 queues", "queues=3"), ("2 queues, running first", "queues=2,order=running"),
                              ("3 queues, running first", "queues=3,order=running")):  # fmt: skip
            policy = f"tiresias[index={index},{options}]"
            cases = [Case("testbed", "1x15x4", "ethernet-100g", "analytic", jobs, 1.0, seed, policy)
                     for seed in range(draws)]  # fmt: skip
            found = run_many(cases)
            rows.append([index, name, spread([o.preemptions for o in found], 0), spread([o.avg_jct for o in found], 0)])
    table(["index", "discretisation", "preemptions", "average JCT, s"], rows)


def limits(draws: int) -> None:
    rows = []
    for load in (1.0, 2.0):
        kinds = [("SRTF", "srtf")]
        for order, key in (("by start", "start"), ("running first", "running")):
            for limit in (1000, 3250, 10000, 30000, 100000):
                kinds.append((f"limit {limit:,}, {order}", f"tiresias[thresholds={limit},order={key}]"))
        for name, policy in kinds:
            cases = [Case("testbed", "1x15x4", "ethernet-100g", "analytic", 0, load, seed, policy)
                     for seed in range(draws)]  # fmt: skip
            found = run_many(cases)
            rows.append([f"{load:g}", name, spread([o.avg_jct for o in found], 0),
                         spread([o.preemptions for o in found], 0)])  # fmt: skip
    table(["load", "", "average JCT, s", "preemptions"], rows)


def stream(length: float, gpus: int = 4, short: float = 40.0) -> Trace:
    """Short jobs that fill a cluster of four GPUs for so long, a long job and a gang that want all of it."""
    jobs = [(Job("long", 0.0, gpus), Truth(5000.0)), (Job("gang", 15.0, gpus), Truth(500.0))]
    count = int(length * gpus / short)
    jobs += [(Job(f"s{i}", 1.0 + i * short / gpus, 1), Truth(short)) for i in range(count)]
    jobs.sort(key=lambda pair: pair[0].submit_time)
    return Trace("stream", "made", [job for job, _ in jobs], [truth for _, truth in jobs])


def longest_waits(policy: str, length: float) -> dict[str, float]:
    """Longest stretch without GPUs of the long job and of the gang."""
    topology = load_cluster("1x1x4")
    network = make_network("ideal", topology)
    since: dict[str, float] = {"long": 0.0, "gang": 15.0}
    found = dict.fromkeys(since, 0.0)

    def watch(now: float, entry: object) -> None:
        if isinstance(entry, Preempt) and entry.job in since:
            since[entry.job] = now
        elif isinstance(entry, Start) and entry.job in since:
            found[entry.job] = max(found[entry.job], now - since[entry.job])

    simulate(prepare(stream(length), topology, network), topology, make_policy(policy), network, make_cost("0"),
             sinks=(one_by_one(watch),))  # fmt: skip
    return found


def starvation() -> None:
    rows = []
    for name, options in (("without", ""), *((f"knob {k}", f",promote={k}") for k in (1, 2, 4, 8))):
        cells = []
        for kind in ("", ",index=gittins", ",variant=released"):
            for length in (5000.0, 20000.0):
                waits = longest_waits(f"tiresias[thresholds=400/800{kind}{options}]", length)
                cells.append(f"{waits['long']:,.0f} / {waits['gang']:,.0f}")
        rows.append([name, *cells])
    table(["", *(f"{kind}, stream of {length}" for kind in ("LAS", "Gittins", "released")
                 for length in ("5,000 s", "20,000 s"))], rows)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=("placement", "starvation", "queues", "limits"))
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--draws", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.which in (None, "placement"):
        placement(chosen.jobs, chosen.draws)
    if chosen.which in (None, "starvation"):
        starvation()
    if chosen.which in (None, "queues"):
        queues(chosen.jobs, chosen.draws)
    if chosen.which in (None, "limits"):
        limits(chosen.draws)


if __name__ == "__main__":
    main()
