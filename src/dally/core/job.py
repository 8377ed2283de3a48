"""Jobs: what a scheduler may know about one (`Job`), and what only a world knows (`Truth`).

The two are different types on purpose. A policy is handed `Job`s and never a `Truth`; what it needs to
know about the future it must get through an estimate that a live cluster could supply as well.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from enum import Enum
from operator import attrgetter
from typing import Any

from dally.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One training job as it was submitted: a gang of `gpus` GPUs, all or nothing."""

    id: str
    submit_time: float  # seconds from the trace's origin
    gpus: int
    gpu_type: str | None = None  # wanted type; None: any single type will do
    model: str | None = None  # name in the catalog
    user: str | None = None
    tenant: str | None = None  # virtual cluster, queue, account or partition
    priority: int = 0  # larger is more important
    declared_duration: float | None = None  # seconds the submitter says it will run, e.g. a time limit
    declared_steps: float | None = None  # training steps the submitter says it will take
    deadline: float | None = None  # absolute time, where a trace has an SLO
    gpu_fraction: float = 1.0  # share of one GPU asked for, below 1 only for jobs of one GPU
    min_gpus: int | None = None  # an elastic job also runs on fewer GPUs, down to so many; None: not on fewer
    max_gpus: int | None = None  # … or on more, up to so many; None: not on more
    slo: float | None = None  # deadline as a multiple of the run time on the best GPUs, where a trace has it so
    work: float | None = None  # what it is said to take, in the unit its progress is counted in; None: nobody says
    reference: float | None = None  # its step time at speed 1, where it has been profiled
    within: str | None = None  # a level of the topology: all of the gang inside one domain of it, or it does not run
    prefers: str | None = None  # a level it would rather be inside, where the policy waits for such a thing …
    wait: float | None = None  # … for so many seconds; ∞: for ever; 0: not at all; None: as the policy thinks best
    preemptible: bool = True  # False: it keeps the GPUs it was given until it ends; it may have to share them
    name: str | None = None  # what its owner calls it: jobs of one name tend to be alike
    partition: str | None = None  # where it was submitted to, as its history says; what binds it is `among`
    qos: str | None = None
    nodes: int | None = None  # machines the gang is on, with as many of its GPUs on each; None: any number of them
    among: str | None = None  # sets of machines it may be on (`Topology.among`): `a|b` of either, `a&b` of both
    exclusive: bool = False  # it has its machines to itself: `simulator.shaping` has it ask for all of their GPUs
    limit: float | None = None  # seconds for which it may hold its GPUs in one go; then it is ended
    after: str | None = None  # jobs it waits for, as `sbatch --dependency` has it: `simulator.dependencies` sees to it
    throttle: int | None = None  # so many jobs of its array (`7` of `7_3`) may run at a time
    reservation: str | None = None  # the advance reservation it was submitted to

    @property
    def elastic(self) -> bool:
        """Whether its number of GPUs may be changed while it runs."""
        return self.min_gpus is not None or self.max_gpus is not None

    @property
    def limits(self) -> tuple[int, int]:
        """The fewest and the most GPUs it can run on; both its own number for a rigid job."""
        return self.min_gpus or self.gpus, self.max_gpus or self.gpus


_FIELDS = {name: place for place, name in enumerate(Job.__dataclass_fields__)}
_values = attrgetter(*_FIELDS)
# The same fields, not frozen. A frozen object is filled through `object.__setattr__`, field by field: four times the
# work, and traces are made and altered a million jobs at a time.
_Draft: Any = dataclass(slots=True)(type("_Draft", (), {
    "__annotations__": dict.fromkeys(_FIELDS, Any),
    **{each.name: each.default for each in fields(Job) if each.default is not MISSING},
}))  # fmt: skip


def made(*values: Any, **named: Any) -> Job:
    """`Job(*values, **named)` in a quarter of the time."""
    draft = _Draft(*values, **named)
    draft.__class__ = Job
    return draft  # type: ignore[no-any-return]


def altered(job: Job, **changes: Any) -> Job:
    """`dataclasses.replace` in a tenth of the time."""
    values = list(_values(job))
    for name, value in changes.items():
        values[_FIELDS[name]] = value
    return made(*values)


class Ending(Enum):
    """How the trace says a job ended once it had run."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DurationMeans(Enum):
    """What the duration in a trace stands for."""

    BEST_PLACEMENT = "best-placement"  # run time at the best placement the traced cluster could give
    ONE_GPU = "one-gpu"  # run time on one GPU; the ideal run time is this divided by the GPUs
    AS_PLACED = "as-placed"  # run time at the placement named in `Truth.ran_on`


@dataclass(frozen=True, slots=True)
class Truth:
    """What only a world knows about a job: how long it really takes and how it really ends."""

    duration: float | None  # seconds of undisturbed running; None where `steps` says it instead
    steps: float | None = None  # total training steps, where the trace counts them
    ending: Ending = Ending.COMPLETED
    cancel_at: float | None = None  # absolute time at which the user gives up a job still waiting
    failures: tuple[float, ...] = ()  # fractions of the work at which an attempt dies and is retried
    ran_on: tuple[tuple[str, int], ...] = ()  # (machine, GPUs) where the trace says so
    means: DurationMeans = field(default=DurationMeans.BEST_PLACEMENT)
    start: float | None = None  # when it really started, on the clock of the trace
    submitted: float | None = None  # when it was submitted, where it could not have started until `Job.submit_time`
