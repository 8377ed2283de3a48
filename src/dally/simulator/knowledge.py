"""What the simulated world lets policies believe about the future: what users declare, what a cluster learns of them,
and for studies the truth, or the truth with noise.

What a job is said to take, and its step time at reference speed, are written on the job itself before it arrives
(`tell`), so that the journal holds all a policy was told. Speeds follow from it and the network model (`profiles`).
What is learned is written on the job by the world, when it arrives (`simulator.predicting`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dally.core.errors import UserError
from dally.core.estimates import Estimates
from dally.core.job import Job, altered
from dally.core.placement import Placement
from dally.core.told import DURATIONS, KINDS, NOTHING
from dally.network.model import NetworkModel
from dally.simulator.profiles import Rates
from dally.simulator.workload import Workload

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
