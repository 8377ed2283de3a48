"""How long jobs may run, drawn by chance from what is known: their declarations, and the jobs that have ended.

Nothing is invented. A job that declares its duration is drawn around it, with the spread that ended jobs had around
theirs; one that does not, from the run times of ended jobs of its kind; where neither is there, nobody knows. All draws
are of the whole work of a job, given that it has done so much of it already and has not ended.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

from dally.core.active import ActiveJob
from dally.core.estimates import Declared, Estimates
from dally.core.states import State

SPREAD = 0.7  # sigma of the log-normal factor around a declaration where too few jobs have ended; an assumption
ENOUGH = 5  # ended jobs whose own spread is taken in place of it
FOR_A_TREND = 20  # ended jobs that show how run times go with declarations
ALIKE = 3  # ended jobs of the same user and name from which another one of them is drawn
LONGEST = 20.0  # a job that outlasts all that is known: as long again in the median, at most so many times as long
NOBODY_KNOWS = "nobody knows how long jobs run here: none has ended yet, and none declares a duration"

_NORMAL = NormalDist()


class Past(NamedTuple):
    """A job that has ended by itself."""

    user: str | None
    name: str | None
    gpus: int
    declared: float | None  # seconds it said it would run
    ran: float  # seconds it did


class History(NamedTuple):
    """What has ended, and what the jobs that have not are called."""

    past: Sequence[Past] = ()
    names: Mapping[str, str] = {}  # of jobs by id

    def plain(self) -> dict[str, Any]:
        """As a service sends it along with a snapshot."""
        return {"history": [list(each) for each in self.past], "names": dict(self.names)}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> History:
        """What a snapshot brings along (`history`, `names`), else what it remembers itself of jobs that finished: their
        work, not whose they were."""
        if "history" in state:
            return cls([Past(*each) for each in state["history"]], state.get("names", {}))
        finished = [plain for plain in state["jobs"] if plain["state"] == State.FINISHED.value]
        return cls([Past(None, None, plain["job"]["gpus"], None, plain["work_done"]) for plain in finished
                    if plain["work_done"] > 0])  # fmt: skip


class Durations(Protocol):
    """How much work a job takes in all, in one possible future."""

    def work(self, job: ActiveJob, done: float, future: int) -> float | None:
        """More than it has done already; None where nobody knows. The same in the same future, whoever asks."""
        ...

    @property
    def basis(self) -> str:
        """What this stands on, in words."""
        ...


class Exact:
    """Everybody knows: for tests, and for a simulated world that is asked about itself."""

    basis = "durations are known exactly"

    def __init__(self, work: Mapping[str, float]) -> None:
        self._work = work

    def work(self, job: ActiveJob, done: float, future: int) -> float | None:
        return self._work.get(job.id)


class _Trend(NamedTuple):
    """Run time as a power of the declaration. Declarations that are off go together with their error: the longest ones
    are mostly too long, and to take them at their word, times an error drawn from all, makes queues too long."""

    scale: float = 1.0
    power: float = 1.0

    def expected(self, declared: float) -> float:
        return self.scale * declared**self.power if self.power != 1.0 else self.scale * declared


def _trend(past: Sequence[Past]) -> _Trend:
    """Least squares over the logarithms of jobs that ended, beside those of the same user: how far a user is off on
    the whole is in their ratios. Where few have ended, declarations as they are."""
    pairs: dict[str | None, list[tuple[float, float]]] = {}
    for each in past:
        if each.declared is not None and each.declared > 0 and each.ran > 0:
            pairs.setdefault(each.user, []).append((math.log(each.declared), math.log(each.ran)))
    count = sum(map(len, pairs.values()))
    if count < FOR_A_TREND:
        return _Trend()
    spread = together = 0.0
    for own in pairs.values():
        x, y = (sum(values) / len(own) for values in zip(*own, strict=True))
        spread += sum((declared - x) ** 2 for declared, _ in own)
        together += sum((declared - x) * (ran - y) for declared, ran in own)
    if spread <= 1e-9:
        return _Trend()
    power = min(1.0, max(0.0, together / spread))
    offset = sum(ran - power * declared for own in pairs.values() for declared, ran in own) / count
    return _Trend(math.exp(offset), power)


class Drawn:
    """From declarations and from jobs that have ended. A draw depends on the seed, the future and the job alone: the
    same job takes as long under another policy, and on a snapshot that was changed for a what-if."""

    def __init__(self, history: History, estimates: Estimates | None = None, seed: int = 0,
                 others: Iterable[float] = ()) -> None:  # fmt: skip
        """`others`: what jobs in the queue declare; stands in for jobs that have ended where none has."""
        self._estimates, self._seed, self._names = estimates or Declared(), seed, history.names
        self._declared = sorted(others)
        self._used: dict[str, None] = {}  # what draws stood on so far
        self._all = sorted(past.ran for past in history.past if past.ran > 0)
        self._by_user: dict[str, list[float]] = {}
        self._by_name: dict[tuple[str, str], list[float]] = {}
        self._trend = _trend(history.past)
        self._ratios: list[float] = []
        self._ratios_by_user: dict[str, list[float]] = {}
        for past in history.past:
            self._note(past)
        for found in (self._ratios, *self._by_user.values(), *self._by_name.values(), *self._ratios_by_user.values()):
            found.sort()

    def _note(self, past: Past) -> None:
        if not past.ran > 0:
            return
        if past.user is not None:
            self._by_user.setdefault(past.user, []).append(past.ran)
            if past.name:
                self._by_name.setdefault((past.user, past.name), []).append(past.ran)
        if past.declared is not None and past.declared > 0:
            ratio = past.ran / self._trend.expected(past.declared)
            self._ratios.append(ratio)
            if past.user is not None:
                self._ratios_by_user.setdefault(past.user, []).append(ratio)

    @property
    def basis(self) -> str:
        return "; ".join(self._used) or NOBODY_KNOWS

    def _stands_on(self, what: str) -> None:
        if what not in self._used:
            self._used[what] = None

    def work(self, job: ActiveJob, done: float, future: int) -> float | None:
        chance = random.Random(f"{self._seed}/{future}/{job.id}").random()
        said = self._estimates.work(job.job)
        if said is not None and said > 0:
            ratios = self._ratios_by_user.get(job.job.user or "", [])
            ratios = ratios if len(ratios) >= ENOUGH else self._ratios
            if len(ratios) >= ENOUGH:
                self._stands_on(f"declared durations, off as those of {len(self._ratios):,} ended jobs were")
                expected = self._trend.expected(said)
                return expected * _one_of(ratios, done / expected, chance)
            self._stands_on(f"declared durations, taken to be off by a log-normal factor (σ = {SPREAD:g})")
            return said * _log_normal(done / said, chance)
        found = self._alike(job)
        if not found:
            return None
        if self._all:
            count = f"the {len(self._all):,} jobs" if len(self._all) > 1 else "the one job"
            self._stands_on(f"run times of {count} that ended, for jobs that declare none")
        else:
            self._stands_on("what others in the queue declare, for jobs that declare nothing: none has ended yet")
        if len(found) >= ENOUGH:
            return _one_of(found, done, chance)
        middle = math.exp(sum(map(math.log, found)) / len(found))
        return middle * _log_normal(done / middle, chance)

    def _alike(self, job: ActiveJob) -> list[float]:
        """Run times of jobs like this one, from the most alike to any there are."""
        user, name = job.job.user or "", self._names.get(job.id, "")
        for found, enough in ((self._by_name.get((user, name), []), ALIKE), (self._by_user.get(user, []), ENOUGH)):
            if len(found) >= enough:
                return found
        return self._all or self._declared


def declarations(state: Mapping[str, Any]) -> list[float]:
    """What the jobs of a snapshot that have not ended declare."""
    said = [plain["job"].get("work") or plain["job"].get("declared_duration") for plain in state["jobs"]]
    return [value for value in said if value is not None and value > 0]


def _one_of(ordered: Sequence[float], above: float, chance: float) -> float:
    """One of the values above, all alike; beyond the last of them nobody has been."""
    first = bisect_right(ordered, above)
    if first == len(ordered):
        return _outlasts(above, chance)
    return ordered[first + int(chance * (len(ordered) - first))]


def _log_normal(above: float, chance: float) -> float:
    """A factor of median 1, given that it is above."""
    least = _NORMAL.cdf(math.log(above) / SPREAD) if above > 0 else 0.0
    if least > 0.999:
        return _outlasts(above, chance)
    return max(math.exp(SPREAD * _NORMAL.inv_cdf(min(max(least + chance * (1.0 - least), 1e-9), 1.0 - 1e-9))),
               above * (1.0 + 1e-9))  # fmt: skip


def _outlasts(above: float, chance: float) -> float:
    """P(T > t | T > a) = a / t: in the median it takes as long again as it has taken."""
    return above * min(LONGEST, 1.0 / max(1.0 - chance, 1e-9)) * (1.0 + 1e-9)
