"""Backfill with reservations of places: so many GPUs on these machines, from then on.

Where a gang must be on so many machines, on some of them, or inside one domain, a number of free GPUs does not say that
it fits: eight free GPUs on eight machines are no place for a gang of one machine. Its reservation is for the first
moment at which machines that would hold it are free as limits have it, and for those machines. A machine's GPUs are
counted, not named: only inside islands may they turn out to be the wrong ones, and then the gang keeps its machine.

EASY reserves for the first that does not fit of each set of machines (`among`): who waits for one partition says
nothing of another.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dally.core.free import FreeGpus, lowest_gpus
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.topology import Topology
from dally.policies.placing import Rule

Held = tuple[tuple[int, int], ...]  # (machine, GPUs)


class Place(NamedTuple):
    begin: float
    gpus: Held


def held_by(placement: Placement) -> Held:
    return tuple((machine, gpus_in(mask)) for machine, mask in placement.slices)


class Later:
    """A set of free GPUs to try placements on: so many of each machine, whichever they will be."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.free = FreeGpus(topology)
        self._counts = [machine.gpus for machine in topology.machines]
        self._full = [machine.full_mask for machine in topology.machines]

    def having(self, counts: Sequence[int]) -> FreeGpus:
        free, full = self.free, self._full
        for machine, (count, before) in enumerate(zip(counts, self._counts, strict=True)):
            if count != before:
                wanted, there = lowest_gpus(full[machine], max(0, count)), free.masks[machine]
                free.take_mask(machine, there & ~wanted)
                free.give_mask(machine, wanted & ~there)
                self._counts[machine] = count
        return free


class Places:
    """GPUs of each machine that are free from now on: steps over time."""

    def __init__(self, now: float, free: FreeGpus, ends: Iterable[tuple[float, Held]], place: Rule,
                 later: Later) -> None:  # fmt: skip
        self.now, self.free, self.place, self.later = now, free, place, later
        self.times = [now]
        self.counts = [[gpus_in(mask) for mask in free.masks]]
        self._changed: list[set[int]] = [set()]  # by step, the machines that have more or fewer than in the one before
        self._drops: list[set[int]] = [set()]  # by step, those that have fewer: somebody's reservation begins
        for time, held in sorted(ends):
            time = max(time, math.nextafter(now, math.inf))  # who is over time is taken to end at once
            if time > self.times[-1]:
                self.times.append(time)
                self.counts.append(list(self.counts[-1]))
                self._changed.append(set())
                self._drops.append(set())
            for machine, gpus in held:
                self.counts[-1][machine] += gpus
                self._changed[-1].add(machine)
        self._sets: list[dict[int, int]] = [{} for _ in self.times]  # by step and GPUs, the machines with so many free

    # --- now ------------------------------------------------------------------------------------------------------

    def start(self, demand: Demand, span: float) -> Placement | None:
        """Free GPUs for it that nobody has reserved for a part of that time; they are taken."""
        room = self._room(0, span)
        hidden = []
        for machine, count in enumerate(room):
            mask = self.free.masks[machine]
            if gpus_in(mask) > count:
                hidden.append((machine, mask & ~lowest_gpus(mask, max(0, count))))
        for machine, mask in hidden:
            self.free.take_mask(machine, mask)
        placement = self.place(self.free, demand)
        for machine, mask in hidden:
            self.free.give_mask(machine, mask)
        if placement is not None:
            self.free.take(placement)
            self.take(held_by(placement), self.now, span)
        return placement

    # --- later ----------------------------------------------------------------------------------------------------

    def earliest(self, demand: Demand, span: float) -> Place | None:
        """When and on which machines it could start at the earliest; None: never."""
        for step in range(len(self.times)):
            if self._may_hold(step, demand):
                placement = self.place(self.later.having(self._room(step, span)), demand)
                if placement is not None:
                    return Place(self.times[step], held_by(placement))
        return None

    def take(self, held: Held, begin: float, span: float) -> None:
        first = self._cut(begin)
        last = self._cut(begin + span)
        machines = {machine for machine, _ in held}
        for step in range(first, last):
            for machine, gpus in held:
                self.counts[step][machine] -= gpus
            self._sets[step].clear()
        self._changed[first] |= machines
        self._changed[last] |= machines
        if first:
            self._drops[first] |= machines

    def _cut(self, time: float) -> int:
        """The step that begins then; what is past the last one is as it."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.counts.insert(at, list(self.counts[at - 1]))
            self._sets.insert(at, dict(self._sets[at - 1]))
            self._changed.insert(at, set())
            self._drops.insert(at, set())
        return at

    def _room(self, step: int, span: float) -> list[int]:
        """GPUs by machine that are free from a step on for so long."""
        room = list(self.counts[step])
        until = self.times[step] + span
        for later in range(step + 1, len(self.times)):
            if self.times[later] >= until:
                break
            for machine in self._drops[later]:
                room[machine] = min(room[machine], self.counts[later][machine])
        return room

    def _may_hold(self, step: int, demand: Demand) -> bool:
        """Whether as many machines have as many GPUs; of a gang that says neither, whether there are as many GPUs."""
        if demand.nodes is None:
            return sum(self.counts[step]) >= demand.gpus
        roomy = self._with(step, demand.gpus // demand.nodes)
        if demand.among is not None:
            roomy &= self.later.topology.among(demand.among)
        return roomy.bit_count() >= demand.nodes

    def _with(self, step: int, gpus: int) -> int:
        """The machines with so many free: those of the last step that is known, and what has changed since."""
        known = step
        while known and gpus not in self._sets[known]:
            known -= 1
        found = self._sets[known].get(gpus)
        if found is None:
            found = 0
            for machine, count in enumerate(self.counts[known]):
                if count >= gpus:
                    found |= 1 << machine
            self._sets[known][gpus] = found
        for later in range(known + 1, step + 1):
            counts = self.counts[later]
            for machine in self._changed[later]:
                if counts[machine] >= gpus:
                    found |= 1 << machine
                else:
                    found &= ~(1 << machine)
            self._sets[later][gpus] = found
        return found
