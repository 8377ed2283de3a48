"""The books: the state of all jobs and GPUs, changed by what happened and by what was decided, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.errors import PlanError, UserError
from dally.core.estimates import Estimates, learning
from dally.core.free import FreeGpus
from dally.core.journal import Decided, Entry, Happened, LetIn, Odd, Rejected
from dally.core.memory import Memory
from dally.core.placement import Placement
from dally.core.policy import Meter, Policy, View
from dally.core.ranking import BadRankError, Rank, Ranking
from dally.core.reasons import Reason, Token
from dally.core.residents import Residents
from dally.core.shares import Gate
from dally.core.sharing import Groups, Interference
from dally.core.states import ENDED, TRANSITIONS, State, possible
from dally.core.topology import Topology, changed


class Books:
    """What is true of every job and GPU, as far as the world has said. `happened` and `decided` are the two ways in."""

    def __init__(self, topology: Topology, estimates: Estimates, interference: Interference, meter: Meter | None,
                 *, shares: bool, preempts: bool) -> None:  # fmt: skip
        self.jobs: dict[str, ActiveJob] = {}
        self.holding: dict[str, ActiveJob] = {}  # jobs that have GPUs, be it to save their checkpoint
        self.down: set[int] = set()  # machines that get no jobs: gone, or drained
        self.drained: set[str] = set()  # those of them whose jobs go on, by name
        self.reasons: dict[str | pl.Demand, Reason] = {}
        self.timer: float | None = None
        self.heard: list[Happened] | None = None  # by the policy of the latest events, where that is not what happened
        self._passing: list[ev.Held | ev.Released | ev.Arrived] | None = None  # who leaves the queue or comes in
        self.answers: list[Decided] = []  # what the books themselves decide: who is turned away, who is to stop
        self.preempts = preempts
        self.gate: Gate | None = None  # in front of the policy, where there are queues
        self.view = View(topology, FreeGpus(topology), estimates, self.jobs, self.reason, interference, meter)
        self.view.down, self.view.reasons = self.down, self.reasons
        self.laid_out_before: Topology | None = None  # the cluster whose machine numbers the policy still remembers
        self.unranked: dict[str, ActiveJob] = {}
        self._learning = learning(estimates)
        self._lay_out(shares)
        self._apply: dict[type, Callable[[float, Any], str | None]] = {
            ev.Arrived: self._arrived, ev.Finished: self._ended("finish"), ev.Failed: self._ended("fail"),
            ev.Cancelled: self._ended("cancel"), ev.Yielded: self._yielded, ev.StartFailed: self._start_failed,
            ev.Interrupted: self._interrupted, ev.Held: self._held, ev.Released: self._released,
            ev.ContactLost: self._contact_lost,
            ev.ContactRestored: self._contact_restored, ev.MachineDown: self._machine_down,
            ev.MachineDrained: self._machine_drained, ev.MachineUp: self._machine_up,
            ev.MachinesChanged: self._machines_changed,
            ev.QueuesSet: self._queues_set,
            ev.LeaseEnded: self._lease_ended, ev.Started: self._started, ev.Measured: self._measured,
            ev.TimerDue: self._timer_due,
        }  # fmt: skip
        self._carry: dict[type, Callable[[float, Any], None]] = {
            pl.Start: self._occupy, pl.Migrate: self._occupy, pl.Resize: self._occupy, pl.Wait: self._said,
            pl.WakeAt: self._wake_at, pl.Extend: self._extend, pl.Reshare: self._reshare,
        }  # fmt: skip

    def _lay_out(self, shares: bool) -> None:
        """For this topology and for a policy that shares or does not."""
        topology = self.view.topology
        self.residents = Residents(self.view.free, self.view.groups, self.jobs, self.down, shares)
        self._capacity = {kind: topology.capacity(kind) for kind in (None, *topology.gpu_types)}

    def reason(self, job_id: str) -> Reason | None:
        """Why a job does not run: what was said of it alone, else of all jobs of its demand."""
        job = self.jobs[job_id]
        if job.state in _IN_BETWEEN:
            return _IN_BETWEEN[job.state]
        if job.state is State.HELD:
            return _held_because(job.hold or "") if self.gate is None or job.hold is not None else self.gate.reason(job)
        if job.state not in (State.WAITING, State.REJECTED):
            return None
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
                        view.preemptible.discard(job)
                        view.preemptible.add(job, rank(view, memory, job, now))
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
        self.unranked = {job.id: job for job in self.jobs.values() if job.state in (State.WAITING, State.RUNNING)}
        self.rank(policy, memory, now, ())
        if self.gate is not None:
            for job in sorted(self.gate.kept(), key=lambda job: job.number):
                self.gate.gone(job)
                self.gate.keep(job, policy.rank(self.view, memory, job, now))

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
        self._lay_out(shares)

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

    # --- what happened --------------------------------------------------------------------------------------

    def happened(self, now: float, events: Sequence[ev.Event]) -> list[Happened]:
        """Make them part of the state; what does not fit it changes nothing and comes back as odd. What a policy hears
        of it is `heard`: who is held leaves its world, and who is released comes into it."""
        seen: list[Happened] = []
        for event in events:
            apply = self._apply.get(type(event))
            why = f"{event!r} is no event" if apply is None else apply(now, event)
            seen.append(event if why is None else Odd(event, why))
        self.heard = None
        if self._passing is not None:
            self.heard = [*(event for event in seen if type(event) not in _HOLDS), *self._passing]
            if self.gate is not None:  # who arrives and is stopped at the gate has not arrived yet
                self.heard = [event for event in self.heard if type(event) is not ev.Arrived
                              or self.jobs[event.job.id].state is not State.HELD]  # fmt: skip
            self._passing = None
        return seen

    def open_gate(self, policy: Policy, memory: Memory, now: float,
                  recorded: Sequence[Decided] | None = None) -> list[ev.Arrived]:  # fmt: skip
        """Who has come to the gate is ranked, and whose turn it is let in: to the policy it arrives now. `recorded`:
        who it was is not worked out, but taken from there."""
        gate = self.gate
        assert gate is not None
        for job in gate.newcomers:
            gate.keep(job, policy.rank(self.view, memory, job, now))
        newcomers, gate.newcomers = gate.newcomers, []
        if recorded is None:
            admitted = gate.let_in(now)
        else:
            kept = {entry.who for entry in recorded
                    if isinstance(entry, pl.Wait) and entry.reason.token is Token.WAITING_FOR_QUOTA}  # fmt: skip
            late = [self.jobs[entry.job] for entry in recorded if isinstance(entry, LetIn)]
            admitted = list(dict.fromkeys([*(job for job in newcomers if job.id not in kept), *late]))
            for job in admitted:
                gate.admit(job)
        for job in admitted:
            if self.reasons.pop(job.id, None) is not None:
                self.answers.append(LetIn(job.id))
            job.move("release")
            self.unranked[job.id] = job
        self.answers += [pl.Wait(job.id, gate.reason(job)) for job in newcomers if job.state is State.HELD]
        return [ev.Arrived(job.job) for job in admitted]

    def _arrived(self, now: float, event: ev.Arrived) -> str | None:
        job = event.job
        if job.id in self.jobs:
            return f"there is a job {job.id!r} already"
        active = self.jobs[job.id] = ActiveJob(job, len(self.jobs), now)
        capacity = self._capacity.get(job.gpu_type, 0)
        beyond = None if self.gate is None else self.gate.too_large(job)
        says_where = job.within is not None or job.prefers is not None
        if 0 < job.gpus <= capacity and beyond is None and (not says_where or self._fits_inside(active)):
            self._enqueue(now, active)
            return None
        reason = self._too_large(active, capacity, beyond)
        active.move("reject")
        self.reasons[job.id] = reason
        self.answers.append(Rejected(job.id, reason))
        return None

    def _fits_inside(self, job: ActiveJob) -> bool:
        """One domain of the level it must be inside could hold it, and there are the levels it names."""
        topology, demand = self.view.topology, job.demand
        names = {None, *(level.name for level in topology.levels)}
        return names.issuperset((demand.within, demand.prefers)) and \
            topology.capacity(demand.gpu_type, demand.within) >= demand.gpus  # fmt: skip

    def _too_large(self, job: ActiveJob, capacity: int, beyond: str | None) -> Reason:
        """Why it can never run here; `beyond`: what its queue says to it."""
        topology, demand = self.view.topology, job.demand
        if capacity == 0:
            return Reason(Token.NO_MATCHING_GPU_TYPE, f"the cluster has no GPU of type {demand.gpu_type}")
        if beyond is not None:
            return Reason(Token.EXCEEDS_CAPACITY, beyond)
        kind = f" of type {demand.gpu_type}" if demand.gpu_type else ""
        asks = f"asks for {demand.gpus} GPUs{kind}{demand.inside}"
        names = [level.name for level in topology.levels]
        for name in (demand.within, demand.prefers):
            if name is not None and name not in names:
                return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; it names a level {name}, and the cluster has "
                              f"{', '.join(names)}")  # fmt: skip
        if demand.gpus <= capacity and demand.within is not None:
            most = topology.capacity(demand.gpu_type, demand.within)
            return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; no {demand.within} has more than {most}")
        return Reason(Token.EXCEEDS_CAPACITY, f"{asks}; the cluster has {capacity}")

    def _ended(self, what: str) -> Callable[[float, Any], str | None]:
        def apply(now: float, event: ev.Finished | ev.Failed | ev.Cancelled) -> str | None:
            job = self.jobs.get(event.job)
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
            self.reasons.pop(job.id, None)
            if self.gate is not None:
                self.gate.gone(job)
            return None

        return apply

    def _yielded(self, now: float, event: ev.Yielded) -> str | None:
        return self._back_to_the_queue(now, event.job, "yield")

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
        self._enqueue(now, job)
        return None

    def _held(self, now: float, event: ev.Held) -> str | None:
        job = self.jobs.get(event.job)
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
        elif job.state is State.HELD and self.gate is not None:  # kept back, and now by its owner
            self.reasons.pop(job.id, None)
            self.gate.gone(job)
        return None

    def _keep_out(self, job: ActiveJob) -> None:
        """It leaves the queue, and with it the policy's world."""
        self.view.waiting.discard(job)
        self.reasons.pop(job.id, None)
        job.move("hold")
        self._pass(ev.Held(job.id))
        if self.gate is not None:
            self.gate.gone(job)

    def _pass(self, *entries: ev.Held | ev.Released | ev.Arrived) -> None:
        self._passing = [*(self._passing or ()), *entries]

    def _released(self, now: float, event: ev.Released) -> str | None:
        job = self.jobs.get(event.job)
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
            self._enqueue(now, job)
        return None

    def _contact_lost(self, now: float, event: ev.ContactLost) -> str | None:
        job = self.jobs.get(event.job)
        if job is None:
            return "nobody knows the job"
        if not possible(job.state, "lose"):
            return f"it is {job.state.value}"
        self._lose(now, job)
        return None

    def _lose(self, now: float, job: ActiveJob) -> None:
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

    def _machine_down(self, now: float, event: ev.MachineDown) -> str | None:
        machine = self.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if machine in self.down and event.machine not in self.drained:
            return "it is down already"
        self._close(machine)
        self.drained.discard(event.machine)
        for job in self._on(machine):  # the world has not said yet what became of them
            if possible(job.state, "lose"):
                self._lose(now, job)
        return None

    def _close(self, machine: int) -> None:
        """Nobody gets GPUs there."""
        if machine not in self.down:
            self.view.free.take_mask(machine, self.view.free.masks[machine])
            self.down.add(machine)
            self.view.layout += 1

    def _machine_drained(self, now: float, event: ev.MachineDrained) -> str | None:
        machine = self.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if machine in self.down:
            return "it is drained already" if event.machine in self.drained else "it is down"
        self._close(machine)
        self.drained.add(event.machine)
        self.pin()
        return None

    def pin(self) -> None:
        """Jobs on drained machines go on to their end: what they would leave, nobody could be given."""
        drained = {self.view.topology.machine_by_name[name] for name in self.drained}
        for job in self.holding.values():
            pinned = job.placement is not None and any(machine in drained for machine, _ in job.placement.slices)
            if pinned != job.pinned:
                job.pinned = pinned
                self.view.preemptible.discard(job)
                if job.movable:
                    self.unranked[job.id] = job

    def _machine_up(self, now: float, event: ev.MachineUp) -> str | None:
        machine = self.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if machine not in self.down:
            return "it was not down"
        self.down.discard(machine)
        if event.machine in self.drained:
            self.drained.discard(event.machine)
            self.pin()
        self.view.layout += 1
        held = 0
        for job in self._on(machine):
            for placement in (job.placement, job.leaving):
                held |= dict(placement.slices).get(machine, 0) if placement is not None else 0
        self.view.free.give_mask(machine, self.view.topology.machines[machine].full_mask & ~held)
        return None

    def _on(self, machine: int) -> list[ActiveJob]:
        """Jobs with a GPU on the machine. Looks at all that hold any: machines seldom fail."""
        return [job for job in self.holding.values()
                if any(placement is not None and any(m == machine for m, _ in placement.slices)
                       for placement in (job.placement, job.leaving))]  # fmt: skip

    def _machines_changed(self, now: float, event: ev.MachinesChanged) -> str | None:
        view, before = self.view, self.view.topology
        try:
            view.topology = after = changed(before, event.added, event.removed)
        except UserError as error:
            return str(error)
        for machine in sorted(before.machine_by_name[name] for name in event.removed):
            for job in self._on(machine):
                if possible(job.state, "lose"):
                    self._lose(now, job)
        numbers = {machine.index: after.machine_by_name.get(machine.name) for machine in before.machines}
        down = {found for machine in self.down if (found := numbers[machine]) is not None}
        self.down.clear()
        self.down.update(down)
        self.drained.intersection_update(after.machine_by_name)
        view.free = FreeGpus(after)
        groups, view.groups = view.groups, Groups()
        for job in self.holding.values():
            job.placement = None if job.placement is None else _renumbered(job.placement, numbers)
            job.leaving = None if job.leaving is None else _renumbered(job.leaving, numbers)
        self._lay_out(self.residents.shares)
        for group in groups:
            view.groups.adopt(group, _renumbered(group.placement, numbers))
        taken: set[Placement] = set()
        for job in self.holding.values():
            for held in (job.placement, job.leaving):
                if held is not None and held not in taken:
                    taken.add(held)
                    view.free.take(held)
        for machine in self.down:
            view.free.take_mask(machine, view.free.masks[machine])
        view.layout += 1
        if self._learning is not None:
            self._learning.lay_out(after)
        self.laid_out_before = self.laid_out_before or before
        return None

    def _queues_set(self, now: float, event: ev.QueuesSet) -> str | None:
        """Who has been let in stays in; who is kept back stands at the gates of the new queues."""
        names = [queue.name for queue in event.queues]
        if len(set(names)) < len(names) or not all(queue.weight > 0 for queue in event.queues):
            return "queues have names of their own, and weights above 0"
        waiting = [] if self.gate is None else [*self.gate.kept(), *self.gate.newcomers]
        self.gate = Gate(event.queues, self.view) if event.queues else None
        self._pass()
        if self.gate is None:
            for job in sorted(waiting, key=lambda job: job.number):
                self.reasons.pop(job.id, None)
                job.move("release")
                self._pass(ev.Arrived(job.job))
                self.unranked[job.id] = job
                self.answers.append(LetIn(job.id))
            return None
        for job in self.jobs.values():
            if job.state not in ENDED and job.state is not State.HELD:
                self.gate.admit(job)
        self.gate.newcomers = sorted(waiting, key=lambda job: job.number)
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
        job.speed, job.step_time, job.exposed = event.speed, event.step_time, event.exposed
        job.neighbours = event.neighbours
        if event.delay > 0:
            job.progress_from = now + event.delay
        if self._learning is not None and event.step_time > 0:
            self._learning.learn(job.job, job.placement, event.step_time)
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
            if kind is pl.Wait:
                if reasons.get(action.who) == action.reason:
                    continue
            elif kind is pl.WakeAt and action.time == timer:
                continue
            news.append(action)
        return news

    def decided(self, now: float, plan: Sequence[Decided]) -> None:
        """Make a plan that keeps the rules the state of the house."""
        vacated = [self._vacate(now, action) for action in plan if type(action) in _MOVES]
        for action in plan:
            carry = self._carry.get(type(action))
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
        job = self.jobs[action.job]
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
        job.lease_until = None if action.lease is None else now + action.lease
        job.attempts += 1
        if job.first_start is None:
            job.first_start = now

    # --- GPUs -----------------------------------------------------------------------------------------------

    def _enqueue(self, now: float, job: ActiveJob) -> None:
        job.last_change = now
        if job.hold is not None:
            self._keep_out(job)
            return
        if self.gate is not None and job.id not in self.gate:
            job.move("hold")
            self._pass()
            self.gate.newcomers.append(job)
            return
        self.unranked[job.id] = job

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


_QUEUED = (State.WAITING, State.HELD)
_HOLDS = frozenset((ev.Held, ev.Released))
BEGUN = TRANSITIONS["begin"][State.STARTING]  # looked up once: it happens at every start
_MOVES: dict[type, str] = {pl.Preempt: "preempt", pl.Migrate: "migrate", pl.Resize: "resize"}

_IN_BETWEEN = {
    State.YIELDING: Reason(Token.CHECKPOINTING, "preempted; its checkpoint is being saved"),
    State.STARTING: Reason(Token.STARTING, "it was given GPUs, and is not known to run there yet"),
    State.LOST: Reason(Token.CONTACT_LOST, "contact with it is lost; it keeps its GPUs until more is known"),
}


def _held_because(why: str) -> Reason:
    return Reason(Token.HELD, f"held by its owner: {why}" if why else "held by its owner")


def _put(ranking: Ranking, job: ActiveJob, rank: Rank, policy: Policy) -> None:
    try:
        ranking.add(job, rank)
    except BadRankError as error:
        raise PlanError(policy.name, job.id, str(error)) from None


def _renumbered(placement: Placement, numbers: dict[int, int | None]) -> Placement:
    """The same GPUs under the machines' new numbers, without those that are gone."""
    pairs = ((numbers[machine], mask) for machine, mask in placement.slices)
    return Placement.of((machine, mask) for machine, mask in pairs if machine is not None)
