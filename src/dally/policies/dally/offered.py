"""What is free for gangs of a demand, worked out once for all of them, and again when free GPUs are others."""

from __future__ import annotations

from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.policies.dally.tiers import Tiers


class Offer:
    """To gangs of one demand."""

    __slots__ = ("demand", "placed", "placement", "room", "state", "wanted")

    def __init__(self, demand: Demand, wanted: int) -> None:
        self.demand = demand
        self.wanted = wanted  # the innermost tier that such gangs wait for
        self.state = 0  # of the free GPUs, when this was worked out
        self.room = -1  # the innermost tier with room; -1: none
        self.placed = 0  # the state that the GPUs there were last looked for in
        self.placement: Placement | None = None  # these


class Offered:
    """Offers by demand. The states of the free GPUs have numbers: a plan that takes some leads to new ones, and when it
    is made they are as they were when it began."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._offers: dict[Demand, Offer] = {}
        self._layout = -1
        self._changes = -1  # of the free GPUs, at the begin of the last plan
        self._begin = 0  # the state then
        self._last = 0  # state that was given a number
        self._state = 0  # now

    def begin(self, free: FreeGpus, layout: int) -> None:
        """A new plan."""
        if layout != self._layout or free.changes != self._changes:
            if layout != self._layout:
                self._offers.clear()
            self._layout, self._changes = layout, free.changes
            self.change()
            self._begin = self._state
        self._state = self._begin

    def change(self) -> None:
        """The plan has taken or given GPUs."""
        self._last += 1
        self._state = self._last

    def of(self, free: FreeGpus, demand: Demand) -> Offer:
        offer = self._offers.get(demand)
        if offer is None:
            offer = self._offers[demand] = Offer(demand, self._tiers.wanted(demand))
        if offer.state != self._state:
            self.refresh(free, offer)
        return offer

    def refresh(self, free: FreeGpus, offer: Offer) -> None:
        """What it is now: the free GPUs may be others."""
        if offer.state != self._state:
            offer.state, demand = self._state, offer.demand
            room = self._tiers.nearest(free, demand)
            offer.room = -1 if room is None else room
            if demand.where is not None:  # it may be left without what others are sent away for
                self.placement(free, offer)

    def placement(self, free: FreeGpus, offer: Offer) -> Placement | None:
        """The GPUs of an offer, chosen when somebody first asks. The same ones are the same object: who knows how fast
        it would be there sees that."""
        if offer.placed != offer.state:
            offer.placed = offer.state
            found = None if offer.room < 0 else self._tiers.place(free, offer.demand, offer.room)
            if found != offer.placement:
                offer.placement = found
        return offer.placement
