"""The gate in front of the policy: who of which queue is shown to it, by weights and limits (docs/queues.md).

What a queue has been *given* are the GPUs its jobs ask for that the policy was shown and that have not ended. A queue
is shown more while it has been given less than its share: the weighted max-min share of the GPUs that are up, over what
all queues ask for, so that what one does not use is lent to the others. Inside a queue the policy's own order decides
who is shown next; between what is shown the policy decides as ever. Nothing is taken back: what was lent returns when
jobs end. Limits are never exceeded; a share is, by less than one job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.queues import DEFAULT, Queue, by_name
from dally.core.ranking import Key, Rank, Ranking
from dally.core.reasons import Reason, Token

_ROUNDING: Final = 1e-9
_NAMED: Final = 4  # users whose GPUs a sentence names


class _Standing:
    """What one queue has been given, by user, and who is kept back, in the policy's order: of everybody, or of each
    user alone where users have limits."""

    __slots__ = ("asked", "given", "kept", "queue", "users")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.given = 0
        self.asked = 0  # GPUs of those kept back
        self.users: dict[str, tuple[int, int]] = {}  # GPUs and jobs given
        self.kept: dict[str, Ranking] = {}

    def lane(self, job: Job) -> str:
        limited = self.queue.max_gpus_per_user is not None or self.queue.max_jobs_per_user is not None
        return job.user or "" if limited else ""

    def give(self, job: ActiveJob, sign: int) -> None:
        self.given += sign * job.gpus
        user = job.job.user or ""
        gpus, jobs = self.users.get(user, (0, 0))
        if jobs + sign:
            self.users[user] = gpus + sign * job.gpus, jobs + sign
        else:
            del self.users[user]

    def within_limits(self, job: ActiveJob) -> bool:
        queue = self.queue
        if queue.max_gpus is not None and self.given + job.gpus > queue.max_gpus:
            return False
        gpus, jobs = self.users.get(job.job.user or "", (0, 0))
        if queue.max_gpus_per_user is not None and gpus + job.gpus > queue.max_gpus_per_user:
            return False
        return queue.max_jobs_per_user is None or jobs < queue.max_jobs_per_user

    def first(self, now: float) -> ActiveJob | None:
        """Who is next. Where a user's first must wait for a limit, nobody else of that user passes it; where the
        queue's own limit is in the way, nobody does."""
        heads = [min(_heads(ranking, now), key=_key) for ranking in self.kept.values()]
        free = [head for head in heads if self._user_may(head[1])]
        if not free:
            return None
        job = min(free, key=_key)[1]
        return job if self.within_limits(job) else None

    def _user_may(self, job: ActiveJob) -> bool:
        """Whether the user's limits, if not the queue's, let the job in."""
        gpus, jobs = self.users.get(job.job.user or "", (0, 0))
        queue = self.queue
        return (queue.max_gpus_per_user is None or gpus + job.gpus <= queue.max_gpus_per_user) and \
            (queue.max_jobs_per_user is None or jobs < queue.max_jobs_per_user)  # fmt: skip

    def heads(self, now: float) -> list[ActiveJob]:
        """The first of every demand that limits let in, in order."""
        found = [head for ranking in self.kept.values() for head in _heads(ranking, now) if self.within_limits(head[1])]
        return [job for _, job in sorted(found, key=_key)]


class Gate:
    """Keeps the books of queues, and says who is let in next. The cost of an event does not depend on how many wait."""

    def __init__(self, queues: tuple[Queue, ...], view: View) -> None:
        self.queues, self._view = queues, view
        self._standings = {name: _Standing(queue) for name, queue in by_name(queues).items()}
        self.newcomers: list[ActiveJob] = []  # at the gate since the last time it was open
        self._inside: set[str] = set()  # shown to the policy, and not ended
        self._kept: set[str] = set()
        self._up, self._layout = 0, -1

    def __contains__(self, job_id: str) -> bool:
        """Whether the job has been let in."""
        return job_id in self._inside

    def __len__(self) -> int:
        """How many are kept back."""
        return len(self._kept)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def of(self, job: Job) -> _Standing:
        return self._standings.get(job.tenant or DEFAULT) or self._standings[DEFAULT]

    # --- who comes and goes -----------------------------------------------------------------------------------

    def too_large(self, job: Job) -> str | None:
        """Why the limits of its queue can never let it in; None where they can."""
        queue = self.of(job).queue
        for most, whom in ((queue.max_gpus, "may use"), (queue.max_gpus_per_user, "lets a user have")):
            if most is not None and job.gpus > most:
                return f"asks for {job.gpus} GPUs; queue {queue.name} {whom} {most} at most"
        if queue.max_jobs_per_user == 0:
            return f"queue {queue.name} lets a user have no jobs"
        return None

    def admit(self, job: ActiveJob) -> None:
        """The job is in the policy's hands."""
        self._unkeep(job)
        self._inside.add(job.id)
        self.of(job.job).give(job, 1)

    def keep(self, job: ActiveJob, rank: Rank) -> None:
        standing = self.of(job.job)
        lane = standing.lane(job.job)
        ranking = standing.kept.get(lane) or Ranking()
        ranking.add(job, rank)  # raises where that is no rank
        standing.kept[lane] = ranking
        standing.asked += job.gpus
        self._kept.add(job.id)

    def gone(self, job: ActiveJob) -> None:
        """It has ended, or its owner holds it."""
        self._unkeep(job)
        if job.id in self._inside:
            self._inside.discard(job.id)
            self.of(job.job).give(job, -1)
        self.newcomers = [each for each in self.newcomers if each is not job]  # objects

    def _unkeep(self, job: ActiveJob) -> None:
        if job.id in self._kept:
            self._kept.discard(job.id)
            standing, lane = self.of(job.job), self.of(job.job).lane(job.job)
            standing.kept[lane].discard(job)
            standing.asked -= job.gpus
            if not len(standing.kept[lane]):
                del standing.kept[lane]

    def kept(self) -> Iterator[ActiveJob]:
        """Everybody who is kept back. For a change of policy or of queues, not for every event."""
        for standing in self._standings.values():
            for ranking in standing.kept.values():
                yield from ranking

    def rankings(self) -> Iterator[Ranking]:
        return (ranking for standing in self._standings.values() for ranking in standing.kept.values())

    # --- who is let in ----------------------------------------------------------------------------------------

    def let_in(self, now: float) -> list[ActiveJob]:
        """Those whose turn has come; they are in the policy's hands from now on."""
        if not self._kept:
            return []
        found: list[ActiveJob] = []
        shares, stuck = self.shares(), self._stuck()
        for name, standing in self._standings.items():
            while standing.kept and standing.given - stuck.get(name, 0) < shares[name] - _ROUNDING:
                job = standing.first(now)
                if job is None:
                    break
                self.admit(job)
                found.append(job)
        return found or self._lent(now)

    def shares(self) -> dict[str, float]:
        """Weighted max-min: everybody gets what it asks for, up to a level common to all, times its weight."""
        stuck = self._stuck()
        asks = {name: float(_at_most(standing.queue.max_gpus, standing.given + standing.asked - stuck.get(name, 0)))
                for name, standing in self._standings.items()}  # fmt: skip
        shares = dict.fromkeys(asks, 0.0)
        left = float(self._capacity())
        weights = sum(self._standings[name].queue.weight for name in asks if asks[name])
        level = {name: gpus / self._standings[name].queue.weight for name, gpus in asks.items() if gpus}
        for name in sorted(level, key=level.__getitem__):
            weight = self._standings[name].queue.weight
            shares[name] = min(asks[name], left * weight / weights)
            left -= shares[name]
            weights -= weight
        return shares

    def _stuck(self) -> dict[str, int]:
        """GPUs asked for by those who were let in and whom what is up of the cluster could not hold: while that is so
        they use nothing of their queue's share."""
        found: dict[str, int] = {}
        for demand, bucket in self._view.waiting.buckets.items():
            if self._view.too_large(demand) is not None:
                for entry in bucket.entries:
                    name = self.of(entry[4].job).queue.name
                    found[name] = found.get(name, 0) + demand.gpus
        return found

    def _capacity(self) -> int:
        view = self._view
        if self._layout != view.layout:
            self._layout = view.layout
            self._up = sum(machine.gpus for machine in view.topology.machines if machine.index not in view.down)
        return self._up

    def _lent(self, now: float) -> list[ActiveJob]:
        """GPUs that nobody who was shown can use, by their number and type, go to whoever can: whose queue has been
        given least by its weight first."""
        spare = {kind: pool.total for kind, pool in self._view.free.pools.items()}
        if not any(spare.values()) or any(_fits(demand, spare) for demand in self._view.waiting.buckets):
            return []
        found: list[ActiveJob] = []
        waiting = [standing for standing in self._standings.values() if standing.kept]
        while waiting:
            waiting.sort(key=lambda standing: standing.given / standing.queue.weight)
            standing = waiting[0]
            job = next((head for head in standing.heads(now) if _fits(head.demand, spare)), None)
            if job is None:
                waiting.pop(0)
                continue
            kind = _fits(job.demand, spare)
            assert kind is not None
            spare[kind] -= job.gpus
            self.admit(job)
            found.append(job)
            if not standing.kept:
                waiting.pop(0)
        return found

    # --- why ----------------------------------------------------------------------------------------------------

    def reason(self, job: ActiveJob) -> Reason:
        """Why a job is kept back, and who has what it waits for. The evidence: its queue, what it was given, and what
        it may have."""
        standing = self.of(job.job)
        queue, user = standing.queue, job.job.user or ""
        if job.id not in self._kept:
            return _quota(f"the policy has not given it a place in queue {queue.name} yet", queue, standing.given,
                          self.shares()[queue.name])  # fmt: skip
        gpus, jobs = standing.users.get(user, (0, 0))
        if queue.max_gpus_per_user is not None and gpus + job.gpus > queue.max_gpus_per_user:
            return _quota(f"user {user or 'nobody'} uses {gpus} of at most {queue.max_gpus_per_user} GPUs in queue "
                          f"{queue.name}", queue, gpus, queue.max_gpus_per_user)  # fmt: skip
        if queue.max_jobs_per_user is not None and jobs >= queue.max_jobs_per_user:
            return _quota(f"user {user or 'nobody'} has {jobs} of at most {queue.max_jobs_per_user} jobs in queue "
                          f"{queue.name}", queue, jobs, queue.max_jobs_per_user)  # fmt: skip
        most, kind = self.shares()[queue.name], "of its"
        if queue.max_gpus is not None and standing.given + job.gpus > queue.max_gpus:
            most, kind = float(queue.max_gpus), "of at most"
        elif standing.given < most - _ROUNDING:
            return _quota(f"others of queue {queue.name} are before it; the queue uses {standing.given} of its "
                          f"{most:.4g} GPUs{_who(standing.users)}", queue, standing.given, most)  # fmt: skip
        return _quota(f"queue {queue.name} uses {standing.given} {kind} {most:.4g} GPUs{_who(standing.users)}",
                      queue, standing.given, most)  # fmt: skip


def _quota(sentence: str, queue: Queue, given: float, most: float) -> Reason:
    return Reason(Token.WAITING_FOR_QUOTA, sentence, None, (queue.name, given, most))


def _who(users: Mapping[str, tuple[int, int]]) -> str:
    """Who has most of it; nothing where nobody has a name."""
    named = sorted(((gpus, name) for name, (gpus, _) in users.items() if name), key=lambda each: (-each[0], each[1]))
    if not named:
        return ""
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f" ({', '.join(f'{name} {gpus}' for gpus, name in named[:_NAMED])}{more})"


def _heads(ranking: Ranking, now: float) -> Iterable[tuple[Key, ActiveJob]]:
    return ((bucket.key(0, now), bucket.job(0)) for bucket in ranking.buckets.values())


def _key(head: tuple[Key, ActiveJob]) -> Key:
    return head[0]


def _fits(demand: Demand, spare: Mapping[str, int]) -> str | None:
    """The GPU type that so many are spare of."""
    kind = demand.gpu_type if demand.gpu_type is not None else max(spare, key=spare.__getitem__)
    return kind if spare.get(kind, 0) >= demand.gpus else None


def _at_most(limit: int | None, gpus: int) -> float:
    return min(math.inf if limit is None else limit, gpus)
