"""Tiresias by its options: which index, in how many queues, which placement, after the paper or the release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.memory import Memory
from dally.core.plan import Plan
from dally.core.policy import PolicyBase, View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.core.told import DISTRIBUTION
from dally.policies.options import option, unless, when, written
from dally.policies.placing import RULES
from dally.policies.preempting import Preempting, preempting, with_leases
from dally.policies.tiresias.continuous import Continuous
from dally.policies.tiresias.gittins import ReleasedIndex, read_distribution
from dally.policies.tiresias.memory import Placing, Service
from dally.policies.tiresias.profile import PACK_LIMIT, Listed, Packing, Profile, Strict
from dally.policies.tiresias.queues import Queues
from dally.policies.tiresias.released import Released

Where = Literal["auto", "profile", "strict", "any", "consolidated", "spread", "best-fit"]
_PAPER = "NSDI'19"
_RELEASED = "released simulator"

# where options count
_NOT_LISTED = unless("variant=dally-paper is continuous least attained service with its own list of models",
                     variant="dally-paper")  # fmt: skip
_NOT_RELEASED = unless("variant=released has its own", variant="released")
_QUEUED = unless("without queues there is nothing to move between", continuous=True, queues=1)
_CONTINUOUS = when("only the continuous index has one", continuous=True, queues=1, variant="dally-paper")
_GITTINS = when("index=las needs no distribution", index="gittins")
_PROFILE = (when("only placement=profile looks at the model", placement=("auto", "profile")),
            unless("only placement=profile looks at the model", variant="released"))  # fmt: skip
_LEARNS = when("nothing is learned, so no slowdown is judged", learn=True)


class Tiresias(PolicyBase):
    """Least attained GPU time, or highest Gittins index, in a few queues; skewed models are consolidated or wait."""

    title: ClassVar[str] = "tiresias"
    source: ClassVar[str] = "Tiresias, Gu et al., NSDI'19"
    preempts = True

    @dataclass(frozen=True, slots=True)
    class Options:
        index: Literal["las", "gittins"] = option("las", "who goes first: least attained service or Gittins index",
                                                  source=_PAPER, only_with=_NOT_LISTED)  # fmt: skip
        queues: int | None = option(None, "how many; none: 2, released: 3; 1: the continuous index", source=_PAPER,
                                    only_with=_NOT_LISTED)  # fmt: skip
        thresholds: tuple[float, ...] = option((3250.0, 7200.0, 18000.0), "GPU-seconds at which a job leaves queue "
                                               "0, 1, …; as many as there are queues less one count",
                                               source=_RELEASED, only_with=(_NOT_LISTED, _QUEUED))  # fmt: skip
        order: Literal["start", "running"] = option("start", "inside a queue: by first start, or running jobs "
                                                    "first as in the released simulator", source=_PAPER,
                                                    only_with=(_NOT_LISTED, _NOT_RELEASED, _QUEUED))  # fmt: skip
        promote: float = option(0.0, "PROMOTEKNOB: back to queue 0 after waiting so many times the executed time; "
                                "0: never", source=_PAPER, only_with=(_NOT_LISTED, _QUEUED))  # fmt: skip
        continuous: bool = option(False, "no queues: the index at every moment", source=_PAPER, only_with=_NOT_LISTED)
        quantum: float | None = option(None, "shortest time between getting GPUs and losing them; none: 6 minutes",
                                       unit="s", only_with=_CONTINUOUS)  # fmt: skip
        distribution: str | None = option(None, "CSV with a column duration, GPU-seconds of past jobs; none: learned "
                                          "from jobs as they end", source=_PAPER, only_with=_GITTINS)  # fmt: skip
        placement: Where = option("auto", "where a gang goes; profile: skewed models on the fewest machines or wait; "
                                  "strict: all models; auto: profile, released: any", source=_PAPER,
                                  only_with=_NOT_LISTED)  # fmt: skip
        pack_limit: float = option(PACK_LIMIT, "skew above which a model is consolidated, at first",
                                   only_with=(_NOT_LISTED, *_PROFILE))  # fmt: skip
        learn: bool = option(True, "fit the limit to observed slowdowns", source=_PAPER,
                             only_with=(_NOT_LISTED, *_PROFILE))  # fmt: skip
        tolerance: float = option(1.1, "slowdown by several machines that is not worth waiting for",
                                  only_with=(_NOT_LISTED, *_PROFILE, _LEARNS))  # fmt: skip
        variant: Literal["paper", "released", "dally-paper"] = option(
            "paper", "the paper; the released simulator, late timers included; what Dally was compared with",
            source="NSDI'19; released simulator; arXiv 2401.16492")  # fmt: skip
        preempt: Preempting = preempting(unless("variant=released is what was released", variant="released"))

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rules: Released | Queues | Continuous = _rules(options)
        self.name = written(self.title, options)
        self.preempts = options.preempt != "never"
        self.uses = frozenset(() if options.distribution is None else {DISTRIBUTION})

    def new_memory(self) -> Memory:
        return self.rules.new_memory()

    def attach(self, view: View, memory: Any) -> None:
        self.rules.attach(view, memory)
        if type(self) is Tiresias:  # the rules are asked themselves from now on: that is a step less at every event
            self.hear, self.rank = self.rules.hear, self.rules.rank  # type: ignore[method-assign]

    def hear(self, view: View, memory: Any, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        return self.rules.hear(view, memory, now, entries)

    def rank(self, view: View, memory: Any, job: ActiveJob, now: float) -> Rank:
        return self.rules.rank(view, memory, job, now)

    def plan(self, view: View, memory: Any, now: float) -> Plan:
        return with_leases(self.rules.plan(view, memory, now), view, self.options.preempt)


def _rules(options: Tiresias.Options) -> Released | Queues | Continuous:
    samples = None if options.distribution is None else read_distribution(Path(options.distribution))
    if options.variant == "dally-paper":
        return Continuous(_quantum(options), Placing(None, Listed()), None)
    if options.continuous and options.queues not in (None, 1):
        raise UserError(f"policy 'tiresias': continuous=true has no queues, and queues={options.queues} was given")
    continuous = options.continuous or options.queues == 1
    if options.variant == "released":
        return _released(options, samples, continuous)
    service = Service(samples) if options.index == "gittins" else None
    placing = _placing(options)
    if continuous:
        return Continuous(_quantum(options), placing, service)
    return Queues(_limits(options, 2 if options.queues is None else options.queues), options.promote,
                  placing, service, running_first=options.order == "running")


def _released(options: Tiresias.Options, samples: list[float] | None, continuous: bool) -> Released:
    if continuous:
        raise UserError("policy 'tiresias': variant=released has queues; it has no continuous index")
    if options.placement in ("profile", "strict"):
        raise UserError("policy 'tiresias': variant=released counts GPUs only; it takes no placement "
                        f"{options.placement}")  # fmt: skip
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
