"""Tiresias by its options: which index, in how many queues, which placement, after the paper or the release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.policies.options import option, written
from dally.policies.placing import RULES
from dally.policies.tiresias.continuous import Continuous
from dally.policies.tiresias.gittins import ReleasedIndex, read_distribution
from dally.policies.tiresias.memory import Placing, Service
from dally.policies.tiresias.profile import PACK_LIMIT, Listed, Packing, Profile, Strict
from dally.policies.tiresias.queues import Queues
from dally.policies.tiresias.released import Released

Where = Literal["auto", "profile", "strict", "any", "consolidated", "spread", "best-fit"]
_PAPER = "NSDI'19"
_RELEASED = "released simulator"


class Tiresias:
    """Least attained GPU time, or highest Gittins index, in a few queues; skewed models are consolidated or wait."""

    title: ClassVar[str] = "tiresias"
    source: ClassVar[str] = "Tiresias, Gu et al., NSDI'19"
    preempts: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        index: Literal["las", "gittins"] = option("las", "who goes first: least attained service or Gittins index",
                                                  source=_PAPER)  # fmt: skip
        queues: int | None = option(None, "how many; none: 2, released: 3; 1: the continuous index", source=_PAPER)
        thresholds: tuple[float, ...] = option((3250.0, 7200.0, 18000.0), "GPU-seconds at which a job leaves queue "
                                               "0, 1, …; as many as there are queues less one count",
                                               source=_RELEASED)  # fmt: skip
        order: Literal["start", "running"] = option("start", "inside a queue: by first start, or running jobs "
                                                    "first as in the released simulator", source=_PAPER)  # fmt: skip
        promote: float = option(0.0, "PROMOTEKNOB: back to queue 0 after waiting so many times the executed time; "
                                "0: never", source=_PAPER)  # fmt: skip
        continuous: bool = option(False, "no queues: the index at every moment", source=_PAPER)
        quantum: float | None = option(None, "continuous: shortest time between getting GPUs and losing them; "
                                       "none: 6 minutes", unit="s")  # fmt: skip
        distribution: str | None = option(None, "gittins: CSV with a column duration, GPU-seconds of past jobs; "
                                          "none: learned from jobs as they end", source=_PAPER)  # fmt: skip
        placement: Where = option("auto", "where a gang goes; profile: skewed models on the fewest machines or "
                                  "wait; strict: all models; auto: profile, released: any", source=_PAPER)  # fmt: skip
        pack_limit: float = option(PACK_LIMIT, "profile: skew above which a model is consolidated, at first")
        learn: bool = option(True, "profile: fit the limit to observed slowdowns", source=_PAPER)
        tolerance: float = option(1.1, "profile: slowdown by several machines that is not worth waiting for")
        variant: Literal["paper", "released", "dally-paper"] = option(
            "paper", "the paper; the released simulator, late timers included; what Dally was compared with",
            source="NSDI'19; released simulator; arXiv 2401.16492")  # fmt: skip

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rules: Released | Queues | Continuous = _rules(options)

    @property
    def name(self) -> str:
        return written(self.title, self.options)

    def rank(self, view: View, job: ActiveJob, now: float) -> Rank:
        return self.rules.rank(view, job, now)

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        return self.rules.refresh(view, now)

    def plan(self, view: View, now: float) -> Plan:
        return self.rules.plan(view, now)


def _rules(options: Tiresias.Options) -> Released | Queues | Continuous:
    samples = None if options.distribution is None else read_distribution(Path(options.distribution))
    gittins = options.index == "gittins"
    if not gittins:
        _unused(options, "distribution", why="index=las needs no distribution")
    if options.variant == "dally-paper":
        why = "variant=dally-paper is continuous least attained service with its own list of models"
        _unused(options, "index", "queues", "thresholds", "order", "promote", "placement", "pack_limit", "learn",
                "tolerance", why=why)  # fmt: skip
        return Continuous(_quantum(options), Placing(None, Listed()), None)
    if options.placement not in ("auto", "profile") or options.variant == "released":
        _unused(options, "pack_limit", "learn", "tolerance", why="only placement=profile looks at the model")
    continuous = options.continuous or options.queues == 1
    if options.continuous and options.queues not in (None, 1):
        raise UserError(f"policy 'tiresias': continuous=true has no queues, and queues={options.queues} was given")
    if options.variant == "released":
        return _released(options, samples, continuous)
    service = Service(samples) if gittins else None
    placing = _placing(options)
    if continuous:
        _unused(options, "order", "promote", "thresholds", why="without queues there is nothing to move between")
        return Continuous(_quantum(options), placing, service)
    _unused(options, "quantum", why="only the continuous index has one")
    return Queues(_limits(options, 2 if options.queues is None else options.queues), options.promote,
                  placing, service, running_first=options.order == "running")


def _released(options: Tiresias.Options, samples: list[float] | None, continuous: bool) -> Released:
    if continuous:
        raise UserError("policy 'tiresias': variant=released has queues; it has no continuous index")
    if options.placement in ("profile", "strict"):
        raise UserError("policy 'tiresias': variant=released counts GPUs only; it takes no placement "
                        f"{options.placement}")  # fmt: skip
    _unused(options, "quantum", why="only the continuous index has one")
    _unused(options, "order", why="variant=released has its own")
    index = None
    if options.index == "gittins":
        if samples is None:
            raise UserError("policy 'tiresias': variant=released,index=gittins needs distribution=FILE")
        index = ReleasedIndex(samples)
    limits = _limits(options, 3 if options.queues is None else options.queues)
    rule = RULES["any" if options.placement == "auto" else options.placement]
    return Released(limits, options.promote, rule, index)


def _limits(options: Tiresias.Options, queues: int) -> tuple[float, ...]:
    found = options.thresholds
    if queues < 1:
        raise UserError(f"policy 'tiresias': there is at least one queue, not {queues}")
    if len(found) < queues - 1:
        raise UserError(f"policy 'tiresias': {queues} queues need {queues - 1} thresholds; {len(found)} are given")
    limits = found[: queues - 1]
    if any(not low < high for low, high in zip((0.0, *limits), limits, strict=False)) or limits[-1] == float("inf"):
        raise UserError("policy 'tiresias': thresholds must be above 0, finite, and each above the one before")
    return limits


def _placing(options: Tiresias.Options) -> Placing:
    where = options.placement
    packing: Packing | None = None
    if where in ("auto", "profile"):
        if options.tolerance < 1:
            raise UserError(f"policy 'tiresias': tolerance={options.tolerance:g}: a slowdown cannot be below 1")
        packing = Profile(options.pack_limit, learns=options.learn, tolerance=options.tolerance)
    elif where == "strict":
        packing = Strict()
    return Placing(None if packing is not None else RULES[where], packing)


def _quantum(options: Tiresias.Options) -> float:
    quantum = 360.0 if options.quantum is None else options.quantum
    if not 0 < quantum < float("inf"):
        raise UserError("policy 'tiresias': the continuous index needs a quantum above 0")
    return quantum


def _unused(options: Any, *names: str, why: str) -> None:
    """An option that would do nothing is refused."""
    defaults = {f.name: f.default for f in fields(options)}
    for name in names:
        if getattr(options, name) != defaults[name]:
            raise UserError(f"policy 'tiresias': {name} would do nothing here: {why}")
