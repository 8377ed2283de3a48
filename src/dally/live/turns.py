"""Gangs that hold the same GPUs take turns: the engine suspends those whose turn it is not (Gandiva's time slicing).

Whose turn follows whose is in the scheduler's groups; here is only the clock. A turn of weight w lasts w quanta. After
a restart everybody is told anew whether to run: saying it twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dally.core.placement import Placement
from dally.core.sharing import Group, Groups
from dally.live.attempts import Key
from dally.live.engine import Engine


class Turns:
    """Looks at the groups whenever something has changed, and when a turn ends."""

    def __init__(self, engine: Engine, groups: Callable[[], Groups]) -> None:
        self._engine, self._groups = engine, groups
        self._served: dict[Placement, tuple[list[str], float]] = {}  # the turn that is served, and until when
        self._told: dict[Key, bool] = {}  # whether an attempt was last told to run, or to halt

    def look(self, now: float, begun: Mapping[str, Key]) -> float | None:
        """Tell everybody who has begun whether it is their turn; when to look again, if anybody takes turns."""
        soonest: float | None = None
        served: dict[Placement, tuple[list[str], float]] = {}
        for group in self._groups():
            halted: set[str] = set()
            if group.sliced:
                turn, until = served[group.placement] = self._turn(now, group, begun)
                soonest = until if soonest is None else min(soonest, until)
                halted = {job for job in group.members if job not in turn}
            for job in group.members:
                if job in begun:
                    self._tell(begun[job], runs=job not in halted)
        self._served = served
        self._told = {key: runs for key, runs in self._told.items() if begun.get(key.job) == key}
        return soonest

    def _turn(self, now: float, group: Group, begun: Mapping[str, Key]) -> tuple[list[str], float]:
        """The one that is served, for as long as it lasts; then the next one in which anybody has begun."""
        before = self._served.get(group.placement)
        at = -1
        if before is not None:
            at = next((i for i, turn in enumerate(group.turns) if set(turn) & set(before[0])), -1)
            if at >= 0 and now < before[1]:
                return list(group.turns[at]), before[1]
        for step in range(1, len(group.turns) + 1):
            turn = group.turns[(at + step) % len(group.turns)]
            if any(job in begun for job in turn):
                return list(turn), now + group.quantum * group.weight(turn)
        return list(group.turns[0]), now + group.quantum

    def _tell(self, key: Key, *, runs: bool) -> None:
        if self._told.get(key) is not runs:
            self._told[key] = runs
            (self._engine.resume if runs else self._engine.suspend)(*key)
