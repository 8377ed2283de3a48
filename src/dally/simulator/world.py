"""The simulated world: jobs that only pretend to run, on a clock that jumps from event to event.

It alone knows the truth about jobs. It tells the scheduler what a real cluster would tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.agenda import Agenda
from dally.core.job import Job, Truth
from dally.core.journal import Decided, Rejected
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.core.units import show_time
from dally.network.model import NetworkModel, Step
from dally.simulator.costs import MigrationCost
from dally.simulator.dependencies import Followers
from dally.simulator.faults import Faults
from dally.simulator.running import RunningJob, overlap, uses
from dally.simulator.slices import Slices, Wheel
from dally.simulator.workload import Workload
from dally.simulator.world_rules import WorldRules


def _order(event: ev.Event) -> int:
    return ev.ORDER[type(event)]


_STUCK = 100_000  # timers in a row that change nothing while nothing runs or is due: nobody will ever start


_STOPS: Final = frozenset((pl.Preempt, pl.Migrate, pl.Resize))
_ARRIVED: Final = ev.ORDER[ev.Arrived]


class SimulatedWorld:
    """Implements `core.scheduler.World` over a workload and a network model."""

    def __init__(self, workload: Workload, topology: Topology, network: NetworkModel,
                 rules: WorldRules | None = None) -> None:  # fmt: skip
        rules = rules or WorldRules()
        self.network, self.cost, self.faults, self.sharing = network, rules.cost, rules.faults, rules.sharing
        self.starts = rules.starts
        self._at_once = rules.starts.at_once
        self._crash_prone = rules.faults.job_mtbf is not None or type(rules.faults) is not Faults
        self._checkpointed = rules.faults.checkpoint_interval
        self._queues = rules.queues  # not announced yet
        self._predictor = rules.predictor
        # asked once: protocols are slow to check
        self._moving = rules.cost if isinstance(rules.cost, MigrationCost) else None
        self.now = 0.0
        self._jobs, self._truths = workload.trace.jobs, workload.trace.truths
        self._work, self._reference = workload.work, workload.reference
        self._machine_names = topology.machine_names
        self._arrivals = 0  # how many have arrived
        self._unended = len(self._jobs)
        self._runs: dict[str, RunningJob] = {}
        self._running: dict[str, RunningJob] = {}
        self._begins: dict[str, tuple[int, float, pl.Places]] = {}  # told to start and not there yet
        self._queued: dict[str, tuple[Job, Truth]] = {}  # arrived and never started
        self._followers = Followers(self._jobs) if any(job.after is not None for job in self._jobs) else None
        self._slices: Slices | None = None  # from the first share on
        self._left: list[str] = []  # jobs that left their links in this instant
        self._vacating: list[tuple[float, Placement]] = []
        self._agenda = Agenda()
        self._idle_timers = 0
        for machine, down in self.faults.first():
            self._agenda.enter(down, ev.MachineDown, self._machine_down, machine)

    @property
    def ended(self) -> int:
        """Jobs that need nothing more."""
        return len(self._jobs) - self._unended

    # --- what happens -------------------------------------------------------------------------------------

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        while self._unended:
            now = self._next_time()
            if now is None:
                return None
            self.now = now
            events = self._collect(now)
            if not events:
                continue
            self._idle_timers = self._idle_timers + 1 if self._only_timers(events) else 0
            if self._idle_timers > _STUCK:
                return None
            return now, events
        return None

    def _next_time(self) -> float | None:
        agenda = self._agenda
        arrival = self._jobs[self._arrivals].submit_time if self._arrivals < len(self._jobs) else None
        if agenda.look():
            due = agenda.first()
            if arrival is None or due <= arrival:
                return due
        return arrival

    def _collect(self, now: float) -> list[ev.Event]:
        """Everything that is due now, in the order of `events.ORDER`."""
        events: list[ev.Event] = []
        late: list[ev.Event] = []
        agenda = self._agenda  # not through `due`: a generator costs as much as what it yields
        while agenda.look() and agenda.first() <= now:
            _, rank, _, happens, what, epoch = agenda.pop()
            happens(now, what, epoch, events if rank < _ARRIVED else late)
        entered: list[tuple[Job, Placement]] = []
        delays: dict[str, float] = {}
        if self._begins:
            for job_id in [job_id for job_id, (_, due, _) in self._begins.items() if due <= now]:
                self._arrive(now, job_id, entered, delays, events)
                events.sort(key=_order)
        if self._left or entered or (self._slices is not None and self._slices.changed):
            events += self._new_speeds(now, self._left, entered, delays)
            self._left = []
        jobs, index = self._jobs, self._arrivals
        while index < len(jobs) and jobs[index].submit_time == now:
            job, truth = jobs[index], self._truths[index]
            if self._followers is None or not self._followers.keeps(job, truth):
                self._comes(now, job, truth, events)
            index += 1
        self._arrivals = index
        if self._queues:  # the first that is said
            events.insert(0, ev.QueuesSet(self._queues))
            events.sort(key=_order)
            self._queues = ()
        if late:
            events += late
        return events

    def _comes(self, now: float, job: Job, truth: Truth, events: list[ev.Event]) -> None:
        if self._predictor is not None:
            job = replace(job, work=self._predictor.predict(job))
        self._queued[job.id] = (job, truth)
        events.append(ev.Arrived(job))
        if truth.cancel_at is not None:
            self._agenda.enter(max(now, truth.cancel_at), ev.Cancelled, self._cancel, job.id)

    def _follow(self, now: float, job_id: str, *, begun: bool) -> None:
        """Jobs that waited for its start, or for its end, may come."""
        if self._followers is not None:
            for follower, delay in self._followers.heard(job_id, begun=begun):
                self._agenda.enter(now + delay, ev.Arrived, self._met, follower)

    def _met(self, now: float, job_id: str, epoch: int, events: list[ev.Event]) -> None:
        assert self._followers is not None
        found = self._followers.met(job_id)
        if found is not None:  # it counts as submitted from when it could start
            self._comes(now, replace(found[0], submit_time=now), found[1], events)

    def _only_timers(self, events: list[ev.Event]) -> bool:
        return not self._running and not self._begins and self._arrivals == len(self._jobs) and all(
            isinstance(event, ev.TimerDue) for event in events)  # fmt: skip

    def _finish(self, now: float, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        if run.epoch != epoch:
            return
        self._leave(now, run)
        if run.attempt < len(run.truth.failures):  # not the end yet: an attempt of the traced job died here
            run.done = run.saved = max(run.saved, run.work * run.truth.failures[run.attempt])
            run.attempt += 1
            events.append(ev.Interrupted(run.job.id, run.done, "its program failed; it is retried"))
            return
        self._ended(run, run.work)
        events.append(ev.Finished(run.job.id))

    def _ended(self, run: RunningJob, work: float) -> None:
        """It needs nothing more, having done so much."""
        self._unended -= 1
        del self._runs[run.job.id]
        self._follow(self.now, run.job.id, begun=False)
        if self._predictor is not None:
            self._predictor.ended(run.job, work)

    def _timer(self, now: float, what: None, epoch: int, events: list[ev.Event]) -> None:
        if not events:
            events.append(ev.TimerDue())

    def _lease_ends(self, now: float, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        if run.epoch == epoch:
            events.append(ev.LeaseEnded(run.job.id))

    def _turn_over(self, now: float, wheel: Wheel, epoch: int, events: list[ev.Event]) -> None:
        assert self._slices is not None
        self._slices.turn_over(now, wheel, epoch)

    def _look_at_begins(self, now: float, what: None, epoch: int, events: list[ev.Event]) -> None:
        """Somebody told to start is there by now; `_collect` sees to it once everybody else has left."""

    def _yield(self, now: float, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        if run.epoch == epoch:
            run.yields_at = None
            run.saved = run.done
            events.append(ev.Yielded(run.job.id))

    def _cancel(self, now: float, job_id: str, epoch: int, events: list[ev.Event]) -> None:
        """A user gives up on a job that has not started; one that has runs for its traced time."""
        if self._queued.pop(job_id, None) is not None:
            self._unended -= 1
            self._follow(now, job_id, begun=False)
            events.append(ev.Cancelled(job_id))

    def _crash(self, now: float, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        if run.epoch != epoch:
            return
        run.retries += 1
        if run.retries > self.faults.retries:
            self._leave(now, run)
            self._ended(run, run.done)
            events.append(ev.Failed(run.job.id))
        else:
            self._lose_unsaved(now, run, "it crashed; it is retried", events)

    def _over_limit(self, now: float, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        """It has had its GPUs for as long as it may. Where that is how it ended in its history, too, it has done here
        what it did there."""
        if run.epoch != epoch:
            return
        self._leave(now, run)
        self._ended(run, run.done)
        limit = run.job.limit
        assert limit is not None
        if run.truth.duration is not None and run.truth.duration >= limit:
            events.append(ev.Finished(run.job.id))
        else:
            events.append(ev.Failed(run.job.id, f"it reached its time limit of {show_time(limit)}"))

    def _machine_down(self, now: float, machine: int, epoch: int, events: list[ev.Event]) -> None:
        name = self._machine_names[machine]
        cause = f"machine {name} went down"
        for run in [r for r in self._running.values() if uses(r.placement, machine)]:
            self._lose_unsaved(now, run, cause, events)
        for job_id in [j for j, (_, _, action) in self._begins.items() if uses(action.placement, machine)]:
            del self._begins[job_id]
            events.append(ev.StartFailed(job_id, cause))
        for run in self._runs.values():
            if run.yields_at is not None and uses(run.placement, machine):
                # its checkpoint is not whole: it falls back to the periodic one before, and vacates at once
                run.yields_at = None
                run.epoch += 1
                self._vacating = [(t, p) for t, p in self._vacating if p is not run.placement]  # objects
                lost = run.lose_unsaved()
                events.append(ev.Interrupted(run.job.id, run.done, cause, lost))
        events.append(ev.MachineDown(name))
        up = self.faults.repaired(machine, now)
        if up is not None:
            self._agenda.enter(up, ev.MachineUp, self._machine_up, machine)

    def _machine_up(self, now: float, machine: int, epoch: int, events: list[ev.Event]) -> None:
        events.append(ev.MachineUp(self._machine_names[machine]))
        down = self.faults.next_failure(machine, now)
        if down is not None:
            self._agenda.enter(down, ev.MachineDown, self._machine_down, machine)

    def _lose_unsaved(self, now: float, run: RunningJob, cause: str, events: list[ev.Event]) -> None:
        """A fault takes a running job's GPUs and the work since its last periodic checkpoint."""
        self._leave(now, run)
        lost = run.lose_unsaved()
        events.append(ev.Interrupted(run.job.id, run.done, cause, lost))

    def _leave(self, now: float, run: RunningJob) -> None:
        run.book(now, self._checkpointed)
        run.epoch += 1
        del self._running[run.job.id]
        self._left.append(run.job.id)
        if self._slices is not None:
            self._slices.leave(run.job.id)

    # --- what is decided ----------------------------------------------------------------------------------

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        left: list[str] = []
        entered: list[tuple[Job, Placement]] = []
        delays: dict[str, float] = {}
        consequences: list[ev.Event] = []
        for action in decided:
            if type(action) in _STOPS:
                self._stop(now, action, left, consequences)
        for action in decided:
            if isinstance(action, pl.Wait):
                continue
            if isinstance(action, (pl.Start, pl.Migrate, pl.Resize)):
                if self._at_once:
                    delays[action.job] = self._begin(now, now, action, entered)
                else:
                    self._begin_later(now, action)
            elif isinstance(action, pl.Extend):
                self._lease(now, self._running[action.job], now + action.lease)
            elif isinstance(action, pl.WakeAt):
                self._agenda.enter(max(now, action.time), ev.TimerDue, self._timer)
            elif isinstance(action, pl.Reshare):
                if action.job in self._begins:
                    attempt, due, begin = self._begins[action.job]
                    if not isinstance(begin, pl.Resize):
                        self._begins[action.job] = attempt, due, begin._replace(share=action.share)
                else:
                    self._sliced().reshare(action.job, action.share)
            elif isinstance(action, Rejected):
                self._unended -= 1
                self._queued.pop(action.job, None)
                self._follow(now, action.job, begun=False)
        if left or entered or (self._slices is not None and self._slices.changed):
            consequences += self._new_speeds(now, left, entered, delays)
        return consequences

    def _begin_later(self, now: float, action: pl.Places) -> None:
        """It takes a while until anything is heard of it."""
        if action.job not in self._runs:
            self._runs[action.job] = self._first_run(action.job)
        run = self._runs[action.job]
        run.starts += 1
        due = now + self.starts.answered_after(action.job, run.starts)
        self._begins[action.job] = (run.starts, due, action)
        self._agenda.enter(due, ev.StartFailed, self._look_at_begins, None)

    def _arrive(self, now: float, job_id: str, entered: list[tuple[Job, Placement]], delays: dict[str, float],
                events: list[ev.Event]) -> None:  # fmt: skip
        """The start was refused, or the job is on its GPUs now."""
        attempt, due, action = self._begins.pop(job_id)
        if self.starts.refused(job_id, attempt):
            events.append(ev.StartFailed(job_id, "the start was refused"))
        else:
            delays[job_id] = self._begin(now, due - self.starts.answered_after(job_id, attempt), action, entered)

    def _stop(self, now: float, action: Any, left: list[str],
              consequences: list[ev.Event]) -> None:  # fmt: skip
        run = self._running.pop(action.job)
        run.book(now, self._checkpointed)
        run.epoch += 1
        left.append(action.job)
        if self._slices is not None:
            self._slices.leave(action.job)
        save = self.cost.save(run.job)
        if save == 0 or not isinstance(action, pl.Preempt):
            run.saved = run.done
        assert run.placement is not None
        if save > 0:
            self._vacating = [(t, p) for t, p in self._vacating if t > now]
            self._vacating.append((now + save, run.placement))
        if isinstance(action, pl.Preempt):
            if save > 0:
                run.yields_at = now + save
                self._agenda.enter(now + save, ev.Yielded, self._yield, run, run.epoch)
            else:
                consequences.append(ev.Yielded(action.job))

    def _begin(self, now: float, decided: float, action: pl.Places, entered: list[tuple[Job, Placement]]) -> float:
        """Put a job on its GPUs; returns the seconds until it makes progress. `decided`: when it was told to."""
        job_id, given = action.job, action.placement  # read once: fields of a tuple are looked up
        run = self._runs.get(job_id)
        if run is None:
            run = self._runs[job_id] = self._first_run(job_id)
        delay = self.cost.restore(run.job) if run.began else 0.0
        run.began = True
        share = None if isinstance(action, pl.Resize) else action.share
        first = True
        if share is not None or self._slices is not None:
            slices = self._sliced()
            if share is not None and share.beside is not None:
                there = slices.groups.at(given)
                if there is None or share.beside not in there:
                    share = share._replace(beside=None)  # whom it was to run beside did not get there
            first = slices.enter(job_id, given, share)
        handover = 0.0
        for until, placement in self._vacating if first else ():
            if until > now and overlap(placement, given):
                handover = max(handover, until - now)
        if not isinstance(action, pl.Start):
            assert run.placement is not None
            if self._moving is not None:
                gpus = max(run.placement.gpus, given.gpus)
                delay = max(0.0, self._moving.migrate(run.job, gpus) - handover)
            else:
                handover = max(handover, self.cost.save(run.job) - (now - decided))
        run.placement = given
        run.size = given.gpus / run.job.gpus
        run.since, run.progress_from, run.paused_until = now, now + handover + delay, now
        run.speed = run.going = 0.0
        run.limit_used, run.limit_from, run.limit_rate = 0.0, now, 1.0
        run.epoch += 1
        run.lease_end = None if action.lease is None else decided + action.lease
        self._running[job_id] = run
        self._follow(now, job_id, begun=True)
        entered.append((run.job, given))
        return handover + delay

    def _sliced(self) -> Slices:
        """Groups are kept from the first share on: a world in which nobody shares pays nothing for them."""
        if self._slices is None:
            self._slices = Slices(self.sharing, self.network, self._running)
        return self._slices

    def _first_run(self, job_id: str) -> RunningJob:
        job, truth = self._queued.pop(job_id)
        return RunningJob(job, truth, self._work[job_id])

    def _new_speeds(self, now: float, left: list[str], entered: list[tuple[Job, Placement]],
                    delays: dict[str, float]) -> list[ev.Event]:  # fmt: skip
        """The links or the turns changed: new speeds for those who entered and for everybody they touch."""
        slices = self._slices
        if slices is not None:
            left, entered = slices.on_the_links(now, left, entered)
        moved = self.network.moved(left, entered, now) if left or entered else {}
        quiet: set[str] = set()
        if slices is not None:
            moved, quiet = slices.steps(now, moved)
        measured: list[ev.Event] = []
        for job_id, step in moved.items():
            run = self._running[job_id]
            run.book(now, self._checkpointed)
            delay = delays.get(job_id)
            if delay is not None and self._crash_prone:
                crash = self.faults.crash_after(job_id, run.retries, run.progress_from)
                run.crash_at = None if crash is None else run.progress_from + crash
            self._set_speed(now, run, step)
            if job_id not in quiet:
                seconds, _, exposed, alone = step  # not by its properties: this is said of every start
                measured.append(ev.Measured(job_id, run.speed, run.step, exposed / seconds if seconds > 0 else 0.0,
                                            delay or 0.0, seconds / alone if alone > 0 else 1.0))  # fmt: skip
        if slices is not None:
            for end, wheel in slices.ends_of_turns():
                self._agenda.enter(max(now, end), ev.LeaseEnded, self._turn_over, wheel, wheel.epoch)
        return measured

    def _set_speed(self, now: float, run: RunningJob, step: Step) -> None:
        """Finish time, lease boundary and possible crash at the new speed; what was in the heap is void."""
        run.network_step, run.step = step, step.seconds
        run.speed = run.going = run.pace = self._reference[run.job.id] / step.seconds * run.size
        if self._slices is not None:
            fraction, slowdown = self._slices.scale(run)
            run.step *= slowdown
            run.pace /= slowdown
            run.speed = run.going = run.pace * fraction
            if self.sharing.quanta:
                run.going = run.pace if self._slices.is_served(run.job.id) else 0.0
        run.epoch += 1
        finish = inf
        if run.going > 0:
            begin = max(max(now, run.progress_from), run.paused_until)
            finish = begin + max(0.0, run.target - run.done) / run.going
            self._agenda.enter(finish, ev.Finished, self._finish, run, run.epoch)
        if run.job.limit is not None:
            over = self._limit_reached(now, run)
            if over < finish:
                self._agenda.enter(over, ev.Failed, self._over_limit, run, run.epoch)
        if run.lease_end is not None:
            self._lease(now, run, run.lease_end)
        if run.crash_at is not None:
            self._agenda.enter(max(now, run.crash_at), ev.Interrupted, self._crash, run, run.epoch)

    def _limit_reached(self, now: float, run: RunningJob) -> float:
        """When its limit ends it, as things are: time in which others have their turn on its GPUs does not count."""
        assert run.job.limit is not None
        run.limit_used += (now - run.limit_from) * run.limit_rate
        run.limit_from, run.limit_rate = now, 1.0
        if self._slices is not None:
            served = self._slices.is_served(run.job.id)
            run.limit_rate = float(served) if self.sharing.quanta else self._slices.scale(run)[0]
        left = max(0.0, run.job.limit - run.limit_used)
        return now + left / run.limit_rate if run.limit_rate > 0 else inf

    def _lease(self, now: float, run: RunningJob, lease_end: float) -> None:
        """The lease ends at the first step boundary at or after its time."""
        run.lease_end = lease_end
        boundary = max(run.progress_from, lease_end)
        if run.step > 0:
            steps = -((run.progress_from - boundary) // run.step)
            boundary = run.progress_from + steps * run.step
        # rounding must not put the boundary before the end, or the scheduler would take it for an old lease
        self._agenda.enter(max(max(now, boundary), lease_end), ev.LeaseEnded, self._lease_ends, run, run.epoch)
