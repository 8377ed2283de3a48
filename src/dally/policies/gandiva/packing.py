"""Packing (OSDI'18): under overload the job that uses its GPU least runs beside the one that uses its
GPU least, if their memory fits. It is a trial: it stays if together they do more than by taking turns.
"""

from __future__ import annotations

from collections import Counter

from sortedcontainers import SortedList

from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.sharing import Group
from dally.policies.gandiva.draft import Draft
from dally.policies.gandiva.introspection import Check, Introspection, Verdict
from dally.policies.gandiva.servers import Class, Servers

_LOOK_AT = 8  # jobs of lowest utilisation that are tried as movers and as hosts: bounds the cost of one event

Pair = tuple[str, str, str]  # two models (or jobs, where a model is not known) in order, and the GPU type


class Packing:
    """Profiled jobs of each class by utilisation, pairs that are on trial, and pairs that were undone."""

    def __init__(self, watch: Introspection, gain: float, limit: int) -> None:
        self.watch, self.gain = watch, gain
        self.limit = limit  # turns a host's GPUs may have once a trial is undone
        self.undone: set[Pair] = set()
        self.trials: dict[str, str] = {}  # jobs that are packed and not judged yet, both ways
        self._kept: dict[frozenset[str], Placement] = {}  # where a turn is kept for the mover till it is judged
        self.counts: Counter[str] = Counter()  # tried, kept, undone
        self._ready: dict[Class, SortedList] = {}  # (utilisation, arrival, job) of jobs alone in their turn
        self._entry: dict[str, tuple[Class, tuple[float, int, str]]] = {}
        self._look_again: set[Class] = set()

    def refresh(self, draft: Draft, group: Group) -> None:
        """Who of these jobs can be packed now: profiled, alone in their turn, not grown."""
        if not group.turns:
            return
        found = draft.servers.class_of(group)
        self._look_again.add(found)
        for turn in group.turns:
            for job_id in turn:
                able = len(turn) == 1 and job_id in self.watch.alone and group.placement.gpus == found[1]
                self.drop(job_id)
                if able:
                    job = draft.view.job(job_id)
                    entry = (self.watch.utilization(job), job.number, job_id)
                    self._ready.setdefault(found, SortedList()).add(entry)
                    self._entry[job_id] = (found, entry)

    def drop(self, job_id: str) -> None:
        known = self._entry.pop(job_id, None)
        if known is not None:
            listed = self._ready[known[0]]
            listed.remove(known[1])
            if not listed:
                del self._ready[known[0]]

    def end_trial(self, servers: Servers, job_id: str) -> None:
        """Judged, or one of the two is gone and there is nothing to judge."""
        partner = self.trials.pop(job_id, None)
        if partner is not None:
            del self.trials[partner]
            servers.keep_turn(self._kept.pop(frozenset((job_id, partner))), -1)
            self.watch.stop(job_id)
            self.watch.stop(partner)

    def judge(self, draft: Draft, verdict: Verdict) -> None:
        """Keep the pair if its throughput beats time-slicing, where both together do the work of one: else undo."""
        job_id, partner = verdict.job, verdict.check.partner
        assert partner is not None
        self.end_trial(draft.servers, job_id)
        alone, beside = self.watch.alone.get(job_id), self.watch.alone.get(partner)
        assert alone is not None and beside is not None
        together = alone / verdict.seconds + beside / verdict.partner_seconds
        if together >= 1.0 + self.gain:
            self.counts["kept"] += 1
            return
        self.counts["undone"] += 1
        mover, host = draft.view.job(job_id), draft.view.job(partner)
        group = draft.servers.groups.of(job_id)
        self.undone.add(_pair(mover, host, draft.servers.gpu_type(group.placement)))
        draft.unpack(mover)
        self.refresh(draft, group)

    def attempt(self, draft: Draft) -> bool:
        """Where there is overload and something changed, try the next pair; at most one per class and plan."""
        tried = False
        for wanted in sorted(self._look_again):
            if self._overloaded(draft, wanted) and self._pack(draft, wanted):
                tried = True
            else:
                self._look_again.discard(wanted)
        return tried

    def note_waiting(self, demands: list[Demand], gpu_types: tuple[str, ...]) -> None:
        """Jobs wait: their classes are overloaded."""
        for demand in demands:
            for gpu_type in (demand.gpu_type,) if demand.gpu_type else gpu_types:
                if (gpu_type, demand.gpus) in self._ready:
                    self._look_again.add((gpu_type, demand.gpus))

    def _overloaded(self, draft: Draft, wanted: Class) -> bool:
        return any(True for _ in draft.servers.sliced(wanted)) or self._waits(draft, wanted)

    @staticmethod
    def _waits(draft: Draft, wanted: Class) -> bool:
        buckets = draft.view.waiting.buckets
        started = Counter(job.demand for job in draft.started)
        demands = (Demand(wanted[1], wanted[0]), Demand(wanted[1], None))
        return any(demand in buckets and len(buckets[demand]) > started[demand] for demand in demands)

    def _pack(self, draft: Draft, wanted: Class) -> bool:
        ready = self._ready.get(wanted)
        if ready is None or len(ready) < 2:
            return False
        candidates = [draft.view.job(entry[2]) for entry in ready[:_LOOK_AT] if entry[2] not in draft.moved]
        waits = self._waits(draft, wanted)
        groups = draft.servers.groups
        for mover in candidates:
            group = groups.of(mover.id)
            if len(group.turns) == 1 and not waits:
                continue  # it has its GPUs to itself and nobody wants them
            if any(member not in self.watch.alone for member in group.members):
                continue  # who of them uses the GPU least is not known yet
            for host in candidates:
                if host is not mover and self._may(draft, mover, host, wanted[0]):
                    self._try(draft, mover, host)
                    return True
        return False

    def _may(self, draft: Draft, mover: ActiveJob, host: ActiveJob, gpu_type: str) -> bool:
        groups = draft.servers.groups
        if _pair(mover, host, gpu_type) in self.undone:
            return False
        if mover.job.gpu_type not in (None, gpu_type):
            return False
        joined = groups.of(host.id)
        if joined is not groups.of(mover.id) and draft.servers.turns(joined) >= self.limit:
            return False  # there would be no turn left for it if the trial is undone
        return draft.view.fits((host.job, mover.job), gpu_type) is None

    def _try(self, draft: Draft, mover: ActiveJob, host: ActiveJob) -> None:
        groups = draft.servers.groups
        left, joined = groups.of(mover.id), groups.of(host.id)
        if left is joined:
            draft.pack(mover, host.id)
        else:
            draft.migrate(mover, joined.placement, host.id)
        self.counts["tried"] += 1
        self.trials[mover.id], self.trials[host.id] = host.id, mover.id
        self._kept[frozenset((mover.id, host.id))] = joined.placement
        draft.servers.keep_turn(joined.placement, 1)
        pace = max(self.watch.alone[job.id] for job in (mover, host)) * len(joined.turns)
        self.watch.watch(mover.id, draft.now, Check(partner=host.id), pace)
        self.watch.stop(host.id)
        for job in (mover, host):
            self.drop(job.id)
        self.refresh(draft, left)


def _pair(a: ActiveJob, b: ActiveJob, gpu_type: str) -> Pair:
    """What was learned of two jobs holds for all jobs of their models (ours)."""
    first, second = sorted(job.job.model or f"job {job.id}" for job in (a, b))
    return first, second, gpu_type
