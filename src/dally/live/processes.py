"""A world of real processes on this machine: the same scheduler and policies on a wall clock.

A job is a command. It is told its GPUs in `DALLY_GPUS` (numbers in the cluster) and asked to leave with SIGTERM;
exit code 0 is the end of the job, 143 (or death by that SIGTERM) a checkpoint saved and the GPUs yielded, anything
else a crash.
"""

from __future__ import annotations

import heapq
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.clock import Clock
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Rejected
from dally.core.placement import Placement
from dally.core.topology import Topology

YIELDED = 128 + signal.SIGTERM  # what a job that saved its checkpoint exits with


class _Process:
    def __init__(self, action: pl.Start, popen: subprocess.Popen[bytes]) -> None:
        self.job, self.placement, self.popen = action.job, action.placement, popen
        self.asked_to_leave = False
        self.moves_to: pl.Start | None = None


class ProcessWorld:
    """Implements `core.scheduler.World` with one process per running job."""

    def __init__(self, topology: Topology, submissions: Sequence[tuple[Job, Sequence[str]]], clock: Clock, *,
                 retries: int = 0, grace: float = 10.0) -> None:  # fmt: skip
        self.topology, self.clock, self.retries, self.grace = topology, clock, retries, grace
        self._commands = {job.id: list(command) for job, command in submissions}
        self._arrivals = sorted((job for job, _ in submissions), key=lambda job: job.submit_time)
        self._unended = len(self._arrivals)
        self._crashes: dict[str, int] = {}
        self._processes: dict[str, _Process] = {}
        self._held_up: list[pl.Start] = []  # starts that wait for somebody to leave their GPUs
        self._due: list[tuple[float, int, ev.Event]] = []  # timers and leases
        self._exits: queue.Queue[tuple[str, int]] = queue.Queue()
        self._seq = 0

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        """Sleep until something happens; everything that has happened by then is one instant."""
        while self._unended:
            events = self._gather()
            if events:
                return self.clock.now(), sorted(events, key=lambda event: ev.ORDER[type(event)])
            if not self._processes and not self._arrivals and not self._due:
                return None  # jobs wait and nothing can ever happen: not even a timer is set
            try:
                self._exited(*self._exits.get(timeout=self._patience()), events)
            except queue.Empty:
                continue
            if events:
                return self.clock.now(), events + self._gather()
        return None

    def _patience(self) -> float:
        """Seconds until the next arrival, timer or lease."""
        times = [self._arrivals[0].submit_time] if self._arrivals else []
        times += [self._due[0][0]] if self._due else []
        return max(0.0, min(times, default=3600.0 + self.clock.now()) - self.clock.now())

    def _gather(self) -> list[ev.Event]:
        now = self.clock.now()
        events: list[ev.Event] = []
        while not self._exits.empty():
            self._exited(*self._exits.get(), events)
        while self._due and self._due[0][0] <= now:
            event = heapq.heappop(self._due)[2]
            if not isinstance(event, ev.LeaseEnded) or event.job in self._processes:
                events.append(event)
        while self._arrivals and self._arrivals[0].submit_time <= now:
            events.append(ev.Arrived(self._arrivals.pop(0)))
        return events

    def _exited(self, job_id: str, code: int, events: list[ev.Event]) -> None:
        process = self._processes.pop(job_id)
        if code == 0:
            self._unended -= 1
            events.append(ev.Finished(job_id))
        elif process.moves_to is not None:
            self._held_up.append(process.moves_to)
        elif process.asked_to_leave:
            events.append(ev.Yielded(job_id))
        else:
            self._crashes[job_id] = self._crashes.get(job_id, 0) + 1
            if self._crashes[job_id] > self.retries:
                self._unended -= 1
                events.append(ev.Failed(job_id))
            else:
                events.append(ev.Interrupted(job_id, 0.0, f"exit code {code}; it is retried"))
        ready = [start for start in self._held_up if not self._occupied(start.placement)]
        self._held_up = [start for start in self._held_up if start not in ready]
        for start in ready:
            self._launch(start)

    def carry_out(self, now: float, actions: Sequence[pl.Action | Rejected]) -> Sequence[ev.Event]:
        consequences: list[ev.Event] = []
        for action in actions:
            _refuse_shares(action)
        for action in actions:
            if isinstance(action, pl.Preempt):
                consequences += self._ask_to_leave(action.job)
            elif isinstance(action, pl.Migrate):
                self._ask_to_leave(action.job)
        for action in actions:
            if isinstance(action, pl.Start):
                if self._occupied(action.placement):
                    self._held_up.append(action)
                else:
                    self._launch(action)
                if action.lease is not None:
                    self._later(now + action.lease, ev.LeaseEnded(action.job))
                # until a job reports its steps, a second of running is a second of work
                consequences.append(ev.Measured(action.job, 1.0, 1.0, 0.0))
            elif isinstance(action, pl.Extend):
                self._later(now + action.lease, ev.LeaseEnded(action.job))
            elif isinstance(action, pl.WakeAt):
                self._later(action.time, ev.TimerDue())
            elif isinstance(action, pl.Migrate):
                self._move(action)
            elif isinstance(action, Rejected):
                self._unended -= 1
        return consequences

    def _move(self, action: pl.Migrate) -> None:
        """A process moves by leaving with its checkpoint and starting again elsewhere."""
        again = pl.Start(action.job, action.placement, action.lease)
        process = self._processes.get(action.job)
        if process is None:
            self._held_up.append(again)  # it had not begun yet
        else:
            process.moves_to = again

    def _ask_to_leave(self, job_id: str) -> list[ev.Event]:
        held_up = [start for start in self._held_up if start.job == job_id]
        if held_up:
            self._held_up.remove(held_up[0])  # it never began: there is nothing to save
            return [ev.Yielded(job_id)]
        process = self._processes[job_id]
        process.asked_to_leave = True
        process.popen.send_signal(signal.SIGTERM)
        timer = threading.Timer(self.grace, process.popen.kill)  # who does not leave in time is put out
        timer.daemon = True
        timer.start()
        return []

    def _launch(self, action: pl.Start) -> None:
        gpus = ",".join(map(str, action.placement.gpu_numbers(self.topology)))
        environment: Mapping[str, str] = {**os.environ, "DALLY_JOB": action.job, "DALLY_GPUS": gpus}
        popen = subprocess.Popen(self._commands[action.job], env=environment, stdin=subprocess.DEVNULL)
        self._processes[action.job] = _Process(action, popen)
        threading.Thread(target=lambda: self._exits.put((action.job, popen.wait())), daemon=True).start()

    def _occupied(self, placement: Placement) -> bool:
        wanted = dict(placement.slices)
        return any(wanted.get(machine, 0) & mask
                   for process in self._processes.values() for machine, mask in process.placement.slices)  # fmt: skip

    def _later(self, time: float, event: ev.Event) -> None:
        self._seq += 1
        heapq.heappush(self._due, (time, self._seq, event))

    def close(self) -> None:
        """Leave no process behind."""
        for process in self._processes.values():
            process.popen.kill()


def _refuse_shares(action: pl.Action | Rejected) -> None:
    """Processes can neither be suspended and packed nor resized from outside yet: say so before anything starts."""
    shares = isinstance(action, (pl.Start, pl.Migrate)) and action.share is not None
    if shares or isinstance(action, (pl.Reshare, pl.Resize)):
        what = "resized" if isinstance(action, pl.Resize) else "given a share of GPUs"
        raise UserError(f"job {action.job!r} was to be {what}, which real processes here cannot do yet; "  # type: ignore[union-attr]
                        "choose a policy that gives whole GPUs")  # fmt: skip
