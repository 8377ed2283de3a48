"""The door to the policy's queue: who is turned away, held by its owner, or kept back by the limits of its queue.

What the policy hears is said here, too: a job that is held leaves its world, one that is let in comes into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.errors import PlanError
from dally.core.journal import Decided, Happened, LetIn
from dally.core.memory import Memory
from dally.core.policy import Policy, View
from dally.core.ranking import BadRankError
from dally.core.reasons import Reason, Token
from dally.core.shape import fits_empty
from dally.core.shares import Gate
from dally.core.states import ENDED, State

_HOLDS: Final = frozenset((ev.Held, ev.Released))


class Door:
    """Part of the books: looks after what is theirs, `reasons`, `answers` and those who are to be ranked."""

    __slots__ = ("_answers", "_jobs", "_passing", "_reasons", "_unranked", "_view", "failed", "gate")

    def __init__(self, jobs: dict[str, ActiveJob], view: View, reasons: dict[str | pl.Demand, Reason],
                 answers: list[Decided], unranked: dict[str, ActiveJob]) -> None:  # fmt: skip
        self._jobs, self._view, self._reasons, self._answers, self._unranked = jobs, view, reasons, answers, unranked
        self.gate: Gate | None = None  # where there are queues
        self.failed: Exception | None = None  # how the policy failed at the gate, until somebody has looked
        self._passing: list[ev.Held | ev.Released | ev.Arrived] | None = None  # who leaves the queue or comes in

    # --- who is turned away -----------------------------------------------------------------------------------

    def turns_away(self, job: ActiveJob, capacity: int) -> Reason | None:
        """Why the job can never run here; None where it can. `capacity`: GPUs of its type."""
        demand = job.demand
        if capacity == 0:
            return Reason(Token.NO_MATCHING_GPU_TYPE, f"the cluster has no GPU of type {demand.gpu_type}")
        beyond = None if self.gate is None else self.gate.too_large(job.job)
        if beyond is not None:
            return Reason(Token.EXCEEDS_CAPACITY, beyond)
        if 0 < demand.gpus <= capacity and demand.where is None:
            return None
        kind = f" of type {demand.gpu_type}" if demand.gpu_type else ""
        asks = f"asks for {demand.gpus} GPUs{kind}{demand.inside}"
        topology = self._view.topology
        names = [level.name for level in topology.levels]
        for name in (demand.within, demand.prefers):
            if name is not None and name not in names:
                return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; it names a level {name}, and the cluster has "
                              f"{', '.join(names)}")  # fmt: skip
        if not 0 < demand.gpus <= capacity:
            return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; the cluster has {capacity}")
        most = topology.capacity(demand.gpu_type, demand.within)
        if demand.gpus > most:
            return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; no {demand.within} has more than {most}")
        if demand.nodes is not None and (demand.nodes < 1 or demand.gpus % demand.nodes):
            return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; its GPUs do not divide evenly among them")
        if demand.shaped and not fits_empty(topology, demand):
            return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; the cluster has no such machines")
        return None

    # --- who is held ------------------------------------------------------------------------------------------

    def held(self, now: float, event: ev.Held) -> str | None:
        job = self._jobs.get(event.job)
        if job is None:
            return "nobody knows the job"
        if job.state in ENDED:
            return f"it is {job.state.value} already"
        if job.hold is not None:
            return "it is held already"
        job.hold = event.why
        self._pass()
        if job.state is State.WAITING:
            self._keep_out(job)
        elif job.state is State.HELD:  # kept back by its queue, and now by its owner
            self._reasons.pop(job.id, None)
            self.left(job)
        return None

    def _keep_out(self, job: ActiveJob) -> None:
        """It leaves the queue, and with it the policy's world."""
        self._view.waiting.discard(job)
        self._reasons.pop(job.id, None)
        job.move("hold")
        self._pass(ev.Held(job.id))
        self.left(job)

    def released(self, now: float, event: ev.Released) -> str | None:
        job = self._jobs.get(event.job)
        if job is None:
            return "nobody knows the job"
        if job.hold is None or job.state in ENDED:
            return f"it is {job.state.value} and not held"
        job.hold = None
        self._pass()
        if job.state is State.HELD:
            job.move("release")
            if self.gate is None:
                self._pass(event)
            self.enqueue(now, job)
        return None

    def _pass(self, *entries: ev.Held | ev.Released | ev.Arrived) -> None:
        self._passing = [*(self._passing or ()), *entries]

    # --- who comes and goes -----------------------------------------------------------------------------------

    def enqueue(self, now: float, job: ActiveJob) -> None:
        """The job is to wait: in the queue, unless somebody keeps it out."""
        job.last_change = now
        if job.hold is not None:
            self._keep_out(job)
        elif self.gate is not None and job.id not in self.gate:
            job.move("hold")
            self._pass()
            self.gate.newcomers.append(job)
        else:
            self._unranked[job.id] = job

    def left(self, job: ActiveJob) -> None:
        """It has ended, or is held: its queue may let in somebody else."""
        if self.gate is not None:
            self.gate.gone(job)

    def reason(self, job: ActiveJob) -> Reason:
        """Why a job that is held is."""
        if job.hold is None and self.gate is not None:
            return self.gate.reason(job)
        return Reason(Token.HELD, f"held by its owner: {job.hold}" if job.hold else "held by its owner")

    def heard(self, seen: list[Happened]) -> list[Happened]:
        """By the policy, of what happened."""
        if self._passing is None:
            return seen
        heard: list[Happened] = [*(event for event in seen if type(event) not in _HOLDS), *self._passing]
        self._passing = None
        if self.gate is not None:  # who arrives and is stopped at the gate has not arrived yet
            heard = [event for event in heard if type(event) is not ev.Arrived
                     or self._jobs[event.job.id].state is not State.HELD]  # fmt: skip
        return heard

    # --- queues -------------------------------------------------------------------------------------------------

    def queues_set(self, now: float, event: ev.QueuesSet) -> str | None:
        """Who has been let in stays in; who is kept back stands at the gates of the new queues."""
        names = [queue.name for queue in event.queues]
        if len(set(names)) < len(names) or not all(queue.weight > 0 for queue in event.queues):
            return "queues have names of their own, and weights above 0"
        waiting = [] if self.gate is None else [*self.gate.kept(), *self.gate.newcomers]
        waiting.sort(key=_number)
        self._pass()
        self.gate = Gate(event.queues, self._view) if event.queues else None
        if self.gate is None:
            for job in waiting:
                self._let_in(job)
                self._pass(ev.Arrived(job.job))
            return None
        for job in self._jobs.values():
            if job.state not in ENDED and job.state is not State.HELD:
                self.gate.admit(job)
        self.gate.newcomers = waiting
        return None

    def open(self, policy: Policy, memory: Memory, now: float,
             recorded: Sequence[Decided] | None = None) -> list[ev.Arrived]:  # fmt: skip
        """Who has come to the gate is ranked, and whose turn it is let in: to the policy it arrives now. `recorded`:
        who it was is not worked out, but taken from there. Whom the policy fails to rank stands at the gate until it
        does not (`failed`)."""
        gate = self.gate
        assert gate is not None
        newcomers, gate.newcomers = gate.newcomers, []
        for job in newcomers:
            self._keep(policy, memory, job, now)
        if recorded is None:
            admitted = gate.let_in(now)
        else:
            kept = {entry.who for entry in recorded
                    if isinstance(entry, pl.Wait) and entry.reason.token is Token.WAITING_FOR_QUOTA}  # fmt: skip
            late = [self._jobs[entry.job] for entry in recorded if isinstance(entry, LetIn)]
            at_once = [job for job in newcomers if job.id not in kept and job.id not in self._reasons]
            admitted = list(dict.fromkeys([*at_once, *late]))
            gate.newcomers = [job for job in gate.newcomers if job not in admitted]
            for job in admitted:
                gate.admit(job)
        for job in admitted:
            self._let_in(job)
        for job in newcomers:
            if job.state is State.HELD:
                reason = gate.reason(job)
                if job not in gate.newcomers or self._reasons.get(job.id) != reason:  # else it has been told
                    self._answers.append(pl.Wait(job.id, reason))
        return [ev.Arrived(job.job) for job in admitted]

    def _keep(self, policy: Policy, memory: Memory, job: ActiveJob, now: float) -> None:
        """In its queue, in the policy's order; still at the gate where the policy fails to say."""
        gate = self.gate
        assert gate is not None
        try:
            gate.keep(job, policy.rank(self._view, memory, job, now))
        except Exception as error:
            bad = isinstance(error, BadRankError)
            self.failed = self.failed or (PlanError(policy.name, job.id, str(error)) if bad else error)
            gate.newcomers.append(job)

    def _let_in(self, job: ActiveJob) -> None:
        if self._reasons.pop(job.id, None) is not None:  # it has been told why it is kept back
            self._answers.append(LetIn(job.id))
        job.move("release")
        self._unranked[job.id] = job

    def rank_all(self, policy: Policy, memory: Memory, now: float) -> None:
        """Those who are kept back, by another policy's order."""
        if self.gate is not None:
            for job in sorted(self.gate.kept(), key=_number):
                self.gate.gone(job)
                self._keep(policy, memory, job, now)


def _number(job: ActiveJob) -> int:
    return job.number
