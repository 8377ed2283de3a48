"""Jobs of one class, as arrivals and mechanisms look for them; and look-up tables that follow a plan in the making."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import Any, Generic, TypeVar

from dally.core.memory import Draft, Order
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.policies.gandiva.memory import Class

K = TypeVar("K")
V = TypeVar("V")

# Turns, first server, GPUs of it, placement: numbers first, by which nearly all comparisons are decided. Where its type
# said more, compiled code would take it apart and put another together whenever it is handed on.
Listed = tuple[Any, ...]
Profiled = tuple[Any, ...]  # utilisation or the least it can be, arrival, job


class Index(Generic[K, V]):
    """A look-up table on a memory's draft: what a plan wrote goes the way of the plan. It is never None that is kept.
    Its keys are in no order, which for a `Table` costs more than all the rest of it."""

    __slots__ = ("_draft", "_kept")

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._kept: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, key, self._kept.get(key)))
        self._kept[key] = value

    def take(self, key: K) -> V | None:
        """Out of it; None where there was nothing."""
        found = self._kept.get(key)
        if found is not None:
            del self._kept[key]
            log = self._draft.log
            if log is not None:
                log.append((self, key, found))
        return found

    def undo(self, key: Any, value: Any) -> None:
        """Back to what an entry of the log says."""
        if value is not None:
            self._kept[key] = value
        elif key in self._kept:
            del self._kept[key]

    def items(self) -> ItemsView[K, V]:
        return self._kept.items()


class Peers:
    """Groups of one class by turns, jobs of it that were packed, and jobs that could be."""

    __slots__ = ("_draft", "choosy", "cramped", "demand", "groups", "high", "in_vain", "packed", "profiled", "unread",
                 "wanted")  # fmt: skip

    def __init__(self, draft: Draft, wanted: Class) -> None:
        self._draft = draft
        self.wanted = wanted
        self.demand = Demand(wanted.gpus, wanted.gpu_type)  # of those who may be anywhere
        self.choosy = False  # whether there ever was one that may not
        self.groups: Order[Listed] = Order(draft)  # where servers are for the class
        self.high = 0  # how many of them have more than one turn
        self.packed: Order[tuple[int, str]] = Order(draft)  # (order, job) of jobs packed beside another
        self.profiled: Order[Profiled] = Order(draft)  # who could be packed, by utilisation
        self.unread: Order[Profiled] = Order(draft)  # the same of whom it was not needed yet, by the least it can be
        # nobody can be packed, though somebody waits, and nothing has changed since that was seen
        self.in_vain = False
        self.cramped = -1  # no free GPUs are near enough for such a gang, by `FreeGpus.changes`

    def list(self, entry: Listed) -> None:
        self.groups.add(entry)
        if entry[0] > 1:
            self._set_high(self.high + 1)

    def unlist(self, entry: Listed) -> None:
        self.groups.remove(entry)
        if entry[0] > 1:
            self._set_high(self.high - 1)

    def _set_high(self, high: int) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, "high", self.high))
        self.high = high

    def find_vain(self) -> None:
        """Nobody can be packed: as long as nothing changes."""
        self._set_in_vain(True)

    def changed(self) -> None:
        """Who has which GPUs, who is profiled there or how many turns they have: a pair may be possible by now."""
        if self.in_vain:
            self._set_in_vain(False)

    def _set_in_vain(self, in_vain: bool) -> None:
        log = self._draft.log
        if log is not None:
            log.append((self, "in vain", self.in_vain))
        self.in_vain = in_vain

    def undo(self, key: Any, value: Any) -> None:
        """Back to what an entry of the log says."""
        if key == "high":
            self.high = value
        else:
            self.in_vain = value

    @property
    def steepest(self) -> int:
        """By how many turns groups differ at most."""
        groups = self.groups
        if not groups:
            return 0
        highest: int = groups[-1][0]
        lowest: int = groups[0][0]
        return highest - lowest


def listed(turns: int, placement: Placement) -> Listed:
    """Under so many turns."""
    server, mask = placement.slices[0]
    return (turns, server, mask, placement)
