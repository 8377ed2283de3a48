"""Packing (OSDI'18): under overload the job that uses its GPU least runs beside the one that uses its
GPU least, if their memory fits. It is a trial: it stays if together they do more than by taking turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dally.core.active import ActiveJob
from dally.core.plan import Demand
from dally.core.sharing import Group
from dally.policies.gandiva.draft import Draft, Moment
from dally.policies.gandiva.introspection import Introspection, Verdict
from dally.policies.gandiva.memory import Check, Class, Pair, Trial
from dally.policies.gandiva.peers import Peers, Profiled

_LOOK_AT: Final = 8  # jobs of lowest utilisation that are tried as movers and as hosts: bounds the cost of one event


class _Candidate:
    """A job that could be packed, and what has to be known of it for every pair it could be one of."""

    __slots__ = ("full", "group", "job", "name")

    def __init__(self, draft: Draft, job_id: str, limit: int) -> None:
        self.job = draft.view.job(job_id)
        self.name = _name(self.job)
        self.group = draft.groups.of(job_id)
        self.full = draft.servers.turns(self.group) >= limit  # nobody else can come to its GPUs


class Packing:
    """Which pairs are tried, which stay, and which are never tried again."""

    def __init__(self, watch: Introspection, gain: float, limit: int) -> None:
        self.watch, self.gain = watch, gain
        self.limit = limit  # turns a host's GPUs may have once a trial is undone

    def refresh(self, moment: Moment, group: Group | None) -> None:
        """Somebody came, went, was profiled or is in another turn: who of these jobs can be packed now."""
        if group:
            found = self.index(moment, group)
            found.changed()
            _look_again(moment, found.wanted)

    def index(self, moment: Moment, group: Group) -> Peers:
        """Ready is who is profiled, alone in its turn, not grown."""
        size = moment.servers.size(group)
        found = moment.servers.of(moment.servers.gpu_type(group.placement), size)
        ready, alone, grown = moment.ready, moment.memory.alone, group.placement.gpus != size
        for turn in group.turns:
            for job_id in turn:
                if grown or len(turn) > 1 or job_id not in alone:
                    ready.drop(job_id)
                elif not ready.has(found, job_id):  # its utilisation stays what it is
                    ready.put(found, moment.view.job(job_id))
        return found

    def end_trial(self, moment: Moment, job_id: str) -> bool:
        """Judged, or one of the two is gone and there is nothing to judge. False where there was no trial."""
        if job_id not in moment.memory.trials:
            return False
        trial: Trial = moment.memory.trials.pop(job_id)
        moment.memory.trials.pop(trial.partner, None)
        moment.servers.keep_turn(trial.placement, -1)
        for each in (job_id, trial.partner):
            self.watch.stop(moment.memory, each)
        return True

    def judge(self, draft: Draft, verdict: Verdict) -> None:
        """Keep the pair if its throughput beats time-slicing, where both together do the work of one: else undo."""
        memory, job_id, partner = draft.memory, verdict.job, verdict.check.partner
        if partner is None or not self.end_trial(draft, job_id):
            return
        together = memory.alone[job_id] / verdict.seconds + memory.alone[partner] / verdict.partner_seconds
        if together >= 1.0 + self.gain:
            memory.kept += 1
            return
        memory.parted += 1
        mover, host = draft.view.job(job_id), draft.view.job(partner)
        group = draft.groups.of(job_id)
        memory.undone[_pair(mover, host, draft.servers.gpu_type(group.placement))] = draft.now
        draft.unpack(mover)
        self.refresh(draft, group)

    def attempt(self, draft: Draft) -> bool:
        """Where there is overload and something changed, try the next pair; at most one per class and plan."""
        tried = False
        for wanted in list(draft.memory.look_again):
            waits = self._waits(draft, wanted)
            peers = draft.servers.of(wanted.gpu_type, wanted.gpus)
            if (waits or draft.servers.takes_turns(peers)) and self._pack(draft, peers, waits):
                tried = True
            else:
                draft.memory.look_again.discard(wanted)
        return tried

    @staticmethod
    def note_waiting(draft: Draft, demands: Sequence[Demand]) -> None:
        """Jobs wait: their classes are overloaded."""
        for demand in demands:
            for gpu_type in (demand.gpu_type,) if demand.gpu_type else draft.view.topology.gpu_types:
                peers = draft.servers.of(gpu_type, demand.gpus)
                if not peers.in_vain and draft.ready.count(peers):
                    _look_again(draft, peers.wanted)

    @staticmethod
    def _waits(draft: Draft, wanted: Class) -> bool:
        gpu_type, gpus = wanted
        for demand, bucket in draft.view.waiting.buckets.items():
            if demand.gpus == gpus and (demand.gpu_type is None or demand.gpu_type == gpu_type) \
                    and len(bucket.entries) > draft.begun.get(demand, 0):  # fmt: skip
                return True
        return False

    def _pack(self, draft: Draft, peers: Peers, waits: bool) -> bool:
        first = draft.ready.first(peers, _LOOK_AT)
        if not waits and not _any_takes_turns(draft, first):
            return False  # they have their GPUs to themselves and nobody wants them
        candidates = [_Candidate(draft, entry[2], self.limit) for entry in first if draft.may_touch(entry[2])]
        if len(first) > 1 and self._pack_any(draft, candidates, peers.wanted.gpu_type, waits):
            return True
        if waits and len(candidates) == len(first):  # and nobody else comes into question before something changes
            peers.find_vain()
        return False

    def _pack_any(self, draft: Draft, candidates: list[_Candidate], gpu_type: str, waits: bool) -> bool:
        """The first pair of them that may be packed, if there is one."""
        alone = draft.memory.alone
        for mover in candidates:
            if len(mover.group.turns) == 1 and not waits:
                continue  # it has its GPUs to itself and nobody wants them
            if mover.job.job.gpu_type not in (None, gpu_type):
                continue
            if any(member not in alone for member in mover.group.members):
                continue  # who of them uses the GPU least is not known yet
            for host in candidates:
                if host is not mover and self._may(draft, mover, host, gpu_type):  # objects
                    self._try(draft, mover.job, host.job)
                    return True
        return False

    @staticmethod
    def _may(draft: Draft, mover: _Candidate, host: _Candidate, gpu_type: str) -> bool:
        if host.full and host.group is not mover.group:  # objects
            return False  # there would be no turn left for it if the trial is undone
        if _in_order(mover.name, host.name, gpu_type) in draft.memory.undone:
            return False
        demand = mover.job.demand
        if demand.where is not None and not draft.servers.may_be_on(host.group.placement, demand):
            return False
        return draft.view.fits((host.job.job, mover.job.job), gpu_type) is None

    def _try(self, draft: Draft, mover: ActiveJob, host: ActiveJob) -> None:
        memory = draft.memory
        left, joined = draft.groups.of(mover.id), draft.groups.of(host.id)
        if left is joined:  # objects
            draft.pack(mover, host.id)
        else:
            draft.migrate(mover, joined.placement, host.id)
        memory.tried += 1
        memory.trials[mover.id] = Trial(host.id, joined.placement)
        memory.trials[host.id] = Trial(mover.id, joined.placement)
        draft.servers.keep_turn(joined.placement, 1)
        pace = max(memory.alone[job.id] for job in (mover, host)) * len(joined.turns)
        self.watch.watch(memory, mover.id, draft.now, Check(partner=host.id), pace)
        self.watch.stop(memory, host.id)
        for job in (mover, host):
            draft.ready.drop(job.id)
        self.refresh(draft, left)


def _any_takes_turns(draft: Draft, profiled: Sequence[Profiled]) -> bool:
    for entry in profiled:  # noqa: SIM110 - a generator costs
        if draft.groups.of(entry[2]).sliced:
            return True
    return False


def _look_again(moment: Moment, wanted: Class) -> None:
    if wanted not in moment.memory.look_again:
        moment.memory.look_again.add(wanted)


def _pair(a: ActiveJob, b: ActiveJob, gpu_type: str) -> Pair:
    """What was learned of two jobs holds for all jobs of their models (ours)."""
    return _in_order(_name(a), _name(b), gpu_type)


def _name(job: ActiveJob) -> str:
    return job.job.model or f"job {job.id}"


def _in_order(first: str, second: str, gpu_type: str) -> Pair:
    return (first, second, gpu_type) if first <= second else (second, first, gpu_type)
