"""Dally by its options: the paper's timers (auto-tuned, manual, none, infinite), or waiting by its value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.memory import Memory
from dally.core.plan import Plan
from dally.core.policy import PolicyBase, View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.core.told import DURATIONS, SPEEDS
from dally.policies.dally.forecast import ValueMemory
from dally.policies.dally.remembered import Histories
from dally.policies.dally.tiers import Fit, Tiers
from dally.policies.dally.value import Value
from dally.policies.dally.waiting import Waits
from dally.policies.options import option, when, written
from dally.policies.preempting import Preempting, preempting, with_leases

if TYPE_CHECKING:
    from dally.policies.dally.offers import Offers
    from dally.policies.dally.timers import Timers

_PAPER = "arXiv 2401.16492"
_AUTHORS = "the authors' code"
_LEASE = 3600.0  # the authors' code
_VALUE_LEASE = 600.0  # ours: protects a job that has just loaded its checkpoint, no more

# where options count
_TUNED = when("only timers=auto tunes them", timers="auto")
_OURS = when("it belongs to timers=value, not to the paper's timers", timers="value")
_GIVEN = when("only timers=manual takes them as given", timers="manual")


class Dally(PolicyBase):
    """Gangs wait for near GPUs while that pays, or, as in the paper, until a timer per level runs out."""

    title: ClassVar[str] = "dally"
    source: ClassVar[str] = "Dally, arXiv 2401.16492"
    preempts = True
    heeds_wishes = True

    @dataclass(frozen=True, slots=True)
    class Options:
        timers: Literal["auto", "manual", "none", "infinite", "value"] = option(
            "value", "how long a gang waits for nearer GPUs: tuned per demand and level (the paper's auto), as given, "
            "not at all, for ever; value: while it pays", source="ours; the others: " + _PAPER)  # fmt: skip
        lease: float | None = option(None, "GPUs are given for so long, then their holder competes again; none: 1 h, "
                                     "with timers=value 10 min", unit="s", source=_AUTHORS)  # fmt: skip
        window: int = option(24, "leases for which an accepted wait is remembered", source=_AUTHORS, only_with=_TUNED)
        manual: tuple[float, ...] = option((1.0, 2.0), "timers in leases for machine, rack, …; one not given is twice "
                                           "the one before", source=_AUTHORS, only_with=_GIVEN)  # fmt: skip
        floors: tuple[float, ...] = option((6.0, 12.0), "shortest timers in leases, continued likewise",
                                           source=_PAPER, only_with=_TUNED)  # fmt: skip
        ceilings: tuple[float, ...] = option((0.8, 1.0), "longest timers as shares of the window; the last also for "
                                             "further levels", source=_PAPER, only_with=_TUNED)  # fmt: skip
        sigmas: float = option(2.0, "standard deviations above the mean wait", source=_PAPER, only_with=_TUNED)
        fit: Fit | None = option(None, "which domain of a level: the first with room; the first that needs the fewest "
                                 "machines; of these the fullest (best). none: first, with timers=value best",
                                 source=_AUTHORS)  # fmt: skip
        waits: Waits = option("value", "with our order, how long a gang waits for nearer GPUs: while it pays, not at "
                              "all, for ever, or so long", unit="s", only_with=_OURS)  # fmt: skip
        breadth: float = option(1.0, "how much a gang's GPUs count in the order, as a power: 1: time left times the "
                                "jobs it may put off, as many as its GPUs or as wait; less: wide gangs come sooner; "
                                "0: least time first", only_with=_OURS)  # fmt: skip
        preempt: Preempting = preempting()

    def __init__(self, options: Options) -> None:
        self.options = options
        _check(options)
        self.name = written(self.title, options)
        self.preempts = options.preempt != "never"
        # the paper's timers go by the work left alone
        self.uses = frozenset({DURATIONS, SPEEDS} if options.timers == "value" else {DURATIONS})

    def new_memory(self) -> Memory:
        return ValueMemory() if self.options.timers == "value" else Histories()

    def attach(self, view: View, memory: Any) -> None:
        self._rules = _make(self.options, view)

    def hear(self, view: View, memory: Any, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        return self._rules.hear(view, memory, now, entries)

    def rank(self, view: View, memory: Any, job: ActiveJob, now: float) -> Rank:
        return self._rules.rank(view, memory, job, now)

    def plan(self, view: View, memory: Any, now: float) -> Plan:
        return with_leases(self._rules.plan(view, memory, now), view, self.options.preempt)


def _make(options: Dally.Options, view: View) -> Offers | Value:
    if options.timers == "value":
        # best fit: whole machines stay open
        tiers = Tiers(view.topology, options.fit or "best")
        return Value(tiers, _VALUE_LEASE if options.lease is None else options.lease, view,
                     options.waits, options.preempt, options.breadth)
    from dally.policies.dally.offers import Offers  # who waits by value need not wait for these
    from dally.policies.dally.timers import AutoTuner, Fixed

    lease = _LEASE if options.lease is None else options.lease
    tiers = Tiers(view.topology, options.fit or "first")
    waits = tiers.count - 1
    timers: Timers
    if options.timers == "auto":
        timers = AutoTuner(lease, options.window, waits, options.floors, options.ceilings, options.sigmas)
    else:
        leases = {"manual": options.manual, "none": (0.0,), "infinite": (math.inf,)}[options.timers]
        timers = Fixed(leases, lease, waits)
    return Offers(tiers, timers, lease, view)


def _check(options: Dally.Options) -> None:
    if options.lease is not None and not 0 < options.lease < math.inf:
        raise UserError("policy 'dally': a lease must be longer than 0")
    if not 0 <= options.breadth <= 1:
        raise UserError(f"policy 'dally': the breadth is from 0 to 1, not {options.breadth:g}")
    if options.window < 1:
        raise UserError(f"policy 'dally': the window is at least one lease, not {options.window}")
    for name, values in (("floors", options.floors), ("manual", options.manual), ("ceilings", options.ceilings)):
        if any(value == math.inf for value in values):
            raise UserError(f"policy 'dally': {name} must be finite; timers=infinite waits for ever")
