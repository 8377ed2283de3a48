"""The books: the state of all jobs and GPUs, changed by what happened and by what was decided, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.door import Door
from dally.core.errors import PlanError, UserError
from dally.core.estimates import Estimates, learning
from dally.core.fleet import Fleet
from dally.core.free import FreeGpus
from dally.core.journal import Decided, Entry, Happened, Odd, Rejected
from dally.core.memory import Memory
from dally.core.placement import Placement
from dally.core.policy import Meter, Policy, View
from dally.core.ranking import BadRankError, Rank, Ranking
from dally.core.reasons import Reason, Token
from dally.core.residents import Residents
from dally.core.sharing import Groups, Interference
from dally.core.states import ENDED, TRANSITIONS, State, possible
from dally.core.topology import Topology


class Books:
    """What is true of every job and GPU, as far as the world has said. `happened` and `decided` are the two ways in."""

    def __init__(self, topology: Topology, estimates: Estimates, interference: Interference, meter: Meter | None,
                 *, shares: bool, preempts: bool) -> None:  # fmt: skip
        self.jobs: dict[str, ActiveJob] = {}
        self.arrivals = 0  # of all jobs so far, be they remembered or not
        self.ended = 0  # jobs among `jobs` that have
        self.holding: dict[str, ActiveJob] = {}  # jobs that have GPUs, be it to save their checkpoint
        self.fleet = Fleet(self)
        self.reasons: dict[str | pl.Demand, Reason] = {}
        self.timer: float | None = None
        self.answers: list[Decided] = []  # what the books themselves decide: who is turned away, who is to stop
        self.preempts = preempts
        self.view = View(topology, FreeGpus(topology), estimates, self.jobs, self.reason, interference, meter)
        self.view.down, self.view.withheld, self.view.reasons = self.fleet.down, self.fleet.withheld, self.reasons
        self.laid_out_before: Topology | None = None  # the cluster whose machine numbers the policy still remembers
        self.unranked: dict[str, ActiveJob] = {}
        self.learning = learning(estimates)
        self.door = Door(self.jobs, self.view, self.reasons, self.answers, self.unranked)
        self.lay_out(shares)
        self._apply: dict[type, Callable[[float, Any], str | None]] = {
            ev.Arrived: self._arrived, ev.Finished: self._finished, ev.Failed: self._failed,
            ev.Cancelled: self._cancelled, ev.Yielded: self._yielded, ev.StartFailed: self._start_failed,
            ev.Interrupted: self._interrupted, ev.Held: self.door.held, ev.Released: self.door.released,
            ev.ContactLost: self._contact_lost,
            ev.ContactRestored: self._contact_restored, ev.MachineDown: self.fleet.went_down,
            ev.MachineDrained: self.fleet.was_drained, ev.MachineUp: self.fleet.came_up,
            ev.GpusWithheld: self.fleet.withheld_now, ev.MachinesChanged: self.fleet.changed,
            ev.QueuesSet: self.door.queues_set,
            ev.LeaseEnded: self._lease_ended, ev.Started: self._started, ev.Measured: self._measured,
            ev.TimerDue: self._timer_due,
        }  # fmt: skip
        self._carry: dict[type, Callable[[float, Any], None]] = {
            pl.Start: self._occupy, pl.Migrate: self._occupy, pl.Resize: self._occupy, pl.Wait: self._said,
            pl.WakeAt: self._wake_at, pl.Extend: self._extend, pl.Reshare: self._reshare,
        }  # fmt: skip

    def lay_out(self, shares: bool) -> None:
        """For this topology and for a policy that shares or does not."""
        topology = self.view.topology
        self.residents = Residents(self.view.free, self.view.groups, self.jobs, self.fleet.down, shares)
        self._capacity = {kind: topology.capacity(kind) for kind in (None, *topology.gpu_types)}

    def reason(self, job_id: str) -> Reason | None:
        """Why a job does not run: what was said of it alone, else of all jobs of its demand."""
        job = self.jobs[job_id]
        if job.state in _IN_BETWEEN:
            return _IN_BETWEEN[job.state]
        if job.state is State.HELD:
            return self.door.reason(job)
        if job.state not in (State.WAITING, State.REJECTED):
            return None
        if job.state is State.WAITING and (beyond := self.view.too_large(job.demand)) is not None:
            return beyond  # whatever the policy says: until machines come back nothing it does could start it
        return self.reasons.get(job_id) or self.reasons.get(job.demand)

    def rank(self, policy: Policy, memory: Memory, now: float, named: Iterable[ActiveJob]) -> None:
        """Put those whose place has changed where they belong: by what happened, or because the policy names them."""
        view = self.view
        if self.unranked:
            waiting, rank = view.waiting, policy.rank
            job = None
            try:
                for job in self.unranked.values():
                    if job.state is State.WAITING:  # it was not in the queue before
                        waiting.add(job, rank(view, memory, job, now))
                    elif self.preempts and job.movable and job.lease_until is None:
                        place = rank(view, memory, job, now)
                        if not view.preemptible.stays(job, place):
                            view.preemptible.discard(job)
                            view.preemptible.add(job, place)
            except BadRankError as error:
                assert job is not None
                self._still_unranked()
                raise PlanError(policy.name, job.id, str(error)) from None
            except Exception:
                self._still_unranked()
                raise
            self.unranked.clear()
        for job in named or ():
            if type(job) is not ActiveJob:
                raise PlanError(policy.name, str(job), "hear must return jobs of the view whose rank has changed, not "
                                f"{type(job).__name__}")  # fmt: skip
            for ranking in (view.waiting, view.preemptible):
                if job.id in ranking:
                    ranking.discard(job)
                    _put(ranking, job, policy.rank(view, memory, job, now), policy)

    def _still_unranked(self) -> None:
        """After a failure: whoever is in the queue by now need not be put there again."""
        self.unranked = {name: job for name, job in self.unranked.items() if name not in self.view.waiting}

    def rank_all(self, policy: Policy, memory: Memory, now: float) -> None:
        """By another policy's order: everybody anew."""
        for ranking in (self.view.waiting, self.view.preemptible):
            for job in list(ranking):
                ranking.discard(job)
        self.unranked.clear()
        self.unranked.update((job.id, job) for job in self.jobs.values() if job.state in (State.WAITING, State.RUNNING))
        try:
            self.rank(policy, memory, now, ())
        finally:
            self.door.rank_all(policy, memory, now)

    def share_out(self, shares: bool) -> None:
        """Groups are kept for policies that share, only. One that does not can take over as long as nobody shares."""
        if self.residents.shares == shares:
            return
        self.check_sharing(shares)
        self.view.groups = Groups()
        if shares:
            for job in self.holding.values():
                if job.placement is not None:
                    self.view.groups.enter(job.id, job.placement, job.share)
        self.lay_out(shares)

    def check_sharing(self, shares: bool) -> None:
        """Whether a policy that shares, or does not, could take over now; refused in a sentence."""
        if not shares and any(len(group) > 1 for group in self.view.groups):
            raise UserError("jobs share GPUs; a policy that gives whole GPUs cannot take over before they are apart")

    def as_found(self) -> list[Entry]:
        """What led here, as far as it can still be seen: who arrived, and who runs where."""
        found: list[Entry] = []
        for job in self.jobs.values():
            if job.state not in ENDED and job.state is not State.HELD:
                found.append(ev.Arrived(job.job))
        for job in self.holding.values():
            if job.placement is not None:
                lease = job.lease_until
                found.append(pl.Start(job.id, job.placement, lease, job.share))
        return found

    def forget(self, but: Container[str]) -> None:
        """Jobs that have ended, except these: whoever reports of them later is told that nobody knows them."""
        gone = [job.id for job in self.jobs.values() if job.state in ENDED and job.id not in but]
        for job_id in gone:
            del self.jobs[job_id]
            self.reasons.pop(job_id, None)
            self.unranked.pop(job_id, None)
            if self.learning is not None:
                self.learning.forget(job_id)
        self.ended -= len(gone)

    # --- what happened --------------------------------------------------------------------------------------

    def happened(self, now: float, events: Sequence[ev.Event]) -> list[Happened]:
        """Make them part of the state; what does not fit it changes nothing and comes back as odd."""
        seen: list[Happened] = []
        event: Any
        for event in events:
            kind = type(event)
            if kind is _MEASURED:  # objects; three kinds are most of what happens, and a call by table costs
                why = self._measured(now, event)
            elif kind is _ARRIVED:  # objects
                why = self._arrived(now, event)
            elif kind is _FINISHED:  # objects
                why = self._finished(now, event)
            else:
                apply = self._apply.get(kind)
                why = f"{event!r} is no event" if apply is None else apply(now, event)
            seen.append(event if why is None else Odd(event, why))
        self.fleet.withhold()
        return seen

    def _arrived(self, now: float, event: ev.Arrived) -> str | None:
        job = event.job
        if job.id in self.jobs:
            return f"there is a job {job.id!r} already"
        active = self.jobs[job.id] = ActiveJob(job, self.arrivals, now)
        self.arrivals += 1
        reason = self.door.turns_away(active, self._capacity.get(job.gpu_type, 0))
        if reason is None:
            self.door.enqueue(now, active)
            return None
        active.move("reject")
        self.ended += 1
        self.reasons[job.id] = reason
        self.answers.append(Rejected(job.id, reason))
        return None

    def _finished(self, now: float, event: ev.Finished) -> str | None:
        return self._ended(now, event.job, "finish")

    def _failed(self, now: float, event: ev.Failed) -> str | None:
        return self._ended(now, event.job, "fail")

    def _cancelled(self, now: float, event: ev.Cancelled) -> str | None:
        return self._ended(now, event.job, "cancel")

    def _ended(self, now: float, job_id: str, what: str) -> str | None:
        job = self.jobs.get(job_id)
        if job is None:
            return "nobody knows the job"
        if job.state in ENDED:
            return f"it is {job.state.value} already"
        if job.state in _QUEUED and job.first_start is None and what != "cancel":
            return "it has never run"
        job.accrue(now)
        self.view.waiting.discard(job)
        self._release(now, job)
        job.move(what)
        self.ended += 1
        self.reasons.pop(job.id, None)
        self.door.left(job)
        return None

    def _yielded(self, now: float, event: ev.Yielded) -> str | None:
        job = self.jobs.get(event.job)
        decided = now if job is None else job.last_change
        why = self._back_to_the_queue(now, event.job, "yield")
        if why is None and job is not None:
            self.view.prices.left(job.job, now - decided)
        return why

    def _start_failed(self, now: float, event: ev.StartFailed) -> str | None:
        return self._back_to_the_queue(now, event.job, "refuse", failure=event.failure)

    def _interrupted(self, now: float, event: ev.Interrupted) -> str | None:
        if not (event.work_done >= 0 and event.lost >= 0):
            return "its figures are no amounts of work"
        return self._back_to_the_queue(now, event.job, "interrupt", event.work_done, failure=event.failure)

    def _back_to_the_queue(self, now: float, job_id: str, what: str, work_done: float | None = None, *,
                           failure: bool = False) -> str | None:  # fmt: skip
        job = self.jobs.get(job_id)
        if job is None:
            return "nobody knows the job"
        if not possible(job.state, what):
            return f"it is {job.state.value}"
        job.accrue(now)
        if work_done is not None:
            job.work_done = work_done
        self._release(now, job)
        job.move(what)
        job.failures += failure
        self.door.enqueue(now, job)
        return None

    def _contact_lost(self, now: float, event: ev.ContactLost) -> str | None:
        job = self.jobs.get(event.job)
        if job is None:
            return "nobody knows the job"
        if not possible(job.state, "lose"):
            return f"it is {job.state.value}"
        self.lose(now, job)
        return None

    def lose(self, now: float, job: ActiveJob) -> None:
        job.accrue(now)
        self.view.preemptible.discard(job)
        job.move("lose")

    def _contact_restored(self, now: float, event: ev.ContactRestored) -> str | None:
        job = self.jobs.get(event.job)
        if job is None:
            return "nobody knows the job"
        if job.state is not State.LOST:
            return f"it is {job.state.value}; contact with it was not lost"
        job.move("find" if job.placement is not None else "find-yielding")
        self.unranked[job.id] = job
        return None

    def _lease_ended(self, now: float, event: ev.LeaseEnded) -> str | None:
        job = self.jobs.get(event.job)
        if job is None:
            return "nobody knows the job"
        if job.placement is None or job.lease_until is None or job.lease_until > now:
            return "it has no lease that ends now"
        job.lease_until = None
        self.unranked[job.id] = job
        return None

    def _started(self, now: float, event: ev.Started) -> str | None:
        job = self.jobs.get(event.job)
        if job is None or not possible(job.state, "begin"):
            return self._not_expected(job, event.job)
        job.accrue(now)
        job.move("begin")
        job.speed, job.progress_from = 1.0, now
        self.unranked[job.id] = job
        return None

    def _measured(self, now: float, event: ev.Measured) -> str | None:
        job = self.jobs.get(event.job)
        if job is None or job.placement is None:
            return self._not_expected(job, event.job)
        if not (event.speed >= 0.0 and event.step_time >= 0.0 and event.delay >= 0.0):
            return "its figures are no measurements"
        job.accrue(now)
        if job.state is State.STARTING:
            job.state = BEGUN
        comes_back = job.preemptions > 0 and job.step_time == 0
        job.speed, job.step_time, job.exposed = event.speed, event.step_time, event.exposed
        job.neighbours = event.neighbours
        if event.delay > 0:
            job.progress_from = now + event.delay
            self.view.preemptible.discard(job)  # whoever watches hears of it when it is ranked again
        if comes_back:
            self.view.prices.came_back(job.job, job.progress_from - job.last_change)
        if self.learning is not None and event.step_time > 0:
            self.learning.learn(job.job, job.placement, event.step_time)
        if job.lease_until is None:
            self.unranked[job.id] = job
        return None

    def _not_expected(self, job: ActiveJob | None, job_id: str) -> str:
        """Something runs that should not: what nobody planned is told to stop; who is just leaving is not."""
        if job is None or job.state in _QUEUED or job.state in ENDED:
            self.answers.append(pl.Stop(job_id))
            return "nobody knows the job" if job is None else f"it is {job.state.value} and was given no GPUs"
        return f"it is {job.state.value}"

    def _timer_due(self, now: float, event: ev.TimerDue) -> str | None:
        self.timer = None
        return None

    # --- what is decided ------------------------------------------------------------------------------------

    def news_in(self, plan: Any) -> Any:
        """The plan without what has been said before: reasons that still hold, a timer that is set. What is no plan is
        given back as it is, for the rules to say so."""
        if type(plan) is not list:
            return plan
        reasons, timer = self.reasons, self.timer
        news = []
        for action in plan:
            kind = type(action)
            if kind is _WAIT:  # objects
                if reasons.get(action.who) == action.reason:
                    continue
            elif kind is _WAKE_AT and action.time == timer:  # objects
                continue
            news.append(action)
        return news

    def decided(self, now: float, plan: Sequence[Decided]) -> None:
        """Make a plan that keeps the rules the state of the house."""
        vacated = [self._vacate(now, each) for each in plan if type(each) in _MOVES]
        action: Any
        for action in plan:
            kind = type(action)
            if kind is _START:  # objects
                self._occupy(now, action)
            elif kind is _WAIT:  # objects
                self._said(now, action)
            else:
                carry = self._carry.get(kind)
                if carry is not None:
                    carry(now, action)
        for job in vacated:
            if job.state is State.YIELDING:
                self._keep_until_yielded(job)

    def _said(self, now: float, action: pl.Wait) -> None:
        self.reasons[action.who] = action.reason

    def _wake_at(self, now: float, action: pl.WakeAt) -> None:
        self.timer = action.time

    def _extend(self, now: float, action: pl.Extend) -> None:
        job = self.jobs[action.job]
        job.lease_until = now + action.lease
        self.view.preemptible.discard(job)

    def _reshare(self, now: float, action: pl.Reshare) -> None:
        job = self.jobs[action.job]
        job.move("reshare")
        self.residents.reshare(now, job, action.share)

    def _vacate(self, now: float, action: Any) -> ActiveJob:
        job = self.jobs[action.job]
        assert job.placement is not None
        job.accrue(now)
        self.residents.leave(now, job, job.placement)
        self.view.preemptible.discard(job)
        job.last_change = now
        job.lease_until = None
        job.move(_MOVES[type(action)])
        job.speed = 0.0
        if isinstance(action, pl.Preempt):
            job.preemptions += 1
        return job

    def _occupy(self, now: float, action: pl.Places) -> None:
        job, lease = self.jobs[action.job], action.lease
        if isinstance(action, pl.Start):
            self.view.waiting.discard(job)
            job.accrue(now)
            job.move("start")
            self.reasons.pop(job.id, None)
            job.speed = 0.0
            self.holding[job.id] = job
        self.residents.enter(now, job, action.placement, None if isinstance(action, pl.Resize) else action.share)
        job.last_change = job.progress_from = now
        job.step_time = 0.0  # not known there yet: what it was elsewhere must not be counted as watched here
        job.lease_until = None if lease is None else now + lease
        job.attempts += 1
        if job.first_start is None:
            job.first_start = now

    # --- GPUs -----------------------------------------------------------------------------------------------

    def _release(self, now: float, job: ActiveJob) -> None:
        """The job has no GPUs from now on."""
        job.pinned = False
        self.view.preemptible.discard(job)
        if job.leaving is not None:
            self.residents.give(job.leaving)
            job.leaving = None
        if job.placement is not None:
            self.residents.leave(now, job, job.placement)
            job.placement = None
        self.holding.pop(job.id, None)
        job.lease_until = None
        job.speed = 0.0

    def _keep_until_yielded(self, job: ActiveJob) -> None:
        """What a preempted job held and nobody was given stays with it until its checkpoint is saved."""
        assert job.placement is not None
        kept = [(m, mask & self.view.free.masks[m]) for m, mask in job.placement.slices]
        job.leaving = Placement.of((m, mask) for m, mask in kept if mask)
        self.view.free.take(job.leaving)
        job.placement = None


_MEASURED: Final = ev.Measured
_ARRIVED: Final = ev.Arrived
_FINISHED: Final = ev.Finished
_START: Final = pl.Start
_WAIT: Final = pl.Wait
_WAKE_AT: Final = pl.WakeAt
_QUEUED = (State.WAITING, State.HELD)
BEGUN = TRANSITIONS["begin"][State.STARTING]  # looked up once: it happens at every start
_MOVES: Final[dict[type, str]] = {pl.Preempt: "preempt", pl.Migrate: "migrate", pl.Resize: "resize"}

_IN_BETWEEN: Final = {
    State.YIELDING: Reason(Token.CHECKPOINTING, "preempted; its checkpoint is being saved"),
    State.STARTING: Reason(Token.STARTING, "it was given GPUs, and is not known to run there yet"),
    State.LOST: Reason(Token.CONTACT_LOST, "contact with it is lost; it keeps its GPUs until more is known"),
}


def _put(ranking: Ranking, job: ActiveJob, rank: Rank, policy: Policy) -> None:
    try:
        ranking.add(job, rank)
    except BadRankError as error:
        raise PlanError(policy.name, job.id, str(error)) from None
