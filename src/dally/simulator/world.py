"""The simulated world: jobs that only pretend to run, on a clock that jumps from event to event.

It alone knows the truth about jobs. It tells the scheduler what a real cluster would tell it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job, Truth
from dally.core.journal import Rejected
from dally.core.placement import Placement
from dally.network.model import NetworkModel, Step
from dally.simulator.costs import MigrationCost, PreemptionCost
from dally.simulator.faults import Faults
from dally.simulator.running import RunningJob, overlap, uses
from dally.simulator.slices import SharingRules, Slices

_STUCK = 100_000  # timers in a row that change nothing while nothing runs or is due: nobody will ever start

# what the world keeps in its heap besides arrivals
_FINISH, _YIELD, _LEASE, _CANCEL, _DOWN, _UP, _CRASH, _TIMER, _SWITCH = range(9)
_ORDER = {_FINISH: ev.ORDER[ev.Finished], _CANCEL: ev.ORDER[ev.Cancelled], _YIELD: ev.ORDER[ev.Yielded],
          _CRASH: ev.ORDER[ev.Interrupted], _DOWN: ev.ORDER[ev.MachineDown], _UP: ev.ORDER[ev.MachineUp],
          _LEASE: ev.ORDER[ev.LeaseEnded], _SWITCH: ev.ORDER[ev.LeaseEnded],
          _TIMER: ev.ORDER[ev.TimerDue]}  # fmt: skip

_STOPS = frozenset((pl.Preempt, pl.Migrate, pl.Resize))
_BEGINS = frozenset((pl.Start, pl.Migrate, pl.Resize))


class SimulatedWorld:
    """Implements `core.scheduler.World` over a trace, a network model and a price of preemption."""

    def __init__(self, jobs: Sequence[Job], truths: Sequence[Truth], work: Mapping[str, float],
                 reference: Mapping[str, float], network: NetworkModel, cost: PreemptionCost,
                 faults: Faults, sharing: SharingRules | None = None) -> None:  # fmt: skip
        self.network, self.cost, self.faults = network, cost, faults
        self._moving = cost if isinstance(cost, MigrationCost) else None  # asked once: protocols are slow to check
        self.sharing = sharing or SharingRules()
        self.lost_work_gpu_seconds = 0.0  # GPU time of work that faults threw away
        self.now = 0.0
        self._jobs, self._truths, self._work, self._reference = jobs, truths, work, reference
        self._arrivals = 0  # how many have arrived
        self._unended = len(jobs)
        self._runs: dict[str, RunningJob] = {}
        self._running: dict[str, RunningJob] = {}
        self._queued: dict[str, tuple[Job, Truth]] = {}  # arrived and never started
        self._slices: Slices | None = None  # from the first share on
        self._left: list[str] = []  # jobs that left their links in this instant
        self._vacating: list[tuple[float, Placement]] = []
        self._heap: list[tuple[float, int, int, int, object, int]] = []
        self._seq = 0
        self._idle_timers = 0
        for machine, down in faults.first():
            self._push(down, _DOWN, machine)

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
        heap = self._heap
        arrival = self._jobs[self._arrivals].submit_time if self._arrivals < len(self._jobs) else None
        if heap and (arrival is None or heap[0][0] <= arrival):
            return heap[0][0]
        return arrival

    def _collect(self, now: float) -> list[ev.Event]:
        """Everything that is due now, in the order of `events.ORDER`."""
        events: list[ev.Event] = []
        heap = self._heap
        late: list[ev.Event] = []
        arrived_rank = ev.ORDER[ev.Arrived]
        while heap and heap[0][0] == now:
            _, rank, _, kind, what, epoch = heapq.heappop(heap)
            target = events if rank < arrived_rank else late
            if kind == _FINISH:
                self._finish(now, what, epoch, target)  # type: ignore[arg-type]
            elif kind == _TIMER:
                if not late:
                    late.append(ev.TimerDue())
            elif kind == _YIELD:
                self._yield(what, epoch, target)  # type: ignore[arg-type]
            elif kind == _LEASE:
                if isinstance(what, RunningJob) and what.epoch == epoch:
                    target.append(ev.LeaseEnded(what.job.id))
            elif kind == _CANCEL:
                self._cancel(what, target)  # type: ignore[arg-type]
            elif kind == _CRASH:
                self._crash(now, what, epoch, target)  # type: ignore[arg-type]
            elif kind == _SWITCH:
                assert self._slices is not None
                self._slices.turn_over(now, what, epoch)  # type: ignore[arg-type]
            elif kind == _DOWN:
                self._machine_down(now, what, target)  # type: ignore[arg-type]
            else:
                self._machine_up(now, what, target)  # type: ignore[arg-type]
        if self._left or (self._slices is not None and self._slices.changed):
            events += self._new_speeds(now, self._left, [], {})
            self._left = []
        jobs, index = self._jobs, self._arrivals
        while index < len(jobs) and jobs[index].submit_time == now:
            job, truth = jobs[index], self._truths[index]
            self._queued[job.id] = (job, truth)
            events.append(ev.Arrived(job))
            if truth.cancel_at is not None:
                self._push(max(now, truth.cancel_at), _CANCEL, job.id)
            index += 1
        self._arrivals = index
        return events + late

    def _only_timers(self, events: list[ev.Event]) -> bool:
        return not self._running and self._arrivals == len(self._jobs) and all(
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
        self._unended -= 1
        del self._runs[run.job.id]
        events.append(ev.Finished(run.job.id))

    def _yield(self, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        if run.epoch == epoch:
            run.yields_at = None
            run.saved = run.done
            events.append(ev.Yielded(run.job.id))

    def _cancel(self, job_id: str, events: list[ev.Event]) -> None:
        """A user gives up on a job that has not started; one that has runs for its traced time."""
        if self._queued.pop(job_id, None) is not None:
            self._unended -= 1
            events.append(ev.Cancelled(job_id))

    def _crash(self, now: float, run: RunningJob, epoch: int, events: list[ev.Event]) -> None:
        if run.epoch != epoch:
            return
        run.retries += 1
        if run.retries > self.faults.retries:
            self._leave(now, run)
            self._unended -= 1
            del self._runs[run.job.id]
            events.append(ev.Failed(run.job.id))
        else:
            self._lose_unsaved(now, run, "it crashed; it is retried", events)

    def _machine_down(self, now: float, machine: int, events: list[ev.Event]) -> None:
        for run in [r for r in self._running.values() if uses(r.placement, machine)]:
            self._lose_unsaved(now, run, f"machine {machine} went down", events)
        for run in self._runs.values():
            if run.yields_at is not None and uses(run.placement, machine):
                # its checkpoint is not whole: it falls back to the periodic one before, and vacates at once
                run.yields_at = None
                run.epoch += 1
                self._vacating = [(t, p) for t, p in self._vacating if p is not run.placement]
                self.lost_work_gpu_seconds += run.lose_unsaved()
                events.append(ev.Interrupted(run.job.id, run.done, f"machine {machine} went down"))
        events.append(ev.MachineDown(machine))
        up = self.faults.repaired(machine, now)
        if up is not None:
            self._push(up, _UP, machine)

    def _machine_up(self, now: float, machine: int, events: list[ev.Event]) -> None:
        events.append(ev.MachineUp(machine))
        down = self.faults.next_failure(machine, now)
        if down is not None:
            self._push(down, _DOWN, machine)

    def _lose_unsaved(self, now: float, run: RunningJob, cause: str, events: list[ev.Event]) -> None:
        """A fault takes a running job's GPUs and the work since its last periodic checkpoint."""
        self._leave(now, run)
        self.lost_work_gpu_seconds += run.lose_unsaved()
        events.append(ev.Interrupted(run.job.id, run.done, cause))

    def _leave(self, now: float, run: RunningJob) -> None:
        run.book(now, self.faults.checkpoint_interval)
        run.epoch += 1
        del self._running[run.job.id]
        self._left.append(run.job.id)
        if self._slices is not None:
            self._slices.leave(run.job.id)

    # --- what is decided ----------------------------------------------------------------------------------

    def carry_out(self, now: float, actions: Sequence[pl.Action | Rejected]) -> Sequence[ev.Event]:
        left: list[str] = []
        entered: list[tuple[Job, Placement]] = []
        delays: dict[str, float] = {}
        consequences: list[ev.Event] = []
        for action in actions:
            if type(action) in _STOPS:
                self._stop(now, action, left, consequences)  # type: ignore[arg-type]
        for action in actions:
            if type(action) in _BEGINS:
                delays[action.job] = self._begin(now, action, entered)  # type: ignore[arg-type, union-attr]
            elif isinstance(action, pl.Extend):
                self._lease(now, self._running[action.job], now + action.lease)
            elif isinstance(action, pl.WakeAt):
                self._push(max(now, action.time), _TIMER, None)
            elif isinstance(action, pl.Reshare):
                self._sliced().reshare(action.job, action.share)
            elif isinstance(action, Rejected):
                self._unended -= 1
                self._queued.pop(action.job, None)
        if left or entered or (self._slices is not None and self._slices.changed):
            consequences += self._new_speeds(now, left, entered, delays)
        return consequences

    def _stop(self, now: float, action: pl.Preempt | pl.Migrate | pl.Resize, left: list[str],
              consequences: list[ev.Event]) -> None:  # fmt: skip
        run = self._running.pop(action.job)
        run.book(now, self.faults.checkpoint_interval)
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
                self._push(now + save, _YIELD, run, run.epoch)
            else:
                consequences.append(ev.Yielded(action.job))

    def _begin(self, now: float, action: pl.Start | pl.Migrate | pl.Resize,
               entered: list[tuple[Job, Placement]]) -> float:  # fmt: skip
        """Put a job on its GPUs; returns the seconds until it makes progress."""
        run = self._runs.get(action.job)
        delay = 0.0
        if run is None:
            run = self._runs[action.job] = self._first_run(action.job)
        else:
            delay = self.cost.restore(run.job)
        share = None if isinstance(action, pl.Resize) else action.share
        first = True
        if share is not None or self._slices is not None:
            first = self._sliced().enter(action.job, action.placement, share)
        handover = 0.0
        for until, placement in self._vacating if first else ():
            if until > now and overlap(placement, action.placement):
                handover = max(handover, until - now)
        if not isinstance(action, pl.Start):
            assert run.placement is not None
            if self._moving is not None:
                gpus = max(run.placement.gpus, action.placement.gpus)
                delay = max(0.0, self._moving.migrate(run.job, gpus) - handover)
            else:
                handover = max(handover, self.cost.save(run.job))
        run.placement = action.placement
        run.size = action.placement.gpus / run.job.gpus
        run.since, run.progress_from, run.paused_until = now, now + handover + delay, now
        run.speed = run.going = 0.0
        run.epoch += 1
        run.lease_end = None if action.lease is None else now + action.lease
        self._running[action.job] = run
        entered.append((run.job, action.placement))
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
                    delays: Mapping[str, float]) -> list[ev.Event]:  # fmt: skip
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
            run.book(now, self.faults.checkpoint_interval)
            if job_id in delays:
                crash = self.faults.crash_after(job_id, run.retries, run.progress_from)
                run.crash_at = None if crash is None else run.progress_from + crash
            self._set_speed(now, run, step)
            if job_id not in quiet:
                measured.append(ev.Measured(job_id, run.speed, run.step, step.exposed_share,
                                            delays.get(job_id, 0.0), step.neighbours))  # fmt: skip
        if slices is not None:
            for end, wheel in slices.ends_of_turns():
                self._push(max(now, end), _SWITCH, wheel, wheel.epoch)
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
        if run.going > 0:
            begin = max(now, run.progress_from, run.paused_until)
            self._push(begin + max(0.0, run.target - run.done) / run.going, _FINISH, run, run.epoch)
        if run.lease_end is not None:
            self._lease(now, run, run.lease_end)
        if run.crash_at is not None:
            self._push(max(now, run.crash_at), _CRASH, run, run.epoch)

    def _lease(self, now: float, run: RunningJob, lease_end: float) -> None:
        """The lease ends at the first step boundary at or after its time."""
        run.lease_end = lease_end
        boundary = max(run.progress_from, lease_end)
        if run.step > 0:
            steps = -((run.progress_from - boundary) // run.step)
            boundary = run.progress_from + steps * run.step
        # rounding must not put the boundary before the end, or the scheduler would take it for an old lease
        self._push(max(now, boundary, lease_end), _LEASE, run, run.epoch)

    def _push(self, time: float, kind: int, what: object, epoch: int = 0) -> None:
        self._seq += 1
        heapq.heappush(self._heap, (time, _ORDER[kind], self._seq, kind, what, epoch))

