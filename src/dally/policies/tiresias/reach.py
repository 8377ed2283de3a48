"""The GPUs of everybody who runs behind a place in the order: how many of each type, and on which machines."""

from __future__ import annotations

from typing import Final

from dally.core.active import ActiveJob
from dally.core.free import Pool
from dally.core.placement import Slice, gpus_in
from dally.core.ranking import Entry as Place

_PENDING: Final = 256  # changes of who is behind that are kept for somebody who asks on which machines they were


class Held:
    """A running job's GPUs, and its place in the order. GPU types are numbers: see `Behind.pools`."""

    __slots__ = ("evicted", "gpus", "job", "kind", "place", "slices", "then", "value")

    def __init__(self, job: ActiveJob, place: Place, kind: int) -> None:
        assert job.placement is not None
        self.job, self.place, self.kind = job, place, kind
        self.value: float = place[0]  # of its place, which decide nearly always
        self.then: float = place[1]
        self.slices: tuple[Slice, ...] = job.placement.slices
        self.gpus = job.placement.gpus
        self.evicted = False  # by the plan in the making

    def behind(self, place: Place, value: float, then: float) -> bool:
        """Whether it stands behind the place that begins with these values."""
        if self.value != value:
            return self.value > value
        if self.then != then:
            return self.then > then
        return self.place > place


class Reach:
    """GPUs of the jobs behind a place. The machines are brought up to date when somebody asks for them: most are turned
    away by the totals."""

    __slots__ = ("_at_least", "_comes", "_known", "_pending", "_then", "_value", "at", "place", "totals")

    def __init__(self, place: Place, at: int, totals: list[int]) -> None:
        self.stand(place, at)
        self.totals = totals  # by GPU type
        self._known: list[int] | None = None  # GPUs behind by machine, before what is pending
        self._at_least: list[int] = []  # bit m of d: machine m has d or more
        self._pending: list[Held] = []
        self._comes: list[bool] = []  # whether they come, or go

    def stand(self, place: Place, at: int) -> None:
        self.place = place
        self._value: float = place[0]
        self._then: float = place[1]
        self.at = at  # jobs that run and are not behind it

    def before(self, held: Held) -> bool:
        """Whether the job is behind its place."""
        return held.behind(self.place, self._value, self._then)

    def copy(self) -> Reach:
        other = Reach(self.place, self.at, self.totals.copy())
        if self._known is not None:
            other._known, other._at_least = self._known.copy(), self._at_least.copy()
            other._pending, other._comes = self._pending.copy(), self._comes.copy()
        return other

    def add(self, held: Held) -> None:
        self.totals[held.kind] += held.gpus
        if self._known is not None:
            self._later(held, True)

    def remove(self, held: Held) -> None:
        self.totals[held.kind] -= held.gpus
        if self._known is not None:
            self._later(held, False)

    def _later(self, held: Held, comes: bool) -> None:
        pending = self._pending
        if pending and pending[-1] is held:  # objects; comes and goes: its GPUs were tried
            pending.pop()
            self._comes.pop()
            return
        pending.append(held)
        self._comes.append(comes)
        if len(pending) > _PENDING:  # nobody asks: to count them anew is no more work than to follow them
            self._known = None
            self._pending, self._comes = [], []

    def settle(self, everybody: list[Held] | None, machines: int, largest: int) -> bool:
        """Bring the machines up to date. False where all behind must be known for that, and are not given."""
        if self._known is None:
            if everybody is None:
                return False
            self._known = [0] * machines
            self._at_least = [0] * (largest + 1)
            self._at_least[0] = (1 << machines) - 1
            for held in everybody:
                self._count(held, True)
        if self._pending:
            for at, held in enumerate(self._pending):
                self._count(held, self._comes[at])
            self._pending, self._comes = [], []
        return True

    def _count(self, held: Held, comes: bool) -> None:
        known, at_least = self._known, self._at_least
        assert known is not None
        for machine, mask in held.slices:
            before, gpus, bit = known[machine], gpus_in(mask), 1 << machine
            if comes:
                known[machine] = before + gpus
                for count in range(before + 1, before + gpus + 1):
                    at_least[count] |= bit
            else:
                known[machine] = before - gpus
                for count in range(before - gpus + 1, before + 1):
                    at_least[count] ^= bit

    def one_machine(self, pool: Pool, level: int, up: int, gpus: int) -> int | None:
        """Of the machines `up` where so many GPUs are free or behind, the first of those with most of them free."""
        at_least = self._at_least
        for idle in range(gpus, max(0, gpus - len(at_least) + 1) - 1, -1):
            found = at_least[gpus - idle] & up
            if found:
                found &= pool.domains_with(level, idle)
                if found:  # nobody here has more free: it would have been found before
                    return (found & -found).bit_length() - 1
        return None

    def machines(self, pool: Pool, level: int, up: int, gpus: int, most: int) -> set[int] | None:
        """As many machines (`most`) with the most GPUs free or behind, and of equal ones with most free, the first
        first; None where they have fewer than asked for."""
        at_least = self._at_least
        chosen: set[int] = set()
        left, before = gpus, 0  # machines with more than `total`
        for total in range(len(at_least) - 1, 0, -1):
            if (most - len(chosen)) * total < left:
                return None
            having = 0
            for idle in range(total, -1, -1):
                having |= at_least[total - idle] & pool.domains_with(level, idle)
            having &= up & ~before
            before |= having
            for idle in range(total, -1, -1):
                some = having & pool.domains_with(level, idle) if having else 0
                having &= ~some
                while some:
                    low = some & -some
                    some ^= low
                    chosen.add(low.bit_length() - 1)
                    left -= total
                    if len(chosen) == most:
                        return chosen if left <= 0 else None
        return None
