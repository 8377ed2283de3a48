"""Gandiva's evaluation (OSDI'18, section 6): 180 GPUs under overload, and a hyper-parameter search.

The paper's jobs are not public. Sizes and durations here are those of a production cluster of Microsoft's (Philly),
cut at four hours so that the experiment outlasts its jobs. Which models they train is not known; two mixes are run,
since packing gains what jobs leave of their GPUs: the catalog's production mix (mostly busy GPUs), and a lighter
one of ten models in equal parts, seven of which leave a fifth of their GPU or more idle. Both are ours.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dally.core.job import Job, Truth
from dally.core.records import dataclass
from dally.simulator.costs import make_cost
from dally.simulator.experiment import Experiment
from dally.simulator.interference import make_interference
from dally.simulator.meter import NoisyMeter
from dally.simulator.reproduce.useful_work import UsefulWork
from dally.simulator.run import Run, simulate
from dally.simulator.watching import Progress
from dally.traces.synth import synthesise
from dally.traces.trace import Trace

if TYPE_CHECKING:
    from dally.core.topology import Topology

CLUSTER, GPU, FABRIC = "3x15x4", "P100", "ethernet-100g"  # 180 GPUs; how the paper's servers were wired: ours
LONGEST = 4 * 3600.0
LARGEST = 32  # GPUs of one job
LIGHT = ("lstm", "recommendation", "a3c", "mobilenetv3-small", "mobilenetv3-large", "deepspeech2", "transformer",
         "resnet18-cifar", "resnet50", "cyclegan")  # fmt: skip
MIXES = ("catalog", "light")

EXCLUSIVE = "fifo[backfill=true]"  # a job holds its GPUs until it ends, and who fits passes who does not
GANDIVA, STILL = "gandiva", "gandiva[migration=false]"
TITLES = {EXCLUSIVE: "exclusive", GANDIVA: "Gandiva", STILL: "Gandiva without migration"}

# The search: configurations of one model on one GPU each; all but the best few are stopped after six minutes.
SEARCH_GPUS, SEARCH_MODEL = "1x4x4", "resnet18-cifar"
FULL, EARLY, SURVIVORS = 2 * 3600.0, 360.0, 16
PER_GPU = (4, 8, 16)  # configurations per GPU

DIFFERENCES = (
    "The paper's jobs, models and load are not public; gains grow with load and with what jobs leave of the GPUs.",
    "How much packed jobs slow each other follows a formula from utilisations (docs/gandiva.md), not measurements "
    "of the paper's models; jobs of different sizes never share GPUs here, nor do more than two run at once.",
    "Exclusive scheduling passes by who does not fit; one that waits at the head of its queue is further behind.",
    "Search: without simultaneous feedback nobody can be stopped by rank, so exclusive configurations run to their "
    "end; 'with the same stops' says what the stops alone would give.",
    "The paper's search prioritises by accuracy as it comes; here ranks are given and losers stop by themselves.",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one workload."""

    policy: str
    run: Run
    seen: UsefulWork

    @property
    def average_jct(self) -> float:
        return float(np.mean([row.jct for row in self.run.ledger.rows if row.jct is not None]))

    def first_hundred(self) -> dict[str, float]:
        """Seconds from submission to the end of the hundredth mini-batch, of jobs that did as many."""
        return {row.job_id: row.first_minibatches - row.submit for row in self.run.ledger.rows
                if row.first_minibatches is not None}  # fmt: skip


def workload(jobs: int, seed: int, capacity: int, load: float, mix: str = "catalog") -> Trace:
    """Philly's sizes and durations at so high a load, with the models of one of the mixes."""
    from dally.network.mix import assign_models, read_mix

    drawn = synthesise("philly", jobs=jobs, seed=seed)
    gpus = np.array([min(job.gpus, LARGEST) for job in drawn.jobs])
    durations = np.array([min(LONGEST, truth.duration or 0.0) for truth in drawn.truths])
    times = np.array([job.submit_time for job in drawn.jobs]) - drawn.jobs[0].submit_time
    times *= float((gpus * durations).sum()) / (load * capacity) / times[-1]
    made = [Job(str(i), round(float(t), 3), int(g)) for i, (t, g) in enumerate(zip(times, gpus, strict=True))]
    if mix == "light":
        chance = random.Random(f"{seed}/light")
        made = [replace(job, model=chance.choice(LIGHT)) for job in made]
    else:
        made, _ = assign_models(made, durations.tolist(), seed, read_mix(None))
    truths = [Truth(float(duration)) for duration in durations]
    return Trace(f"gandiva-{mix}-{seed}", "drawn after Gandiva (OSDI'18)", made, truths)


def experiment(topology: Topology, trace: Trace, seed: int) -> Experiment:
    return Experiment(trace, topology, "analytic", "gandiva", seed)


def play(made: Experiment, policy: str, *, progress: Progress | None = None,
         window: float | None = None) -> Outcome:  # fmt: skip
    """One policy; work counts until the last submission, while the load is what it is said to be."""
    from dally.network.registry import make_network
    from dally.policies.options import make_policy

    network = make_network(made.network, made.topology)
    prepared = made.workload(network)
    window = made.trace.jobs[-1].submit_time if window is None else window
    seen = UsefulWork(made.topology, window)
    run = simulate(prepared, made.topology, make_policy(policy), network, make_cost(made.preemption_cost),
                   sinks=(seen,), progress=progress, interference=make_interference(made.interference),
                   meter=NoisyMeter(made.measurement_noise, made.seed))  # fmt: skip
    return Outcome(policy, run, seen)


def compare(jobs: int, seed: int, load: float, mix: str, policies: Sequence[str] = (EXCLUSIVE, GANDIVA, STILL),
            progress: dict[str, Progress] | None = None) -> tuple[Experiment, list[Outcome]]:  # fmt: skip
    from dally.catalog.clusters import load_cluster

    topology = load_cluster(CLUSTER, fabric=FABRIC, gpu_type=GPU)
    made = experiment(topology, workload(jobs, seed, topology.gpus, load, mix), seed)
    return made, [play(made, policy, progress=(progress or {}).get(policy)) for policy in policies]


def feedback_gain(outcome: Outcome, against: Outcome) -> float:
    """How many times sooner the first hundred mini-batches are done, on average over jobs that do as many."""
    mine, theirs = outcome.first_hundred(), against.first_hundred()
    both = [job for job in mine if job in theirs]
    return float(np.mean([theirs[job] for job in both]) / np.mean([mine[job] for job in both]))


def locality(outcome: Outcome, parts: int = 4) -> list[float]:
    """Share of gangs on more servers than they need, in equal parts of the time jobs come."""
    window = outcome.seen.window
    return [outcome.seen.share_apart(window * (i + 1) / parts, window * i / parts) for i in range(parts)]


def search_trace(count: int, seed: int, stops: bool) -> Trace:
    """Configurations in random order of rank; with `stops`, those that are not among the best end early."""
    ranks = list(range(count))
    random.Random(f"{seed}/ranks").shuffle(ranks)
    jobs = [Job(f"c{i}-rank{rank}", 0.0, 1, model=SEARCH_MODEL) for i, rank in enumerate(ranks)]
    truths = [Truth(FULL if rank < SURVIVORS or not stops else EARLY) for rank in ranks]
    return Trace(f"search-{count}-{seed}", "a hyper-parameter search", jobs, truths)


@dataclass(frozen=True, slots=True)
class Search:
    """Seconds until the best configuration is known to be the best: all others have ended, or were stopped."""

    configurations: int
    exclusive: float
    exclusive_with_stops: float
    gandiva: float


def search(per_gpu: int, seed: int) -> Search:
    from dally.catalog.clusters import load_cluster

    topology = load_cluster(SEARCH_GPUS, fabric=FABRIC, gpu_type=GPU)
    count = per_gpu * topology.gpus
    found = []
    for policy, stops in ((EXCLUSIVE, False), (EXCLUSIVE, True), (f"gandiva[height={per_gpu}]", True)):
        made = experiment(topology, search_trace(count, seed, stops), seed)
        outcome = play(made, policy, window=1.0)
        found.append(max(row.end or 0.0 for row in outcome.run.ledger.rows))
    return Search(count, *found)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """A mean over draws, with the least and the most where there are several."""
    mean = f"{float(np.mean(values)):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"
