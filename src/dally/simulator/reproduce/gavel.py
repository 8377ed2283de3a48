"""Gavel's evaluation (OSDI'20, section 7): objectives that know GPU types against the same objectives that do not.

36 V100, 36 P100 and 36 K80. Jobs after the paper's generator: run times on a V100 of 10^U[1.5, 3] minutes (four
fifths) or 10^U[3, 4], gangs of 1, 2, 4 and 8 at .70, .10, .15 and .05. The paper measures jobs 4,000 to 5,000 of a
long run; here the middle half of a shorter one. Throughputs come from a file of Gavel's, or from the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dally.catalog.throughputs import Throughputs
from dally.core.ledger import Row
from dally.core.records import dataclass
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.simulator.sweep import Report, run_all
from dally.simulator.tabled import from_catalog
from dally.traces.synth import synthesise
from dally.traces.trace import Trace

CLUSTER = "v100=36,p100=36,k80=36"
RATES = (1.0, 2.0, 3.0)  # jobs an hour
TENANTS = ("a", "b", "c")
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 3.0}

FAIR, FIFO, FTF = "max-min-fairness", "fifo", "finish-time-fairness"
TITLES = {FAIR: "LAS (max-min fairness)", FIFO: "FIFO", FTF: "finish-time fairness", "makespan": "makespan"}
UP_TO = "up to 3.5 ×"


def policy(objective: str, aware: bool) -> str:
    return f"gavel[objective={objective}{'' if aware else ',aware=false'}]"


COST_POLICIES = {"gavel": "max-min fairness", "gavel[objective=cost]": "cost",
                 "gavel[objective=cost-slo]": "cost with SLOs"}  # fmt: skip
HIERARCHY = f"gavel[objective=hierarchical,weights={'/'.join(f'{t}:{w:g}' for t, w in WEIGHTS.items())}]"

DIFFERENCES = (
    "3.5 × is the paper's largest gain in average JCT and makespan, at the load at which the blind version has nearly "
    "stopped keeping up; the gain depends on the load above all.",
    "The paper runs thousands of jobs and measures 1,000 in the steady state; near saturation a short run has not "
    "built up the blind version's backlog yet.",
    "Speeds on a spread placement and in pairs are not in this comparison: one job a GPU, no network model.",
    "Without --throughputs speeds per GPU type come from the catalog's model of a training step and not from "
    "measurements.",
    "Preempting and moving a job costs saving and loading its checkpoint.",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What every part of the comparison shares."""

    jobs: int = 240
    seed: int = 0
    trace: Trace | None = None  # instead of drawn jobs
    throughputs: Throughputs | None = None

    def workload(self, rate: float | None) -> Trace:
        """Jobs at so many an hour; None: all at once. A given trace keeps its own arrivals unless all come at once."""
        if self.trace is not None:
            if rate is not None:
                return self.trace
            jobs = [replace(job, submit_time=0.0) for job in self.trace.jobs]
            return replace(self.trace, jobs=jobs)
        drawn = synthesise("gavel", jobs=self.jobs, seed=self.seed)
        gaps = np.random.default_rng(self.seed + 77).exponential(3600.0 / rate if rate else 0.0, self.jobs)
        times = np.cumsum(gaps) - gaps[0]
        jobs = [replace(job, submit_time=round(float(at), 3)) for job, at in zip(drawn.jobs, times, strict=True)]
        return replace(drawn, jobs=jobs)

    def experiment(self, trace: Trace) -> Experiment:
        from dally.catalog.clusters import load_cluster

        topology = load_cluster(CLUSTER)
        table = self.throughputs or from_catalog(trace.jobs, topology)
        return Experiment(trace, topology, "ideal", "model", self.seed, throughputs=table)


def measured(run: Run) -> list[Row]:
    """The middle half of the jobs by arrival: before it the cluster fills, after it it empties."""
    rows = run.ledger.rows
    return rows[len(rows) // 4 : len(rows) - len(rows) // 4]


def average_jct(run: Run) -> float:
    return float(np.mean([row.jct for row in measured(run) if row.jct is not None]))


def makespan(run: Run) -> float:
    return max(row.end or 0.0 for row in run.ledger.rows)


def against_load(setting: Setting, rate: float, objectives: Sequence[str], *, workers: int | None = None,
                 report: Report | None = None) -> tuple[Experiment, list[Run]]:  # fmt: skip
    """Aware and blind, in turn, for each objective."""
    made = setting.experiment(setting.workload(rate))
    names = [policy(objective, aware) for objective in objectives for aware in (True, False)]
    return made, run_all(made, names, workers=workers, report=report)


def all_at_once(setting: Setting, *, workers: int | None = None,
                report: Report | None = None) -> tuple[Experiment, list[Run]]:  # fmt: skip
    """Makespan of jobs that are all there at the start: aware and blind."""
    made = setting.experiment(setting.workload(None))
    return made, run_all(made, [policy("makespan", True), policy("makespan", False)], workers=workers, report=report)


def with_deadlines(trace: Trace, seed: int) -> Trace:
    """The released code's SLOs: 1.2, 2 or 10 times the run time on the best GPUs, a third of the jobs each."""
    chance = np.random.default_rng(seed + 6)
    slos = chance.choice([1.2, 2.0, 10.0], len(trace.jobs))
    return replace(trace, jobs=[replace(job, slo=float(slo)) for job, slo in zip(trace.jobs, slos, strict=True)])


def money(setting: Setting, rate: float, *, workers: int | None = None,
          report: Report | None = None) -> tuple[Experiment, list[Run]]:  # fmt: skip
    made = setting.experiment(with_deadlines(setting.workload(rate), setting.seed))
    return made, run_all(made, list(COST_POLICIES), workers=workers, report=report)


def hierarchy(setting: Setting, *, workers: int | None = None,
              report: Report | None = None) -> tuple[Experiment, Run]:  # fmt: skip
    """Three entities of weights 1, 2 and 3 with as many jobs each, all there from the start."""
    trace = setting.workload(None)
    jobs = [replace(job, tenant=TENANTS[i % len(TENANTS)]) for i, job in enumerate(trace.jobs)]
    made = setting.experiment(replace(trace, jobs=jobs))
    return made, run_all(made, [HIERARCHY], workers=workers, report=report)[0]


def all_have_work(run: Run) -> float:
    """Until when every entity has a third of its jobs left: after that some have too few to use their share."""
    ends = {who: sorted(row.end or 0.0 for row in run.ledger.rows if row.tenant == who) for who in TENANTS}
    return min(times[2 * len(times) // 3] for times in ends.values())


def shares_over_time(experiment: Experiment, run: Run, parts: int = 4) -> list[dict[str, float]]:
    """Each entity's part of the work done per slice of time, work counted at a job's best speed and times its GPUs."""
    edges = np.linspace(0.0, all_have_work(run), parts + 1)
    done = [dict.fromkeys(TENANTS, 0.0) for _ in range(parts)]
    network = experiment.make_network(experiment.topology)
    reference = run.workload.reference
    jobs = {job.id: job for job in run.workload.trace.jobs}
    for segment in run.ledger.segments:
        row = run.ledger.rows[segment.row]
        speed = reference[row.job_id] / network.step_time(jobs[row.job_id], segment.placement, 0.0).seconds
        for part in range(parts):
            length = min(segment.end, edges[part + 1]) - max(segment.start, edges[part])
            if length > 0 and row.tenant is not None:
                done[part][row.tenant] += length * speed * row.gpus
    return [{who: value / max(sum(part.values()), 1e-9) for who, value in part.items()} for part in done]
