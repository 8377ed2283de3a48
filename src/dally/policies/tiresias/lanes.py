"""Waiting jobs in lanes of equal demand and equal need, so that one look at a lane's head answers for all behind it;
and what those who wait were told."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from dally.core.active import ActiveJob
from dally.core.inner import place_of
from dally.core.plan import Demand, Wait
from dally.core.policy import View
from dally.core.ranking import Entry as Place
from dally.core.reasons import Reason, Token
from dally.policies.greedy import waits_for_gpus
from dally.policies.tiresias.behind import Behind
from dally.policies.tiresias.compact import Fewest
from dally.policies.tiresias.profile import Packing, Verdict

_NO_GANG: Final = Verdict(False, "")  # the profile has no say in it
Reasons = dict[str | Demand, Reason]  # of single jobs and of demands, as last said


class Lane:
    """Waiting jobs of one demand, in the policy's order, that must be consolidated or need not be."""

    __slots__ = ("_as_of", "_failed", "_then", "_value", "at", "bound", "demand", "entries", "gpus", "kind", "picky",
                 "place", "reason", "said", "told")  # fmt: skip

    def __init__(self, demand: Demand, picky: bool, first: Place) -> None:
        self.demand, self.picky = demand, picky
        self.gpus, self.kind = demand.gpus, demand.gpu_type
        self.bound = demand.where is not None and demand.bound
        self.reason = waits_for_gpus(demand).reason  # of the demand
        self.said = False  # whether everybody of the demand is known to have been told that
        self.told: Said | None = None  # what its first was last told
        self.entries: list[Place] = [first]  # waiting ranks do not change with time: an entry is a place in the order
        self._failed: Place | None = None  # from there on nobody was served
        self._as_of = -1  # by the state of that number
        self.stand(0)

    def stand(self, at: int) -> None:
        """It is the turn of this one."""
        self.at = at  # so many before it start by the plan in the making
        place = self.place = self.entries[at]
        self._value: float = place[0]  # of the place, which decide nearly always
        self._then: float = place[1]

    def before(self, other: Lane) -> bool:
        """Whether its turn is before the other's."""
        if self._value != other._value:
            return self._value < other._value
        if self._then != other._then:
            return self._then < other._then
        return self.place < other.place

    def failed(self, as_of: int) -> Place | None:
        """From which place on nobody was served, if everything is as it was."""
        return self._failed if self._as_of == as_of else None

    def fails(self, as_of: int) -> None:
        self._failed, self._as_of = self.place, as_of


Heads = list[Lane]  # in the order of their turns; no two places are equal


def enter(heads: Heads, lane: Lane, low: int = 0) -> None:
    """At its place among the heads from the `low`-th on."""
    heads.insert(_head_at(heads, lane, low), lane)


def _head_at(heads: Heads, lane: Lane, low: int) -> int:
    high = len(heads)
    while low < high:
        middle = (low + high) // 2
        if heads[middle].before(lane):
            low = middle + 1
        else:
            high = middle
    return low


class Lanes:
    """Waiting jobs by demand and need, in the policy's order: follows the view's queue (`Ranking.watch`)."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.heads: Heads = []  # every lane, at its first
        self._picky: dict[Demand, Lane] = {}  # only those that are not empty
        self._easy: dict[Demand, Lane] = {}
        self._where: dict[str, Lane] = {}
        self._least: Fewest | None = None
        self._behind: Behind | None = None
        self._said: dict[str, Said] = {}  # what `explain` last made of what it was told
        self._as_of = 0  # raised whenever another state is planned with: the layout, free GPUs and running jobs are
        self._layout, self._free, self._running = -1, -1, -1  # these

    def added(self, job: ActiveJob, place: Place) -> None:
        demand, picky = job.demand, self._must(job)
        lanes = self._picky if picky else self._easy
        lane = lanes.get(demand)
        if lane is None:
            lane = lanes[demand] = Lane(demand, picky, place)
            enter(self.heads, lane)
        else:
            entries = lane.entries
            at = place_of(entries, place)
            if at == 0:
                self._drop(lane)
            entries.insert(at, place)
            if at == 0:
                lane.stand(0)
                enter(self.heads, lane)
        self._where[job.id] = lane

    def removed(self, job: ActiveJob, place: Place) -> None:
        lane = self._where[job.id]
        del self._where[job.id]
        if job.id in self._said:
            del self._said[job.id]
        entries = lane.entries
        if entries[0] is not place:  # objects; mostly the first is served
            entries.pop(place_of(entries, place))
            return
        self._drop(lane)
        entries.pop(0)
        if entries:
            lane.stand(0)
            enter(self.heads, lane)
        else:
            del (self._picky if lane.picky else self._easy)[lane.demand]

    def lane(self, job: ActiveJob) -> Lane:
        return self._where[job.id]

    def _drop(self, lane: Lane) -> None:
        """Its first is another one from now on."""
        self.heads.pop(_head_at(self.heads, lane, 0))

    def _must(self, job: ActiveJob) -> bool:
        """Whether it must be consolidated. Who says itself where it must be is not held to anything more."""
        if job.gpus == 1 or not self.packing.verdict(job.job).picky:
            return False
        return job.demand.where is None or not job.demand.bound

    def astray(self, view: View) -> list[ActiveJob]:
        """Whose need is another one than when they came. Looks at everybody: PACKLIMIT seldom moves."""
        return [job for job in view.waiting if self._where[job.id].picky != self._must(job)]

    def least(self, view: View) -> Fewest:
        if self._least is None or self._least.layout != view.layout:
            self._least = Fewest(view.topology, view.down, view.layout)
        return self._least

    def behind(self, view: View) -> Behind:
        """Kept from the first time on that anybody waits."""
        if self._behind is None:
            self._behind = Behind(view)
        return self._behind

    def as_of(self, view: View, behind: Behind) -> int:
        """The number of the state that is planned with: another one where anything is not as it was the last time.
        Others who came in between have only taken."""
        layout, free, running = view.layout, view.free.changes, behind.changes
        if layout != self._layout or free != self._free or running != self._running or not behind.lasts:
            self._layout, self._free, self._running = layout, free, running
            self._as_of += 1
        return self._as_of

    def holds(self, lane: Lane, job: ActiveJob, most: int, machine: int, reasons: Reasons) -> bool:
        """Whether the first of a lane has been told just what it would be told now."""
        told = lane.told
        if told is None or reasons.get(job.id) is not told.wait.reason:  # objects
            return False
        if lane.gpus == 1 or lane.bound:
            return True  # the profile has no say in it
        if told.there != (most >= lane.gpus) or told.machine != machine:
            return False
        if told.edition == self.packing.edition:
            return True
        if told.verdict is not self.packing.verdict(job.job):  # objects
            return False
        told.edition = self.packing.edition
        return True

    def explain(self, job: ActiveJob, most: int, machine: int) -> Said:
        """The profile's decision and its evidence, and what the job waits for; `most`: free GPUs of one type."""
        packing = self.packing
        verdict = packing.verdict(job.job) if job.gpus > 1 else _NO_GANG
        there = most >= job.gpus
        said = self._said.get(job.id)
        if said is None or said.verdict is not verdict or said.there != there or said.machine != machine:  # objects
            wait = _wait(job, verdict.picky, verdict.because, there, machine)
            said = Said(packing.edition, verdict, there, machine, wait)
            if job.id in self._where:  # else it has just lost its GPUs: it is not in a lane yet
                self._said[job.id] = said
        return said


class Said:
    """What a job was told, and what that was made of."""

    __slots__ = ("edition", "machine", "there", "verdict", "wait")

    def __init__(self, edition: int, verdict: Verdict, there: bool, machine: int, wait: Wait) -> None:
        self.edition = edition  # of the verdicts
        self.verdict, self.there, self.machine, self.wait = verdict, there, machine, wait


def _wait(job: ActiveJob, picky: bool, because: str, there: bool, machine: int) -> Wait:
    need = job.gpus
    if job.demand.where is not None and job.demand.bound:
        return Wait(job.id, waits_for_gpus(job.demand).reason)
    if need == 1 or not picky:
        return Wait(job.id, _waits_for_any(need, "" if need == 1 else because))
    return Wait(job.id, _waits_for_machines(need, because, there, machine))


@lru_cache(maxsize=4096)
def _waits_for_any(need: int, because: str) -> Reason:
    said = f"; {because}, so it takes any GPUs" if because else ""
    return Reason(Token.WAITING_FOR_GPUS, f"fewer than {need} GPUs are free for it{said}")


@lru_cache(maxsize=4096)
def _waits_for_machines(need: int, because: str, there: bool, machine: int) -> Reason:
    where = "one machine" if need <= machine else f"{-(-need // machine)} machines"
    token = Token.WAITING_FOR_LOCALITY if there else Token.WAITING_FOR_GPUS
    return Reason(token, f"{because}: it waits for {need} free GPUs on {where}")
