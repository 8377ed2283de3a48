"""Models for jobs that name none: a documented mix by GPU demand and run time, drawn by seed and job."""

from __future__ import annotations

from _random import Random  # the generator alone, without the dressing of `random.Random`
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha512
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from dally.core.errors import UserError
from dally.core.job import Job, altered
from dally.core.records import dataclass
from dally.core.units import seconds

if TYPE_CHECKING:
    from dally.catalog.entries import Entry

BUILT_IN = Path(__file__).parent.parent / "catalog" / "data" / "model-mix.yaml"
_CHANCE = Random()  # seeded anew for every job
UNKNOWN_DURATION = 3600.0  # the class of a job whose run time is not known either


@dataclass(frozen=True, slots=True)
class MixClass:
    """Jobs of `gpus[0]` … `gpus[1]` GPUs that run from `duration[0]` to below `duration[1]` seconds."""

    name: str
    gpus: tuple[float, float]
    duration: tuple[float, float]
    models: tuple[str, ...]
    cumulative: tuple[float, ...]  # weights, added up

    def fits(self, gpus: int, duration: float) -> bool:
        return self.gpus[0] <= gpus <= self.gpus[1] and self.duration[0] <= duration < self.duration[1]

    def draw(self, seed: int, job: str) -> str:
        """Depends on seed and job alone: other jobs may come and go."""
        said = f"{seed}:{job}".encode()
        _CHANCE.seed(int.from_bytes(said + sha512(said).digest(), "big"))  # as `random.Random` takes a text
        # the first model whose edge lies above the point
        return self.models[bisect_right(self.cumulative, _CHANCE.random() * self.cumulative[-1])]


@dataclass(frozen=True, slots=True)
class Mix:
    name: str
    classes: tuple[MixClass, ...]

    def model_for(self, job: Job, duration: float, seed: int) -> str:
        for found in self.classes:
            if found.fits(job.gpus, duration):
                return found.draw(seed, job.id)
        raise UserError(f"model mix {self.name}: no class fits a job of {job.gpus} GPUs and {duration:g} s")


def read_mix(path: Path | None = None) -> Mix:
    """A mix file (docs/network/model-mix.md), or the built-in one."""
    from dally.catalog.entries import read_sections
    from dally.catalog.store import models

    path = BUILT_IN if path is None else path
    entries = read_sections(path, ("mix",)).get("mix", {})
    if not entries:
        raise UserError(f"{path}: the section 'mix' is missing or empty")
    known = models()
    return Mix("built in" if path == BUILT_IN else str(path), tuple(_class(e, known) for e in entries.values()))


def _class(entry: Entry, known: Mapping[str, object]) -> MixClass:
    low, high = _range(entry, "gpus", float)
    begin, end = _range(entry, "duration", seconds)
    weights = entry.entry("models")
    if weights is None or not weights.nodes:
        raise entry.fail("the field 'models' is missing or empty")
    for model in weights.nodes:
        if model not in known:
            raise weights.fail(f"there is no model {model!r} in the catalog", model)
    figures = [weights.number(model) for model in weights.nodes]
    if not sum(figures) > 0:
        raise entry.fail("the weights add up to nothing", "models")
    entry.text("source")
    name = entry.name.rpartition(".")[2]
    return entry.finish(
        MixClass(name, (low, high), (begin, end), tuple(weights.nodes), tuple(accumulate(figures)))
    )


def _range(entry: Entry, key: str, parse: type[float] | object) -> tuple[float, float]:
    value = entry.value(key)
    if not isinstance(value, list) or len(value) != 2 or value[0] is None:
        raise entry.fail("must be a list of two: from and to, the second may be null", key)
    assert callable(parse)
    try:
        low, high = parse(value[0]), float("inf") if value[1] is None else parse(value[1])
    except (TypeError, ValueError, UserError):
        raise entry.fail(f"must be two figures, not {value!r}", key) from None
    if not 0 <= low <= high:
        raise entry.fail(f"must rise from at least 0, and is {value!r}", key)
    return low, high


def assign_models(
    jobs: Sequence[Job], durations: Sequence[float | None], seed: int, mix: Mix | None = None
) -> tuple[list[Job], str | None]:
    """Every job with a model of the catalog, and a sentence on those that got one from the mix (None: nobody).

    Names the catalog knows stay as they are written; others count as no name. `durations` are run times in
    seconds where known; only the class of a job depends on them.
    """
    from dally.catalog.store import knows_model

    mix = read_mix() if mix is None else mix
    resolved: dict[str, bool] = {}
    unknown: Counter[str] = Counter()
    unnamed = 0
    out = []
    for job, duration in zip(jobs, durations, strict=True):
        if job.model is not None:
            if job.model not in resolved:
                resolved[job.model] = knows_model(job.model)
            if resolved[job.model]:
                out.append(job)
                continue
            unknown[job.model] += 1
        else:
            unnamed += 1
        if duration is None:
            duration = job.declared_duration if job.declared_duration is not None else UNKNOWN_DURATION
        out.append(altered(job, model=mix.model_for(job, duration, seed)))
    if not unnamed and not unknown:
        return out, None
    return out, _sentence(len(jobs), unnamed, unknown, mix.name, seed)


def _sentence(jobs: int, unnamed: int, unknown: Counter[str], mix: str, seed: int) -> str:
    parts = []
    if unnamed:
        parts.append(f"{unnamed:,} name no model")
    if unknown:
        few = ", ".join(f"{name} ({count:,})" for name, count in unknown.most_common(3))
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        parts.append(f"{sum(unknown.values()):,} name one that is not in the catalog: {few}{more}")
    return f"of {jobs:,} jobs {', '.join(parts)}; they got one from the model mix ({mix}, seed {seed})"
