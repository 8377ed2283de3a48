"""Dally's evaluation (arXiv 2401.16492): two workloads, three clusters, two fabrics, and who it is compared with.

The authors' job lists are used where they are given; else jobs of the same shape are drawn. The cluster of the
paper's headlines is not known to us, so there are three. What it calls congested is known from the reference
results kept beside the repository (`dally_network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.simulator.experiment import Experiment
from dally.simulator.reproduce.dally_network import CONGESTION, PAPER, PaperExperiment, TimedRun
from dally.simulator.sweep import Report, run_all
from dally.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy of the comparison. A new one is a new entry below, and nothing else."""

    policy: str
    title: str
    consolidates: bool = False  # what the paper means by a consolidation-based scheduler


AUTO = "dally[timers=auto]"
NO_WAIT, CONSOLIDATED, VALUE = "dally[timers=none]", "dally[timers=infinite]", "dally[timers=value]"
TIRESIAS = "tiresias[variant=dally-paper,quantum=1h]"  # their Tiresias looks at jobs when their leases end
GANDIVA = "gandiva[variant=dally-paper]"  # affinity and migration
CONTENDERS = (
    Contender("fifo", "FIFO (consolidated)"),
    Contender(TIRESIAS, "Tiresias (authors' variant)", consolidates=True),
    Contender("tiresias", "Tiresias (in full)", consolidates=True),
    Contender(GANDIVA, "Gandiva (authors' variant)"),
    Contender("gandiva", "Gandiva (in full)"),
    Contender(NO_WAIT, "no-wait"),
    Contender(CONSOLIDATED, "fully consolidated", consolidates=True),
    Contender(AUTO, "Dally (auto-tuned)"),
    Contender("dally[timers=manual]", "Dally (manual timers)"),
    Contender(VALUE, "Dally (by value, ours)"),
    Contender("srtf", "SRTF (perfect knowledge)"),
)
POLICIES = tuple(each.policy for each in CONTENDERS)


def contenders(policies: Sequence[str]) -> tuple[Contender, ...]:
    """The entries of these policies, however their options are written; any other goes by its own name."""
    from dally.policies.options import make_policy

    known = {make_policy(each.policy).name: each for each in CONTENDERS}
    names = [make_policy(policy).name for policy in policies]
    if make_policy(AUTO).name not in names:
        raise UserError(f"--policies: {AUTO} is what the others are compared with and must be among them")
    if len(set(names)) < len(names):
        raise UserError(f"--policies: a policy is named twice: {', '.join(policies)}")
    return tuple(known.get(name, Contender(policy, policy)) for name, policy in zip(names, policies, strict=True))


CLUSTERS = ("2x4x8", "4x8x8", "8x8x8")
DEFAULT_CLUSTERS = ("4x8x8",)
FABRICS = tuple(CONGESTION)


@dataclass(frozen=True, slots=True)
class Claim:
    """One headline of the paper: the largest change against another scheduler ("up to")."""

    measure: str  # a figure of a run's summary
    title: str
    change: float | None  # None: said in words
    text: str


CLAIMS = (
    Claim("makespan", "makespan", -0.69, "−69 %"),
    Claim("avg_jct", "average JCT", -0.83, "−83 %"),
    Claim("comm_seconds", "communication", -0.98, "−98 % (congested)"),
    Claim("p95_queueing", "p95 queueing", None, "better tail"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the two workloads."""

    name: str
    title: str
    synth: str
    jobs: int


BATCH = Kind("batch", "batch", "dally-batch", 500)
WEEK = Kind("poisson", "Poisson week", "dally-poisson", 411)
KINDS = (BATCH, WEEK)

# Hours of makespan, average JCT and 95th percentile in the authors' simulator once its leak of GPUs is removed
# (lease 1 h, H = 24, their fabric, one run each): the reference results kept beside the repository.
RERUN: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = {
    ("poisson", "4x8x8"): {AUTO: (587, 26.1, 145), NO_WAIT: (646, 95.1, 419), CONSOLIDATED: (412, 25.7, 181),
                           TIRESIAS: (513, 23.2, 146)},
    ("poisson", "8x8x8"): {AUTO: (248, 11.6, 50.8), NO_WAIT: (349, 18.1, 104), CONSOLIDATED: (248, 11.6, 50.8),
                           TIRESIAS: (307, 12.1, 51.9)},
    ("batch", "2x4x8"): {AUTO: (1308, 144, 403), TIRESIAS: (1474, 147, 435)},
    ("batch", "4x8x8"): {AUTO: (355, 49.6, 159), NO_WAIT: (481, 101, 396), CONSOLIDATED: (281, 44.2, 130),
                         TIRESIAS: (366, 48.4, 178)},
    ("batch", "8x8x8"): {AUTO: (235, 31.5, 90.4), NO_WAIT: (355, 46.4, 198), CONSOLIDATED: (227, 29.3, 82.1),
                         TIRESIAS: (216, 28.5, 97.9)},
}  # fmt: skip

DIFFERENCES = (
    "\"Up to\" is the paper's largest gain; against which scheduler, and on how many GPUs, we do not know.",
    "Communication decides everything because of the step times: the authors scale their layer tables to seconds "
    "per sample, so a step computes for 0.05 to 12 ms and all-reduces the whole gradient. At the catalog's batches "
    "(--network artist) makespans hardly differ and the gain over the authors' Tiresias is gone.",
    "FIFO, SRTF and Gandiva take GPUs however far apart where a gang cannot be consolidated at once, Tiresias does so "
    "for models it takes for insensitive. What was taken is kept (by Gandiva until nearer GPUs are free), so a few "
    "large MobileNetV3 gangs at a thousandth of their speed make the makespan.",
    "The authors' simulator at its last commit leaks GPUs, and its Gandiva scatters jobs by a bug; headline-sized "
    "gains come from there. The Gandiva here is what was meant: affinity and migration; and Gandiva in full.",
    "The lower bound allows for packed jobs, since Gandiva in full packs them: it is below that of jobs on GPUs of "
    "their own.",
    "One run per cell: differences under 15 % mean little.",
)


@dataclass(frozen=True, slots=True)
class Load:
    """A workload to run: drawn, or read from a file."""

    kind: Kind
    file: str | None = None
    jobs: int | None = None

    @property
    def title(self) -> str:
        return f"{self.kind.title}, {'drawn' if self.file is None else 'real jobs'}"

    def trace(self, gpus: int, seed: int) -> Trace:
        from dally.traces import load_trace, synthesise

        if self.file is None:
            return synthesise(self.kind.synth, jobs=self.jobs or self.kind.jobs, seed=seed, max_gpus=gpus)
        trace = load_trace(self.file)
        if self.jobs is not None and self.jobs < len(trace):
            note = f"only the first {self.jobs:,} of {len(trace):,} jobs"
            trace = replace(trace, jobs=trace.jobs[: self.jobs], truths=trace.truths[: self.jobs],
                            notes=[*trace.notes, note])  # fmt: skip
        return trace


def drawn(kinds: Sequence[Kind], jobs: int | None = None) -> list[Load]:
    return [Load(kind, None, jobs) for kind in kinds]


def read(files: Sequence[str], jobs: int | None = None) -> list[Load]:
    """A load per file; one whose jobs all arrive at once is the batch."""
    from dally.traces import load_trace

    found: list[Load] = []
    for file in files:
        times = {job.submit_time for job in load_trace(file).jobs}
        kind = BATCH if len(times) < 2 else WEEK
        if any(load.kind is kind for load in found):
            raise UserError(f"--trace {file}: a second {kind.title}; give at most one batch (all jobs at once) and "
                            "one trace of jobs that come over time")  # fmt: skip
        found.append(Load(kind, file, jobs))
    return found


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell of the evaluation."""

    load: Load
    cluster: str
    fabric: str
    network: str = PAPER
    layers: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.load.kind.name}-{self.cluster}-{self.fabric}"

    @property
    def title(self) -> str:
        return f"{self.load.title}, {self.cluster}, fabric {self.fabric}"

    @property
    def rerun(self) -> dict[str, tuple[float, float, float]]:
        """The authors' figures, where this cell is the one they are of."""
        same = self.load.file is not None and self.load.jobs is None and self.layers is not None
        if not same or self.fabric != FABRICS[0] or self.network != PAPER:
            return {}
        return RERUN.get((self.load.kind.name, self.cluster), {})


def _with_models(trace: Trace, seed: int) -> Trace:
    """Jobs of another trace may name no model; they get one of the built-in mix."""
    from dally.network.mix import assign_models, read_mix

    jobs, note = assign_models(trace.jobs, [truth.duration for truth in trace.truths], seed, read_mix(None))
    return replace(trace, jobs=jobs, notes=[*trace.notes, note] if note else trace.notes)


def experiment(setting: Setting, seed: int = 0) -> PaperExperiment:
    """The cell with what the authors fix: their network, freed GPUs back after a second each, perfect knowledge."""
    from dally.catalog.clusters import load_cluster

    if setting.fabric not in CONGESTION:
        raise UserError(f"fabric {setting.fabric!r} is not one of the paper's: {', '.join(CONGESTION)}")
    topology = load_cluster(setting.cluster, fabric=setting.fabric)
    trace = _with_models(setting.load.trace(topology.gpus, seed), seed)
    made = PaperExperiment(trace, topology, setting.network, "original", seed, layers=setting.layers,
                           congestion=CONGESTION[setting.fabric])  # fmt: skip
    trace.notes.extend(made.check().notes)
    return made


def compare(made: Experiment, policies: Sequence[str] = POLICIES, *, workers: int | None = None,
            report: Report | None = None) -> list[TimedRun]:  # fmt: skip
    """All contenders on one cell, in the order given; the slowest to simulate is begun first."""
    order = sorted(range(len(policies)), key=lambda index: policies[index] != TIRESIAS)
    runs = run_all(made, [policies[index] for index in order], workers=workers, report=report)
    if len(runs) < len(policies) or not all(run.complete for run in runs):
        raise KeyboardInterrupt  # it was pressed before every policy had run
    back = dict(zip(order, runs, strict=True))
    return [run for index in range(len(policies)) if isinstance(run := back[index], TimedRun)]
