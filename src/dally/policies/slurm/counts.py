"""A map of the future in which reservations take GPUs and leave the rest of their nodes to others, as textbooks have it
(Slurm's own, `space`, takes nodes whole)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dally.policies.slurm.asks import Shape
from dally.policies.slurm.ends import groups
from dally.policies.slurm.room import Chosen, RoomLater

if TYPE_CHECKING:
    from dally.policies.slurm.turn import Turn


class CountedSpace:
    """Free GPUs by node, step by step of time: those of now, plus what jobs leave at the ends of their limits, less
    what is reserved."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.reserved: list[tuple[float, float, Chosen]] = []
        self.times: list[float] = []
        self.counts: list[list[int]] = []
        self._sets: list[dict[int, int]] = []  # by step and number of GPUs, the nodes with so many free
        self._made: tuple[int, int] | None = None

    def _steps(self) -> None:
        """Made anew once somebody has started or left: who starts is among those that end."""
        turn = self.turn
        key = len(turn.starts), len(turn.evicted)
        if self._made == key:
            return
        self._made = key
        now, ends = turn.now, turn.ends().all
        counts = list(turn.ends().counts)
        self.times, self.counts = [now], [counts]
        for together in ([end] for end in ends) if turn.settings.one_by_one else groups(ends):
            time = max(together[-1].time, now + 1.0)  # who is over its limit is taken to be gone in a moment
            if time > self.times[-1]:
                self.times.append(time)
                self.counts.append(list(self.counts[-1]))
            for end in together:
                for machine, gpus in end.gpus:
                    self.counts[-1][machine] += gpus
        self._sets = [{} for _ in self.times]
        for begin, until, chosen in self.reserved:
            self._take(chosen, begin, until)

    def _cut(self, time: float) -> int:
        """The step that begins then; what is past the last one is as it."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            at = max(at, 1)
            self.times.insert(at, time)
            self.counts.insert(at, list(self.counts[at - 1]))
            self._sets.insert(at, dict(self._sets[at - 1]))
        return at

    def _take(self, chosen: Chosen, begin: float, until: float) -> None:
        first = self._cut(max(begin, self.times[0]))
        for step in range(first, self._cut(until)):
            for machine, gpus in chosen:
                self.counts[step][machine] -= gpus
            self._sets[step].clear()

    def reserve(self, chosen: Chosen, begin: float, end: float) -> None:
        self._steps()
        self.reserved.append((begin, end, chosen))
        self._take(chosen, begin, end)

    def _with(self, step: int, gpus: int) -> int:
        known = self._sets[step]
        found = known.get(gpus)
        if found is None:
            found = 0
            for machine, count in enumerate(self.counts[step]):
                if count >= gpus:
                    found |= 1 << machine
            known[gpus] = found
        return found

    def moments(self, wanted: Sequence[tuple[Shape, int]], span: float) -> Iterator[float]:
        """Beginnings of steps at which one of these has as many nodes with as many GPUs for so long."""
        self._steps()
        step = 0
        while step < len(self.times):
            start = self.times[step]
            if any(self._for(step, shape, where, start + span) for shape, where in wanted):
                yield start
                step = bisect_left(self.times, start)
            step += 1

    def _for(self, step: int, shape: Shape, where: int, until: float) -> bool:
        found = where
        while step < len(self.times) and self.times[step] < until:
            found &= self._with(step, shape.gpus)
            if found.bit_count() < shape.nodes:
                return False
            step += 1
        return True

    def room(self, start: float, span: float) -> RoomLater:
        """What is free for so long."""
        self._steps()
        first = bisect_right(self.times, start) - 1
        counts = self.counts[first]
        for step in range(first + 1, len(self.times)):
            if self.times[step] >= start + span:
                break
            counts = list(map(min, counts, self.counts[step]))
        return RoomLater([max(0, count) for count in counts])

    def untouched(self, start: float, span: float) -> int:
        """Nodes of which nothing is reserved in that time."""
        found = -1
        for begin, until, chosen in self.reserved:
            if begin < start + span and until > start:
                for machine, _ in chosen:
                    found &= ~(1 << machine)
        return found
