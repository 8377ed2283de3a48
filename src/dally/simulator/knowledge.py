"""What the simulated world lets policies believe about the future: what users declare, what a cluster learns of them,
and for studies the truth, or the truth with noise.

What a job is said to take, and its step time at reference speed, are written on the job itself before it arrives
(`tell`), so that the journal holds all a policy was told. Speeds follow from it and the network model (`Profiles`).
What is learned is written on the job by the world, when it arrives (`simulator.predicting`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dally.core.errors import UserError
from dally.core.estimates import Estimates
from dally.core.free import FreeGpus
from dally.core.job import Job, altered
from dally.core.placement import Placement
from dally.core.plan import Demand, demand_of_job
from dally.core.sharing import Interference
from dally.core.told import DURATIONS, KINDS, NOTHING
from dally.core.topology import Topology
from dally.network.model import NetworkModel
from dally.policies.placing import place_spread
from dally.simulator.best import BestPlacement
from dally.simulator.tabled import Tabled
from dally.simulator.workload import Workload


class Profiles:
    """Work as the job says; speeds as a profile of its model on every shape of placement would have them."""

    def __init__(self, network: NetworkModel, topology: Topology, interference: Interference | None = None) -> None:
        self._network = network
        self._rates = Rates({}, network, topology, interference)

    def work(self, job: Job) -> float | None:
        return job.work

    def speed(self, job: Job, placement: Placement) -> float | None:
        return None if job.reference is None else job.reference / self._network.step_time(job, placement, 0.0).seconds

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        return self._rates.throughput(job, gpu_type, consolidated)

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        return self._rates.together(job, other, gpu_type)


AUTO = "auto"  # what a real cluster would have
EXACT, LIMITS, LEARNED, NONE = "exact", "limits", "learned", "none"
_FORMS = "none, limits, learned, exact, noisy=0.7 (sigma of a log-normal factor), or auto: limits where there are any"


def settled(text: str, jobs: Sequence[Job] = ()) -> str:
    """The knowledge of a run by its one name: `auto` is what a real cluster would have of these jobs, time limits where
    any is declared, else nothing; `declared` is the older name of `exact`."""
    text = text.strip()
    if text == AUTO:
        return LIMITS if any(declared(job) is not None for job in jobs) else NONE
    return EXACT if text == "declared" else text


def declared(job: Job) -> float | None:
    """What its owner says, whatever is true."""
    return job.limit if job.limit is not None else job.declared_duration


def tell(workload: Workload, text: str, seed: int = 0) -> Workload:
    """The workload with what every job says of itself (`settled`). With `none` it says nothing, not to those who would
    look at its limit, either: Slurm plans by DefaultTime then; the limit still ends it."""
    name, reference = settled(text, workload.trace.jobs), workload.reference
    said = make_estimates(name, workload.work, seed)
    jobs = [altered(job, work=said.work(job), reference=reference.get(job.id)) for job in workload.trace.jobs]
    if name == NONE and any(job.declared_duration is not None for job in jobs):
        jobs = [altered(job, declared_duration=None) for job in jobs]
    return replace(workload, trace=replace(workload.trace, jobs=jobs))


def told(uses: frozenset[str], knowledge: str, policy: str = "policy") -> str:
    """What a policy was told in a run with this knowledge, in words: `exact durations and speeds`, `time limits`,
    `nothing`; of a live cluster's declarations, `durations`. Speeds are the network model's own and exact, whatever is
    known of durations."""
    strange = sorted(uses - set(KINDS))
    if strange:
        raise UserError(f"policy {policy!r} says it uses {', '.join(strange)}; it may use: {', '.join(KINDS)}")
    name, _, sigma = knowledge.strip().partition("=")
    words = {NONE: "", "noisy": f"durations off by σ = {sigma}", EXACT: "exact durations", LIMITS: "time limits",
             LEARNED: "durations learned from ended jobs"}  # fmt: skip
    said = {DURATIONS: words.get(name, DURATIONS)}
    parts = [text for kind in KINDS if kind in uses and (text := said.get(kind, kind))]
    return " and ".join(parts) or NOTHING


Speed = Callable[[Job, Placement], float | None]


def speeds(reference: Mapping[str, float], network: NetworkModel) -> Speed:
    """What a profile of every model on every shape of placement would say."""

    def speed(job: Job, placement: Placement) -> float | None:
        step = reference.get(job.id)
        return None if step is None else step / network.step_time(job, placement, 0.0).seconds

    return speed


class Rates:
    """Work per second by GPU type, as a profile of every job type alone on each would give it."""

    def __init__(self, reference: Mapping[str, float], network: NetworkModel, topology: Topology,
                 interference: Interference | None = None) -> None:  # fmt: skip
        self._reference, self._network, self._topology = reference, network, topology
        self._interference = interference
        self._best = BestPlacement(topology, network)
        self._empty = FreeGpus(topology)
        # seconds; infinite where it cannot run
        self._steps: dict[tuple[str | None, int, str, bool, int | None, str | None], float] = {}

    def throughput(self, job: Job, gpu_type: str, consolidated: bool) -> float | None:
        reference = self._reference.get(job.id, job.reference)
        if reference is None:
            return None
        key = (job.model, job.gpus, gpu_type, consolidated, job.nodes, job.among)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._step(job, gpu_type, consolidated)
        return reference / step

    def _step(self, job: Job, gpu_type: str, consolidated: bool) -> float:
        if consolidated:
            best = self._best.step(replace(job, gpu_type=gpu_type))
            if best is None and isinstance(self._network, Tabled):  # too few GPUs here, but it was measured elsewhere
                return 1.0 / (self._network.table.rate(job.model, job.gpus, gpu_type) or 1e-300)
            return float("inf") if best is None else best.seconds
        spread = place_spread(self._empty, Demand(job.gpus, gpu_type, demand_of_job(job).where if job.nodes else None))
        return float("inf") if spread is None else self._network.step_time(job, spread, 0.0).seconds

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        """What a profile of the pair would say: 0 where their memory does not fit. Without a model of interference,
        from the table of throughputs where there is one and it has the pair."""
        if job.gpus != other.gpus:
            return None
        if self._interference is not None:
            return self._profiled(job, other, gpu_type, self._interference)
        if not isinstance(self._network, Tabled):
            return None
        pair = self._network.table.pair(job.model, other.model, job.gpus, gpu_type)
        mine = self._reference.get(job.id, job.reference)
        others = self._reference.get(other.id, other.reference)
        return None if pair is None or mine is None or others is None else (pair[0] * mine, pair[1] * others)

    def _profiled(self, job: Job, other: Job, kind: str, between: Interference) -> tuple[float, float] | None:
        mine, others = self.throughput(job, kind, True), self.throughput(other, kind, True)
        if mine is None or others is None:
            return None
        if between.fits((job, other), kind) is not None:
            return 0.0, 0.0
        slower = [max(1.0, between.slowdown(a, [b], kind)) for a, b in ((job, other), (other, job))]
        return mine / slower[0], others / slower[1]


class _Profiled:
    """Speeds are known where they are given."""

    def __init__(self, speed: Speed | None = None, rates: Rates | None = None) -> None:
        self._speed, self._rates = speed, rates

    def speed(self, job: Job, placement: Placement) -> float | None:
        return None if self._speed is None else self._speed(job, placement)

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        return None if self._rates is None else self._rates.throughput(job, gpu_type, consolidated)

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        return None if self._rates is None else self._rates.together(job, other, gpu_type)


class Perfect(_Profiled):
    """Every job declares exactly what it will take."""

    def __init__(self, work: Mapping[str, float], speed: Speed | None = None, rates: Rates | None = None) -> None:
        super().__init__(speed, rates)
        self._work = work

    def work(self, job: Job) -> float | None:
        return self._work.get(job.id)


class Noisy(_Profiled):
    """Declarations are off by a log-normal factor, fixed per job and seed."""

    def __init__(self, work: Mapping[str, float], sigma: float, seed: int = 0, speed: Speed | None = None,
                 rates: Rates | None = None) -> None:  # fmt: skip
        super().__init__(speed, rates)
        self._work, self._sigma, self._seed = work, sigma, seed
        self._said: dict[str, float] = {}

    def work(self, job: Job) -> float | None:
        true = self._work.get(job.id)
        if true is None:
            return None
        said = self._said.get(job.id)
        if said is None:
            factor = random.Random(f"{self._seed}/estimate/{job.id}").lognormvariate(0.0, self._sigma)
            said = self._said[job.id] = true * factor
        return said


class Limits(_Profiled):
    """Every job says what its owner declared."""

    def work(self, job: Job) -> float | None:
        return declared(job)


class Nothing(_Profiled):
    """Nobody declares anything."""

    def work(self, job: Job) -> float | None:
        return None


def make_estimates(text: str, work: Mapping[str, float], seed: int = 0, speed: Speed | None = None,
                   rates: Rates | None = None) -> Estimates:  # fmt: skip
    """`exact`: every job says exactly what it will take; `noisy=0.7`: off by a log-normal factor; `limits`: what its
    owner declared; `learned` (by whom, the world knows) and `none`."""
    name, _, value = settled(text).partition("=")
    plain: dict[str, Estimates] = {EXACT: Perfect(work, speed, rates), NONE: Nothing(speed, rates),
                                   LIMITS: Limits(speed, rates), LEARNED: Nothing(speed, rates)}  # fmt: skip
    if name in plain and not value:
        return plain[name]
    try:
        sigma = float(value) if name == "noisy" else -1.0
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma < 10:
        raise UserError(f"knowledge {text!r}: write {_FORMS}")
    return Noisy(work, sigma, seed, speed, rates)
