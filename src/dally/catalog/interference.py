"""How much jobs that run on one GPU at once slow each other: a formula from utilisations, or measured pairs.

A job that runs alone keeps its GPU busy for the share u of the time. Beside others

    slowdown_i = max(1, u_i / g_i) × (1 + κ·(1 − u_i)·Σ u_j),    g_i = max(u_i^β / Σ u^β, 1 − Σ u_j)     (j ≠ i)

The first factor is compute: where more than one GPU is wanted in all, each gets the share g_i. It is not in
proportion to what each wants: a job with long kernels and few gaps holds the GPU longer each time it gets it.
The second is waiting: after each of its gaps (1 − u_i) a job's next kernel queues behind a neighbour's.

κ and β are ours. κ follows from the first of Gandiva's two published pairs (OSDI'18, section 3): two language models
(u = 0.5) slow each other by 19 %. ResNet-50 (0.95) beside one hardly suffers: 11 % with β = 3, which was chosen after
looking at Gavel's 1,881 measured pairs. How far the formula is from those is said in docs/gandiva.md: the order is
right on average, single pairs are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.core.job import Job

KAPPA = 0.76  # 1 + κ·0.5·0.5 = 1.19
BETA = 3.0
UNKNOWN_UTILIZATION = 1.0  # a job whose model nobody named might keep its GPU busy all the time

Pairs = Mapping[tuple[str, str, str | None], float]  # (model, neighbour, GPU type or any) → slowdown of the model


def slowdown(own: float, others: Sequence[float]) -> float:
    """The formula: a job of utilisation `own` beside jobs of utilisation `others`."""
    beside = sum(others)
    if own <= 0 or not others:
        return 1.0
    share: float = max(own**BETA / sum(u**BETA for u in (own, *others)), 1.0 - beside)
    return max(1.0, own / share) * (1.0 + KAPPA * (1.0 - own) * beside)


class Use(NamedTuple):
    """What a model takes of one GPU when it has it to itself."""

    utilization: float
    memory: float | None  # bytes; None: nobody knows


@lru_cache(maxsize=4096)
def use_of(model: str | None, gpus: int = 1) -> Use:
    """From the catalog; a batch size in the name, as Gavel writes it, counts for the memory."""
    from dally.catalog import batch_in_name, find_model

    if model is None:
        return Use(UNKNOWN_UTILIZATION, None)
    try:
        found = find_model(model)
    except UserError:
        return Use(UNKNOWN_UTILIZATION, None)
    return Use(found.utilization, found.memory_bytes(batch_in_name(model), gpus))


@lru_cache(maxsize=256)
def gpu_memory(gpu_type: str) -> float | None:
    """Bytes of one GPU; None where the catalog does not know the type."""
    from dally.catalog import find_gpu

    try:
        return find_gpu(gpu_type).memory_bytes
    except UserError:
        return None


class CatalogInterference:
    """Utilisation and memory by the catalog, slowdowns by the formula or by measured pairs."""

    def __init__(self, pairs: Pairs | None = None) -> None:
        self._pairs = dict(pairs or {})
        self._known: dict[tuple[str | None, tuple[str | None, ...], str], float] = {}

    def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        """How many times longer a mini-batch takes beside these jobs than alone."""
        key = (job.model, tuple(sorted((other.model for other in others), key=str)), gpu_type)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._slowdown(*key)
        return found

    def _slowdown(self, model: str | None, others: tuple[str | None, ...], gpu_type: str) -> float:
        measured = [self._pair(model, other, gpu_type) for other in others] if self._pairs else [None]
        if all(each is not None for each in measured):
            # Only pairs are measured: what several neighbours add to a mini-batch is taken to add up.
            return 1.0 + sum(each - 1.0 for each in measured if each is not None)
        return slowdown(use_of(model).utilization, [use_of(other).utilization for other in others])

    def _pair(self, model: str | None, other: str | None, gpu_type: str) -> float | None:
        if model is None or other is None:
            return None
        kind = gpu_name(gpu_type)
        for a, b in ((model_name(model), model_name(other)), (model_name(model, False), model_name(other, False))):
            for where in (kind, None):  # measured on this type of GPU, or said of all
                if (found := self._pairs.get((a, b, where))) is not None:
                    return found
        return None

    def utilization(self, job: Job) -> float:
        """Share of the time the job keeps its GPU busy alone: what a profile of it would show."""
        return use_of(job.model).utilization

    def memory(self, job: Job) -> float | None:
        """Bytes the job needs of each of its GPUs."""
        return use_of(job.model, job.gpus).memory

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        """None where the memory of a GPU holds all these jobs at once, else a sentence that says why not."""
        room = gpu_memory(gpu_type)
        if room is None:
            return f"the catalog does not know how much memory a GPU of type {gpu_type} has"
        wanted = 0.0
        for job in jobs:
            memory = use_of(job.model, job.gpus).memory
            if memory is None:
                what = f"model {job.model!r}" if job.model else "a model nobody named"
                return f"nobody knows how much memory job {job.id} needs: it trains {what}"
            wanted += memory
        if wanted > room:
            names = " and ".join(job.id for job in jobs)
            return f"{names} need {wanted / 1e9:.1f} GB together and a {gpu_type} has {room / 1e9:.1f} GB"
        return None


def model_name(name: str, batch: bool = True) -> str:
    """The name a measured pair is kept under: that of the catalog, and the batch size where one is in the name."""
    from dally.catalog import batch_in_name, models
    from dally.catalog.store import normalise

    found = models().resolve(name) or normalise(name)
    size = batch_in_name(name) if batch else None
    return found if size is None else f"{found} (batch size {size})"


def gpu_name(gpu_type: str) -> str:
    from dally.catalog import gpus
    from dally.catalog.store import normalise

    return gpus().resolve(gpu_type) or normalise(gpu_type)
