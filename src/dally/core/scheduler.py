"""The scheduler: one class for every world. Apply the events, ask the policy, check the plan, carry it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.errors import PlanError
from dally.core.estimates import Declared, Estimates
from dally.core.free import FreeGpus
from dally.core.journal import Journal, Leaving, Rejected
from dally.core.placement import Placement
from dally.core.policy import Meter, Policy, View
from dally.core.reasons import Reason, Token
from dally.core.residents import Residents
from dally.core.rules import Rules
from dally.core.sharing import Interference, NoInterference
from dally.core.states import ENDED, State
from dally.core.topology import Topology


class World(Protocol):
    """Where jobs really run, or pretend to."""

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        """All events of the next instant, in the order of `events.ORDER`; None when nothing can happen any more."""
        ...

    def carry_out(self, now: float, actions: Sequence[pl.Action | Rejected]) -> Sequence[ev.Event]:
        """Do what was decided. Consequences that are certain at once may be returned, the rest are events."""
        ...


class Scheduler:
    """State of all jobs and GPUs, changed by events and by the policy's plans, and by nothing else."""

    def __init__(self, topology: Topology, policy: Policy, world: World, journal: Journal,
                 estimates: Estimates | None = None, interference: Interference | None = None,
                 meter: Meter | None = None) -> None:  # fmt: skip
        self.topology = topology
        self.policy = policy
        self.world = world
        self.journal = journal
        self.jobs: dict[str, ActiveJob] = {}
        self.free = FreeGpus(topology)
        self.down: set[int] = set()
        self.reasons: dict[str | pl.Demand, Reason] = {}
        self.events = 0
        interference = interference or NoInterference()
        self.view = View(topology, self.free, estimates or Declared(), self.jobs, self.reason, interference, meter)
        self.shares = bool(getattr(policy, "shares", False))
        self._residents = Residents(self.free, self.view.groups, self.jobs, self.shares)
        self._rules = Rules(topology, self.free, self.view.groups, self.jobs, self.down, interference, self.shares)
        self._capacity = {kind: topology.capacity(kind) for kind in (None, *topology.gpu_types)}
        self._turned_away: list[Rejected] = []
        self._timer: float | None = None
        self._apply: dict[type, Callable[[float, Any], None]] = {
            ev.Arrived: self._arrived, ev.Finished: self._ended("finish"), ev.Failed: self._ended("fail"),
            ev.Cancelled: self._ended("cancel"), ev.Yielded: self._yielded, ev.Interrupted: self._interrupted,
            ev.MachineDown: self._machine_down, ev.MachineUp: self._machine_up, ev.LeaseEnded: self._lease_ended,
            ev.Measured: self._measured, ev.TimerDue: self._timer_due,
        }  # fmt: skip

    def run(self, between: Callable[[float], bool] | None = None) -> None:
        """Until the world has nothing more to report, or `between` (called after each instant) says stop."""
        while (happened := self.world.next_events()) is not None:
            self.step(*happened)
            if between is not None and not between(happened[0]):
                return

    def step(self, now: float, events: Sequence[ev.Event]) -> None:
        """One trip: events in, plan out, plan checked and carried out."""
        for event in events:
            self._happened(now, event)
        self.view.news = events
        for job in self.policy.refresh(self.view, now):
            self._rerank(now, job)
        plan = self.policy.plan(self.view, now)
        actions = self._commit(now, plan)
        if self._turned_away:
            actions, self._turned_away = [*self._turned_away, *actions], []
        if actions:
            for consequence in self.world.carry_out(now, actions):
                self._happened(now, consequence)

    def reason(self, job_id: str) -> Reason | None:
        """Why a job waits: what was said of it alone, else of all jobs of its demand."""
        job = self.jobs[job_id]
        if job.state is State.YIELDING:
            return Reason(Token.CHECKPOINTING, "preempted; its checkpoint is being saved")
        if job.state not in (State.WAITING, State.REJECTED):
            return None
        return self.reasons.get(job_id) or self.reasons.get(job.demand)

    # --- events -------------------------------------------------------------------------------------------

    def _happened(self, now: float, event: ev.Event) -> None:
        self.events += 1
        self.journal.write(now, event)
        self._apply[type(event)](now, event)

    def _arrived(self, now: float, event: ev.Arrived) -> None:
        job = event.job
        active = self.jobs[job.id] = ActiveJob(job, len(self.jobs), now)
        capacity = self._capacity.get(job.gpu_type, 0)
        if job.gpus <= capacity:
            self._enqueue(now, active)
            return
        if capacity == 0:
            reason = Reason(Token.NO_MATCHING_GPU_TYPE, f"the cluster has no GPU of type {job.gpu_type}")
        else:
            kind = f" of type {job.gpu_type}" if job.gpu_type else ""
            reason = Reason(Token.EXCEEDS_CAPACITY, f"asks for {job.gpus} GPUs{kind}; the cluster has {capacity}")
        active.move("reject")
        self.reasons[job.id] = reason
        turned_away = Rejected(job.id, reason)
        self.journal.write(now, turned_away)
        self._turned_away.append(turned_away)

    def _ended(self, what: str) -> Callable[[float, Any], None]:
        def apply(now: float, event: Any) -> None:
            job = self.jobs.get(event.job)
            if job is None or job.state in ENDED:
                return  # a cancellation may cross the job's own end
            job.accrue(now)
            self.view.waiting.discard(job)
            self._release(now, job)
            job.move(what)
            self.reasons.pop(job.id, None)

        return apply

    def _yielded(self, now: float, event: ev.Yielded) -> None:
        job = self.jobs[event.job]
        if job.state is State.YIELDING:
            self._give_back(job)
            job.move("yield")
            self._enqueue(now, job)

    def _interrupted(self, now: float, event: ev.Interrupted) -> None:
        job = self.jobs[event.job]
        job.accrue(now)
        job.work_done = event.work_done
        self._release(now, job)
        job.move("interrupt")
        self._enqueue(now, job)

    def _machine_down(self, now: float, event: ev.MachineDown) -> None:
        if event.machine not in self.down:
            self.down.add(event.machine)
            self.free.take_mask(event.machine, self.topology.machines[event.machine].full_mask)

    def _machine_up(self, now: float, event: ev.MachineUp) -> None:
        if event.machine in self.down:
            self.down.discard(event.machine)
            self.free.give_mask(event.machine, self.topology.machines[event.machine].full_mask)

    def _lease_ended(self, now: float, event: ev.LeaseEnded) -> None:
        job = self.jobs[event.job]
        if job.state is State.RUNNING and job.lease_until is not None and job.lease_until <= now:
            job.lease_until = None
            self._rank_running(now, job)

    def _measured(self, now: float, event: ev.Measured) -> None:
        job = self.jobs[event.job]
        if job.state is not State.RUNNING:
            return
        job.accrue(now)
        job.speed, job.step_time, job.exposed = event.speed, event.step_time, event.exposed
        job.neighbours = event.neighbours
        if event.delay > 0:
            job.progress_from = now + event.delay
        if job.lease_until is None:
            self._rank_running(now, job)

    def _timer_due(self, now: float, event: ev.TimerDue) -> None:
        self._timer = None

    # --- plans --------------------------------------------------------------------------------------------

    def _commit(self, now: float, plan: pl.Plan) -> list[pl.Action | Rejected]:
        """Check a plan and make it the state of the house; returns what the world has to do and know."""
        actions: list[pl.Action | Rejected] = []
        vacated: dict[str, ActiveJob] = {}
        for action in plan:
            if type(action) in _MOVES:
                assert isinstance(action, (pl.Preempt, pl.Migrate, pl.Resize))
                if action.job in vacated:
                    raise PlanError(self.policy.name, action.job, "is moved or preempted twice in one plan")
                vacated[action.job] = self._vacate(now, action)
        for action in plan:
            kind = type(action)
            if kind is pl.Wait:
                self._explain(now, action)  # type: ignore[arg-type]
                continue
            if kind is pl.WakeAt:
                if action.time == self._timer:  # type: ignore[union-attr]
                    continue
                if not action.time > now:  # type: ignore[union-attr]
                    raise PlanError(self.policy.name, "any", f"asks to be woken at {action.time!r}, "  # type: ignore[union-attr]
                                    f"which is not after now ({now!r}): time would stand still")  # fmt: skip
                self._timer = action.time  # type: ignore[union-attr]
            elif kind is pl.Start or kind is pl.Migrate or kind is pl.Resize:
                self._occupy(now, action)  # type: ignore[arg-type]
            elif kind is pl.Extend:
                self._extend(now, action)  # type: ignore[arg-type]
            elif kind is pl.Reshare:
                self._reshare(now, action)  # type: ignore[arg-type]
            self.journal.write(now, action)
            actions.append(action)
        for job in vacated.values():
            if job.state is State.YIELDING and job.placement is not None:
                self._keep_until_yielded(now, job)
        self._check_reasons()
        return actions

    def _vacate(self, now: float, action: pl.Preempt | pl.Migrate | pl.Resize) -> ActiveJob:
        job = self._known(action.job)
        if job.state is not State.RUNNING or job.placement is None:
            raise PlanError(self.policy.name, job.id, f"is {job.state.value}; only a running job can be moved")
        job.accrue(now)
        self._residents.leave(now, job, job.placement)
        self.view.preemptible.discard(job)
        job.last_change = now
        job.lease_until = None
        job.move(_MOVES[type(action)])
        if isinstance(action, pl.Preempt):
            job.preemptions += 1
            job.speed = 0.0
        return job

    def _occupy(self, now: float, action: pl.Start | pl.Migrate | pl.Resize) -> None:
        job = self._known(action.job)
        rule = self._rules.broken_by_placing(job, action)
        if rule is not None:
            raise PlanError(self.policy.name, job.id, rule)
        self.view.waiting.discard(job)
        if isinstance(action, pl.Start):
            job.accrue(now)
            job.move("start")
            job.speed = 0.0
        share = None if isinstance(action, pl.Resize) else action.share
        self._residents.enter(now, job, action.placement, share)
        job.last_change = job.progress_from = now
        job.lease_until = None if action.lease is None else now + action.lease
        if job.first_start is None:
            job.first_start = now
        self.reasons.pop(job.id, None)
        if job.lease_until is None:
            self._rank_running(now, job)

    def _reshare(self, now: float, action: pl.Reshare) -> None:
        job = self._known(action.job)
        rule = self._rules.broken_by_resharing(job, action)
        if rule is not None:
            raise PlanError(self.policy.name, job.id, rule)
        job.move("reshare")
        self._residents.reshare(now, job, action.share)

    def _extend(self, now: float, action: pl.Extend) -> None:
        job = self._known(action.job)
        if job.state is not State.RUNNING:
            raise PlanError(self.policy.name, job.id, f"is {job.state.value}; only a running job has a lease")
        job.lease_until = now + action.lease
        self.view.preemptible.discard(job)

    def _explain(self, now: float, wait: pl.Wait) -> None:
        if self.reasons.get(wait.who) != wait.reason:
            self.reasons[wait.who] = wait.reason
            self.journal.write(now, wait)

    def _check_reasons(self) -> None:
        """Every waiting job has a reason: the plan gives one per demand, and may add some for single jobs."""
        for demand, bucket in self.view.waiting.buckets.items():
            if demand not in self.reasons:
                rule = f"waits, and the plan gives no reason for jobs of demand {tuple(demand)}"
                raise PlanError(self.policy.name, bucket.job(0).id, rule)

    def _known(self, job_id: str) -> ActiveJob:
        job = self.jobs.get(job_id)
        if job is None:
            raise PlanError(self.policy.name, job_id, "is not known")
        return job

    # --- GPUs and indexes ---------------------------------------------------------------------------------

    def _enqueue(self, now: float, job: ActiveJob) -> None:
        job.last_change = now
        self.view.waiting.add(job, self.policy.rank(self.view, job, now))

    def _rank_running(self, now: float, job: ActiveJob) -> None:
        if self.policy.preempts:
            self.view.preemptible.discard(job)
            self.view.preemptible.add(job, self.policy.rank(self.view, job, now))

    def _rerank(self, now: float, job: ActiveJob) -> None:
        """The policy says the job's rank is another one from now on."""
        if job.id in self.view.waiting:
            self.view.waiting.discard(job)
            self.view.waiting.add(job, self.policy.rank(self.view, job, now))
        elif job.id in self.view.preemptible:
            self._rank_running(now, job)

    def _release(self, now: float, job: ActiveJob) -> None:
        """The job's GPUs are free from now on."""
        self.view.preemptible.discard(job)
        if job.state is State.YIELDING:
            self._give_back(job)
        elif job.placement is not None:
            self._residents.leave(now, job, job.placement)
        job.placement = None
        job.lease_until = None
        job.speed = 0.0

    def _keep_until_yielded(self, now: float, job: ActiveJob) -> None:
        """What a preempted job held and nobody was given stays with it until its checkpoint is saved."""
        assert job.placement is not None
        kept = [(m, mask & self.free.masks[m]) for m, mask in job.placement.slices]
        job.leaving = Placement.of((m, mask) for m, mask in kept if mask)
        self.free.take(job.leaving)
        job.placement = None
        if job.leaving.gpus:
            self.journal.write(now, Leaving(job.id, job.leaving.gpus))

    def _give_back(self, job: ActiveJob) -> None:
        if job.leaving is not None:
            self.free.give(job.leaving)
            job.leaving = None


_MOVES: dict[type, str] = {pl.Preempt: "preempt", pl.Migrate: "migrate", pl.Resize: "resize"}
