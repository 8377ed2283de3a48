"""Tiresias' evaluation (NSDI'19, section 5): FIFO, SRTF and Tiresias on 60 GPUs and on 2,000.

The paper's own traces are not public. What is: how the authors' simulator names its models, the GPU counts of the job
list released with it, and the distribution of total GPU time of production jobs its Gittins index reads. The
workloads here are drawn from these; arrivals are Poisson at an offered load that is ours, since theirs is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dally.core.job import Job, Truth
from dally.core.topology import Topology
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.simulator.sweep import run_all
from dally.traces.synth.chance import Quantiles, Shares, Streams
from dally.traces.trace import Trace

# Quantiles of the GPU-time distribution released with the simulator (1,001 jobs, GPU-seconds).
SERVICE = Quantiles(((0, 121), (0.1, 357), (0.25, 860), (0.5, 2227), (0.75, 8215), (0.9, 75999), (0.95, 326172),
                     (0.99, 2268824)))  # fmt: skip
GANGS = Shares((1, 2, 4, 8), (30, 10, 10, 10))  # the released list of 60 jobs
MODELS = ("vgg19", "vgg16", "vgg11", "alexnet", "resnet152", "resnet101", "resnet50", "inception4", "inception3",
          "googlenet")  # the ten CNNs of the authors' simulator  # fmt: skip

YARN, SRTF, LAS, GITTINS = "fifo", "srtf", "tiresias", "tiresias[index=gittins]"
POLICIES = (YARN, SRTF, LAS, GITTINS)
TITLES = {YARN: "YARN-CS-like FIFO", SRTF: "SRTF, perfect knowledge", LAS: "Tiresias-L", GITTINS: "Tiresias-G"}


@dataclass(frozen=True, slots=True)
class Published:
    """What the paper says of one policy's average JCT against another's."""

    policy: str
    against: str
    text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One of the paper's two experiments."""

    name: str
    title: str
    cluster: str
    gpu_type: str
    fabric: str
    jobs: int
    load: float
    longest: float  # probability up to which GPU times are drawn: what is above has no place in the experiment
    published: tuple[Published, ...]


TESTBED = Setting(
    "testbed", "60 GPUs: 15 machines of 4 P100, 100 Gbit/s", "1x15x4", "P100", "ethernet-100g", 480, 0.9, 0.9,
    (Published(LAS, YARN, "5.5 × (up to)"), Published(GITTINS, YARN, "5.5 × (up to)"),
     Published(LAS, SRTF, "comparable"), Published(GITTINS, SRTF, "comparable")),
)  # fmt: skip
SIMULATION = Setting(
    "simulation", "2,000 GPUs: 250 machines of 8 P100, 100 Gbit/s", "10x25x8", "P100", "ethernet-100g", 6000, 0.9,
    0.99,
    (Published(LAS, YARN, "up to 5.5 ×"), Published(GITTINS, YARN, "up to 5.5 ×"),
     Published(LAS, SRTF, "comparable"), Published(GITTINS, SRTF, "comparable")),
)  # fmt: skip
SETTINGS = (TESTBED, SIMULATION)

DIFFERENCES = (
    "The paper's traces are not public. GPU times and gang sizes follow what was released; the offered load is ours, and the "
    "gain over FIFO depends on it more than on anything else (see --load).",
    "The FIFO here consolidates where it can and never waits for it; the paper's YARN-CS waits for consolidation and "
    "loses time by that too, so the published gain is larger.",
    "5.5 × is the paper's largest gain. Its medians and 95th percentiles are not known to us.",
    "Gandiva-like time slicing, the paper's third comparison (2 × in simulation), is not simulated here yet.",
    "Speed follows the analytic network model instead of a measured cluster; preemption costs saving and loading "
    "the model's checkpoint.",
)  # fmt: skip


def workload(setting: Setting, seed: int, capacity: int, *, jobs: int | None = None, load: float | None = None) -> Trace:
    """Jobs in the paper's proportions, arriving at the setting's load on so many GPUs."""
    count = jobs or setting.jobs
    streams = Streams(seed)
    service = SERVICE.at(streams["service"].random(count) * setting.longest)
    gpus = GANGS.at(streams["gpus"].random(count))
    durations = np.maximum(60.0, np.round(service / gpus))
    gaps = streams["gap"].standard_exponential(count)
    gaps[0] = 0.0
    times = np.cumsum(gaps)
    times *= float((gpus * durations).sum()) / ((load or setting.load) * capacity) / times[-1]
    models = streams["model"].integers(0, len(MODELS), count)
    made = [Job(str(i), round(float(t), 3), int(g), model=MODELS[m])
            for i, (t, g, m) in enumerate(zip(times, gpus, models, strict=True))]  # fmt: skip
    return Trace(f"tiresias-{setting.name}-{seed}", "drawn after Tiresias (NSDI'19)", made,
                 [Truth(float(d)) for d in durations])  # fmt: skip


def experiment(setting: Setting, seed: int, *, jobs: int | None = None, load: float | None = None) -> Experiment:
    from dally.catalog.clusters import load_cluster

    topology: Topology = load_cluster(setting.cluster, fabric=setting.fabric, gpu_type=setting.gpu_type)
    trace = workload(setting, seed, topology.gpus, jobs=jobs, load=load)
    return Experiment(trace, topology, "analytic", "model", seed)


def compare(setting: Setting, seed: int, *, jobs: int | None = None, load: float | None = None,
            workers: int | None = None,
            report: Callable[[str, float, int, int], None] | None = None) -> tuple[Experiment, list[Run]]:  # fmt: skip
    """The paper's policies on one draw of its workload, in the order of `POLICIES`."""
    made = experiment(setting, seed, jobs=jobs, load=load)
    return made, run_all(made, POLICIES, workers=workers, report=report)


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times shorter one policy's JCTs are than another's: average, median, 95th percentile."""

    average: float
    median: float
    p95: float


def gain(run: Run, against: Run) -> Gain:
    mine, theirs = _jcts(run), _jcts(against)
    return Gain(float(theirs.mean() / mine.mean()), float(np.median(theirs) / np.median(mine)),
                float(np.quantile(theirs, 0.95) / np.quantile(mine, 0.95)))  # fmt: skip


def _jcts(run: Run) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([row.jct for row in run.ledger.rows if row.jct is not None])


def spread(values: Sequence[float]) -> str:
    """A mean over draws, with the least and the most where there are several."""
    if len(values) == 1:
        return f"{values[0]:.2f} ×"
    return f"{float(np.mean(values)):.2f} × ({min(values):.2f}–{max(values):.2f})"
