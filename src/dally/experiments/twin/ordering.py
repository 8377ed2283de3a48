"""In which order the recorded scheduler looked at its queue: read off the record, one start after the other.

Where a job started while another waited that asked for no more nodes, GPUs or time in the same partition, the other
would have fitted as well, whatever was reserved for whom: the one that started was before it in the order. Many such
pairs tell orders apart, and nothing is simulated, so that one decision that differs does not make the next ones differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np

from dally.core.job import Job
from dally.core.records import dataclass
from dally.experiments.twin.history import History, Recorded
from dally.policies.slurm.accounts import NO_ACCOUNTS
from dally.policies.slurm.priority import fair_shares
from dally.policies.slurm.sharetree import leaf, tree_shares
from dally.simulator.pool import Report

DAY = 86400.0
MOST_STARTS = 1500
MOST_FACTORS = 150_000  # fair-share factors that are calculated for one half-life
PER_START = 25  # others a start is compared with
SETTLED = 60.0  # seconds after which a scheduler must have seen a job
ENOUGH = 30  # pairs below which nothing is said
HALF_LIVES = (0.0, 0.25 * DAY, 0.5 * DAY, DAY, 2 * DAY, 3.5 * DAY, 7 * DAY, 14 * DAY, 30 * DAY)
FAIR = 10_000.0  # weight of fair-share, against which age is weighed
MAX_AGES = (7 * DAY, 3 * DAY, DAY, 0.5 * DAY)  # PriorityMaxAge: the first where nobody says otherwise
MOST_AGE = 1000 * FAIR
FAR = 0.1  # of the pairs: an order that is so much worse need not be tried
NEARLY_ALL, CLEAR = 0.995, 0.005  # of the pairs
FIRST_COME = ""  # as options: the order of submission


@dataclass(frozen=True, slots=True)
class Order:
    """Options of `slurm`, and in what part of the pairs they put the job first that was."""

    options: str
    agrees: float
    kind: str = ""  # orders of one kind differ in numbers alone


@dataclass(frozen=True, slots=True)
class Pair:
    moment: int  # number of the start
    first: Recorded  # it started
    other: Recorded  # it waited


def orders(history: History, until: float = float("inf"), report: Report | None = None) -> tuple[list[Order], int]:
    """The likeliest first; and how many pairs that stands on. `until`: of starts up to then."""
    times, pairs = _pairs(history, until)
    if len(pairs) < ENOUGH:
        return [Order(FIRST_COME, 0.0)], len(pairs)
    # above 0 where the one that started had waited longer: it decides between equals, too
    ages = [np.array([times[pair.moment] - pair.first.job.submit_time for pair in pairs]),
            np.array([times[pair.moment] - pair.other.job.submit_time for pair in pairs])]  # fmt: skip
    age = ages[0] - ages[1]
    size = np.array([float(pair.first.job.gpus - pair.other.job.gpus) for pair in pairs])
    own = np.array([float(pair.first.job.priority - pair.other.job.priority) for pair in pairs])
    found = [Order(FIRST_COME, _agreement(np.zeros(len(pairs)), age))]
    if size.any():
        large = "priority=multifactor,weight_jobsize=10000"
        found += [Order(large, _agreement(size, age), "large"),
                  Order(f"{large},favor_small=true", _agreement(-size, age), "small")]  # fmt: skip
    if own.any():
        found.append(Order("own_priority=set", _agreement(own, age), "own"))
    found += _fair(history, times, pairs, ages, report)
    return sorted(found, key=lambda order: -order.agrees), len(pairs)


def likeliest(found: list[Order], most: int) -> list[Order]:
    """The best of each kind, as far as they are not far behind; then the next best of the best kind. One that puts
    nearly all pairs right, and no other does, is alone."""
    if found[0].agrees >= NEARLY_ALL and all(order.agrees < found[0].agrees - CLEAR for order in found[1:]):
        return found[:1]
    heads = list({order.kind: order for order in reversed(found)}.values())[::-1]
    heads = sorted(heads, key=lambda order: -order.agrees)
    near = [order for order in heads if order.agrees >= found[0].agrees - FAR][: most - 1]
    more = [order for order in found if order.kind == found[0].kind and order not in near]
    return (near + more)[:most]


def _pairs(history: History, until: float) -> tuple[list[float], list[Pair]]:
    """Moments of starts, and pairs of who started and who could have as well."""
    alike: dict[object, list[Recorded]] = {}
    for each in history.ran.values():
        job = each.job
        if job.after is None and job.throttle is None and not each.again:
            alike.setdefault((job.partition or job.tenant, job.among, job.gpu_type, job.reservation), []).append(each)
    chance = random.Random(0)
    starts = [(each, others) for others in alike.values() for each in others
              if history.begin <= each.start <= until and each.start > each.job.submit_time]  # fmt: skip
    users = len({each.job.user for each in history.ran.values()}) + 1
    most = max(50, min(MOST_STARTS, MOST_FACTORS // users))
    chosen = chance.sample(starts, most) if len(starts) > most else starts
    chosen.sort(key=lambda pair: pair[0].start)
    queues = {id(others): Queue(others) for others in alike.values()}
    times: list[float] = []
    pairs: list[Pair] = []
    for each, others in chosen:
        now = each.start
        waiting = [other for other in queues[id(others)].at(now) if _asks_no_more(other.job, each.job)]
        if waiting:
            if len(waiting) > PER_START:
                waiting = chance.sample(waiting, PER_START)
            pairs += [Pair(len(times), each, other) for other in waiting]
            times.append(now)
    return times, pairs


class Queue:
    """Who waited, at one moment after the other."""

    def __init__(self, jobs: list[Recorded]) -> None:
        self._coming = sorted(enumerate(jobs), key=lambda pair: -pair[1].job.submit_time)
        self._waiting: list[tuple[int, Recorded]] = []

    def at(self, now: float) -> list[Recorded]:
        """Those a scheduler must have seen, in the order of the record."""
        while self._coming and self._coming[-1][1].job.submit_time <= now - SETTLED:
            self._waiting.append(self._coming.pop())
        self._waiting = [pair for pair in self._waiting if pair[1].start > now]
        return [each for _, each in sorted(self._waiting, key=lambda pair: pair[0])]


def _asks_no_more(other: Job, job: Job) -> bool:
    nodes = (other.nodes or 1, job.nodes or 1)
    return (nodes[0] <= nodes[1] and other.gpus / nodes[0] <= job.gpus / nodes[1] and other.exclusive == job.exclusive
            and (other.declared_duration or np.inf) <= (job.declared_duration or np.inf))  # fmt: skip


def _agreement(ahead: np.ndarray, age: np.ndarray) -> float:
    return float((np.where(ahead == 0.0, age, ahead) >= 0).mean())


def _fair(history: History, times: list[float], pairs: list[Pair], ages: list[np.ndarray],
          report: Report | None) -> list[Order]:  # fmt: skip
    """Fair-share among users, or accounts and their users, ranked or by the classic formula, with several
    half-lives: each with the weight of age that puts most pairs right."""
    kinds: list[tuple[str, Callable[[Job], str], Callable[[Mapping[str, float]], dict[str, float]]]] = [
        ("", _user, lambda used: fair_shares(used, {}, True)),
        (",fair_tree=false", _user, lambda used: fair_shares(used, {}, False)),
    ]
    if len({each.job.tenant for each in history.ran.values() if each.job.tenant != each.job.partition}) > 1:
        kinds += [(",associations=accounts", _account, lambda used: tree_shares(used, NO_ACCOUNTS, True)),
                  (",associations=accounts,fair_tree=false", _account,
                   lambda used: tree_shares(used, NO_ACCOUNTS, False)),
                  (",associations=parents", _parent, lambda used: fair_shares(used, {}, True)),
                  (",associations=parents,fair_tree=false", _parent,
                   lambda used: fair_shares(used, {}, False))]  # fmt: skip
    if len({each.job.partition for each in history.ran.values()}) > 1:
        kinds.append((",associations=partitions", _in_partition, lambda used: fair_shares(used, {}, True)))
    found = []
    for kind, (words, whose, factors) in enumerate(kinds):
        first, other = [whose(pair.first.job) for pair in pairs], [whose(pair.other.job) for pair in pairs]
        uses = Uses(history, times, whose)
        for half_life in HALF_LIVES:
            shares = [factors(used) for used in uses.at(half_life)]
            if report is not None:
                report("the order of the queue, read off the record", history.until, kind * len(pairs) // len(kinds),
                       len(pairs))  # fmt: skip
            ahead = FAIR * np.array([shares[pair.moment].get(one, 1.0) - shares[pair.moment].get(two, 1.0)
                                     for pair, one, two in zip(pairs, first, other, strict=True)])  # fmt: skip
            best: tuple[float, float, float] | None = None  # agreement, weight of age, its cap
            for cap in MAX_AGES:
                older = (np.minimum(ages[0], cap) - np.minimum(ages[1], cap)) / cap
                agrees, weight = _best_weight(ahead, older)
                if best is None or agrees > best[0]:
                    best = agrees, weight, cap
            assert best is not None
            agrees, weight, cap = best
            if weight > MOST_AGE:
                continue  # it is the order of submission
            aged = f",weight_age={weight:.0f}" if weight >= 1 else ""
            aged += f",max_age={cap:.0f}" if aged and cap != MAX_AGES[0] else ""
            life = f",decay_half_life={half_life:.0f}"
            found.append(Order(f"priority=multifactor,weight_fairshare={FAIR:.0f}{words}{aged}{life}", agrees,
                               f"fair{words}"))  # fmt: skip
    return found


def _user(job: Job) -> str:
    return job.user or "nobody"


def _parent(job: Job) -> str:
    return job.tenant or "root"


def _in_partition(job: Job) -> str:
    return f"{_user(job)} in {job.partition}"


def _account(job: Job) -> str:
    return leaf(job.tenant or "root", job.user or "nobody")


class Uses:
    """What everybody had used at each of some moments, in order. Who comes, starts and ends between two of them is
    counted by arrays: in a long record there are many more of these than moments."""

    def __init__(self, history: History, times: list[float], whose: Callable[[Job], str]) -> None:
        ran = list(history.ran.values())
        names = [whose(each.job) for each in ran]
        self.names = list(dict.fromkeys(names))
        number = {name: index for index, name in enumerate(self.names)}
        self.times = np.array(times)
        came = np.full(len(self.names), np.inf)
        who = np.array([number[name] for name in names])
        np.minimum.at(came, who, np.array([each.job.submit_time for each in ran]))
        self.there = came[None, :] <= self.times[:, None]
        gpus = np.array([float(each.job.gpus) for each in ran])
        steps = np.concatenate([np.array([each.start for each in ran]), np.array([each.end for each in ran])])
        turn = np.searchsorted(self.times, steps)  # the first moment at or after each step
        kept = turn < len(times)
        self._steps, self._turn = steps[kept], turn[kept]
        self._who, self._gpus = np.concatenate([who, who])[kept], np.concatenate([gpus, -gpus])[kept]
        shape = (len(times), len(self.names))
        self._rates = np.zeros(shape)  # GPUs that are held from each moment on
        np.add.at(self._rates, (self._turn, self._who), self._gpus)
        self._rates = np.cumsum(self._rates, axis=0)

    def at(self, half_life: float) -> list[dict[str, float]]:
        """GPU-seconds by name, decayed; who had not come yet is left out. The same as `decayed`, step by step."""
        added = np.zeros(self._rates.shape)
        np.add.at(added, (self._turn, self._who),
                  self._gpus * _held_for(self.times[self._turn] - self._steps, half_life))  # fmt: skip
        spans = np.diff(self.times, prepend=self.times[:1])
        whole = _held_for(spans, half_life)
        kept = 0.5 ** (spans / half_life) if half_life else np.ones(len(spans))
        used, found = np.zeros(len(self.names)), []
        for moment in range(len(spans)):
            rate = self._rates[moment - 1] if moment else 0.0
            used = used * kept[moment] + rate * whole[moment] + added[moment]
            found.append({self.names[index]: float(used[index]) for index in np.flatnonzero(self.there[moment])})
        return found


def _held_for(spans: np.ndarray, half_life: float) -> np.ndarray:
    """What one GPU, held up to now, counts."""
    if not half_life:
        return spans
    return np.asarray((1.0 - 0.5 ** (spans / half_life)) * half_life / np.log(2.0))


def _best_weight(ahead: np.ndarray, age: np.ndarray) -> tuple[float, float]:
    """The weight w ≥ 0 with which `ahead + w × age` is above 0 for most pairs, and for how many. Every pair changes
    sides at one weight at most; between two such weights all are the same, and the middle of the best stretch is
    taken."""
    always = int(((ahead > 0) & (age >= 0)).sum() + ((ahead == 0) & (age >= 0)).sum())
    falls = (ahead > 0) & (age < 0)  # right up to a weight
    rises = (ahead < 0) & (age > 0)  # right from a weight on
    turns = np.concatenate([ahead[falls] / -age[falls], -ahead[rises] / age[rises]])
    steps = np.concatenate([np.full(int(falls.sum()), -1), np.full(int(rises.sum()), 1)])
    order = np.argsort(turns, kind="stable")
    counts = always + int(falls.sum()) + np.concatenate([[0], np.cumsum(steps[order])])
    edges = np.concatenate([[0.0], turns[order]])
    best = int(np.argmax(counts))
    low, high = float(edges[best]), float(edges[best + 1]) if best + 1 < len(edges) else float(edges[best]) * 2.0
    return float(counts[best]) / len(ahead), (low + high) / 2.0 if low else 0.0
