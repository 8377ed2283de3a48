"""Gavel (Narayanan et al., OSDI'20): scheduling on unlike GPUs by allocating time on each type.

An objective decides which fraction of time each job spends on each GPU type, given its throughput there; rounds of
six minutes see to it that it gets it. `aware=false` is the same objective blind to GPU types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.memory import Memory
from dally.core.plan import Plan
from dally.core.policy import PolicyBase, View
from dally.core.records import dataclass
from dally.core.told import DURATIONS, SPEEDS
from dally.policies.gavel.allotting import COUNTS_MONEY
from dally.policies.gavel.paper import PaperRounds
from dally.policies.gavel.prices import parse_pairs
from dally.policies.gavel.released import ReleasedRounds
from dally.policies.gavel.shared_rounds import SharedRounds
from dally.policies.options import option, unless, when, written

ObjectiveName = Literal["max-min-fairness", "fifo", "sjf", "makespan", "finish-time-fairness", "cost", "cost-slo",
                        "throughput", "hierarchical", "isolated", "allox"]  # fmt: skip


_PAPER = unless("variant=released has no such rule", variant="released")
_ENTITIES = when("only objective=hierarchical knows entities", objective="hierarchical")
_MONEY = when("only objective=cost and cost-slo count money", objective=COUNTS_MONEY)
_MANY_OPTIMA = when("of this objective there is one optimum here, whatever is chosen",
                    objective=("max-min-fairness", "makespan", "finish-time-fairness"))  # fmt: skip
_SHARED = when("nobody shares GPUs without space_sharing=true", space_sharing=True)


@dataclass(frozen=True, slots=True)
class GavelOptions:
    objective: ObjectiveName = option("max-min-fairness", "what the allocation of time optimises", source="section 4")
    aware: bool = option(True, "look at throughputs per GPU type; false: all types are alike", source="section 4")
    round: float = option(360.0, "length of a round", source="section 5: six minutes", unit="s")
    reallocate: float = option(1920.0, "least time between two allocations", source="released code", unit="s")
    backfill: bool = option(False, "free GPUs are given out inside a round too; paper: at its start only",
                            source="section 5", only_with=_PAPER)  # fmt: skip
    placement_sensitive: bool = option(False, "a second column per GPU type for gangs that are spread",
                                       source="section 3.1", only_with=_PAPER)  # fmt: skip
    space_sharing: bool = option(False, "pairs of jobs on the same GPUs, where they gain by it", source="section 3.1",
                                 only_with=_PAPER)  # fmt: skip
    pack_above: float = option(1.0, "least sum of a pair's rates, each over its rate alone; 1 is what turns would give",
                               source="section 3.1", only_with=_SHARED)  # fmt: skip
    partners: int = option(4, "most other jobs a job is considered with: those it gains most with",
                           only_with=_SHARED)  # fmt: skip
    throughputs: Literal["known", "estimated"] = option(
        "known", "from profiles, or learned from what ran so far and completed by likeness", source="section 6",
        only_with=_PAPER)  # fmt: skip
    optimum: Literal["filled", "central", "corner"] = option(
        "filled", "which of many optima: everybody raised as far as it goes (max-min fairness; others: a corner), "
        "the one in the middle (fairness and makespan), or a corner", source="section 4.3: water filling",
        only_with=(_PAPER, _MANY_OPTIMA))  # fmt: skip
    weights: str = option("", "of entities (a job's tenant) under hierarchical: a:2/b:1; others weigh 1",
                          only_with=_ENTITIES)  # fmt: skip
    inside: Literal["fairness", "fifo"] = option("fairness", "rule inside an entity", source="section 4.3",
                                                  only_with=_ENTITIES)  # fmt: skip
    prices: str = option("", "dollars per GPU and hour, V100:2.5/K80:0.4; default: the catalog's", only_with=_MONEY)
    cost_form: Literal["sum", "ratio"] = option(
        "sum", "steps per dollar summed over jobs, or steps over dollars: that one runs nothing but the best bargain",
        source="released code; section 4.2 has the ratio", only_with=_MONEY)  # fmt: skip
    variant: Literal["paper", "released"] = option("paper", "the paper, or the released simulator rule by rule")

    def __post_init__(self) -> None:
        if self.round < 1:
            raise UserError("policy 'gavel': a round must be a second or longer")
        parse_pairs(self.weights, "weights")
        parse_pairs(self.prices, "prices")
        if self.space_sharing:
            self._check_sharing()

    def _check_sharing(self) -> None:
        if not 1.0 <= self.pack_above < 2.0:
            raise UserError(f"policy 'gavel': pack_above={self.pack_above:g} must be at least 1, which turns give, and "
                            "below 2, which nobody reaches")  # fmt: skip
        if self.partners < 1:
            raise UserError("policy 'gavel': space_sharing needs at least 1 of partners for every job")
        strange = [why for stands, why in (
            (not self.aware, "aware=false, which does not look at speeds"),
            (self.objective in ("isolated", "allox"), f"objective={self.objective}, which has no pairs"),
            (self.optimum == "central", "optimum=central, which is solved without pairs"),
            (self.throughputs == "estimated", "throughputs=estimated, which learns of single jobs"),
        ) if stands]  # fmt: skip
        if strange:
            raise UserError(f"policy 'gavel': space_sharing does not go with {strange[0]}")


_BY_WORK = ("sjf", "makespan", "finish-time-fairness", "allox", "cost", "cost-slo", "throughput")


def _uses(options: GavelOptions) -> frozenset[str]:
    """Work left, or steps in the unit of the work declared, and rates by GPU type. The released rounds look at the work
    whatever the objective: a job that would end in a round is not moved before."""
    durations = options.objective in _BY_WORK or options.variant == "released"
    speeds = options.aware and options.throughputs == "known"
    return frozenset(kind for kind, used in ((DURATIONS, durations), (SPEEDS, speeds)) if used)


class Gavel(PolicyBase):
    """GPU time on every GPU type allocated by an objective, dealt out in rounds; knows how fast jobs are where."""

    title: ClassVar[str] = "gavel"
    source: ClassVar[str] = "Narayanan et al., OSDI'20"
    preempts = False  # it looks at running jobs at its round boundaries, by its own list
    chooses_gpu_type = True
    Options: ClassVar[type] = GavelOptions

    def __init__(self, options: GavelOptions) -> None:
        self.options = options
        self.name = written(self.title, options)
        self.shares = options.space_sharing
        self.uses = _uses(options)
        self.rounds: PaperRounds | ReleasedRounds
        if options.variant == "released":
            self.rounds = ReleasedRounds(options.objective, options.aware, options.round, options.reallocate)
        else:
            self.rounds = SharedRounds(options) if options.space_sharing else PaperRounds(options)

    def new_memory(self) -> Memory:
        return self.rounds.new_memory()

    def attach(self, view: View, memory: Any) -> None:
        self.rounds.attach(view, memory)

    def hear(self, view: View, memory: Any, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        self.rounds.hear(view, memory, entries)
        return ()

    def plan(self, view: View, memory: Any, now: float) -> Plan:
        return self.rounds.plan(view, memory, now)

    def notes(self, memory: Any) -> tuple[str, ...]:
        """What the objectives could not do, such as deadlines out of reach."""
        return self.rounds.notes(memory)
