"""Gandiva by its options: which of its mechanisms are on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.plan import Plan
from dally.core.policy import PolicyBase, View
from dally.core.records import dataclass
from dally.policies.gandiva.deciding import Deciding
from dally.policies.gandiva.elastic import Elastic
from dally.policies.gandiva.introspection import Introspection
from dally.policies.gandiva.memory import GandivaMemory
from dally.policies.gandiva.moving import Migration
from dally.policies.gandiva.packing import Packing
from dally.policies.gandiva.ready import Ready
from dally.policies.gandiva.servers import Servers
from dally.policies.gandiva.starving import Starvation
from dally.policies.options import option, unless, when, written

_PAPER = "OSDI'18"
_WHOLE = unless("variant=dally-paper is affinity and migration only", variant="dally-paper")


class Gandiva(PolicyBase):
    """Time-slicing, packing, migration and growth, judged by the time per mini-batch that jobs show."""

    title: ClassVar[str] = "gandiva"
    source: ClassVar[str] = "Gandiva, Xiao et al., OSDI'18"
    shares = True

    @dataclass(frozen=True, slots=True)
    class Options:
        quantum: float = option(60.0, "a turn of weight 1 on shared GPUs", source=_PAPER, unit="s", only_with=_WHOLE)
        slicing: bool = option(True, "jobs of one size take turns where no GPUs are free", source=_PAPER,
                               only_with=_WHOLE)  # fmt: skip
        height: int = option(4, "turns on the same GPUs at most; who comes then waits",
                             only_with=(_WHOLE, when("without slicing nobody takes turns", slicing=True)))  # fmt: skip
        packing: bool = option(True, "under overload, try jobs beside each other", source=_PAPER, only_with=_WHOLE)
        migration: bool = option(True, "lower heights, bring gangs together, empty servers", source=_PAPER)
        grow_shrink: bool = option(True, "jobs that declare it use idle GPUs of their server", source=_PAPER,
                                   only_with=_WHOLE)  # fmt: skip
        minibatches: int = option(20, "mini-batches over which a job is measured before it is judged")
        gain: float = option(0.05, "how much better a pair or a move must be than before to be kept")
        defragment: float = option(0.75, "share of free GPUs from which a server is emptied",
                                   only_with=when("migration is off", migration=True))  # fmt: skip
        grow_after: float = option(300.0, "how long GPUs must be idle before a job grows onto them", unit="s",
                                   only_with=(_WHOLE, when("grow_shrink is off", grow_shrink=True)))  # fmt: skip
        starvation: float | None = option(None, "who has waited for so long gets its turn, whatever is in the way; "
                                          "none: as in the paper, never", unit="s")  # fmt: skip
        seed: int = option(0, "of the noise in what is measured")
        variant: Literal["paper", "dally-paper"] = option(
            "paper", "the paper, or what Dally was compared with: affinity and migration only",
            source="OSDI'18; arXiv 2401.16492")  # fmt: skip

    def __init__(self, options: Options) -> None:
        _check(options)
        self.options = options
        self.name = written(self.title, options)
        lean = options.variant == "dally-paper"
        slicing = options.slicing and not lean
        limit = options.height if slicing else 1
        watch = Introspection(options.minibatches, options.seed, options.quantum)
        # An undone trial leaves its two jobs to take turns, even where slicing is off.
        packs = options.packing and not lean
        self.deciding = Deciding(
            watch, Packing(watch, options.gain, max(2, limit)) if packs else None,
            Migration(watch, options.gain, options.defragment) if options.migration else None,
            Elastic(options.grow_after) if options.grow_shrink and not lean else None,
            None if options.starvation is None else Starvation(options.starvation, slicing), limit, options.quantum,
        )  # fmt: skip

    def new_memory(self) -> GandivaMemory:
        return GandivaMemory()

    def attach(self, view: View, memory: GandivaMemory) -> None:
        self.deciding.attach(view, memory)

    @property
    def servers(self) -> Servers:
        return self.deciding.servers

    @property
    def ready(self) -> Ready:
        return self.deciding.ready

    def hear(self, view: View, memory: GandivaMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        self.deciding.hear(view, memory, now, entries)
        return ()

    def plan(self, view: View, memory: GandivaMemory, now: float) -> Plan:
        return self.deciding.plan(view, memory, now)


def _check(options: Gandiva.Options) -> None:
    """Values that make no sense are refused in a sentence."""
    def refuse(text: str) -> None:
        raise UserError(f"policy 'gandiva': {text}")

    if not 0 < options.quantum < float("inf"):
        refuse("a turn needs a quantum above 0")
    if options.height < 1:
        refuse(f"height={options.height}: at least one job has its GPUs")
    if options.minibatches < 1:
        refuse(f"minibatches={options.minibatches}: nothing is measured in less than one")
    if not 0 < options.defragment <= 1:
        refuse(f"defragment={options.defragment:g} is a share of a server's GPUs, above 0 and at most 1")
    if not 0 < options.grow_after < float("inf"):
        refuse("grow_after must be a time above 0: GPUs are never idle for ever, nor is it looked at them all the time")
    if options.starvation == 0:
        refuse("starvation=0 would help everybody at once; write none or a time above 0")
