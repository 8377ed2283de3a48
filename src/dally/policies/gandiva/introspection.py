"""What jobs show of themselves: time per mini-batch, alone and beside others, with noise (OSDI'18).

Every job is watched for a number of mini-batches after each change. When they are over, the policy looks: a lone
job is profiled, a trial is judged. Nothing is looked at in between, however many jobs there are.
"""

from __future__ import annotations

import heapq
import random
from typing import NamedTuple

from dally.core.active import ActiveJob
from dally.core.policy import View


class Check(NamedTuple):
    """What is to be judged once the job has done its mini-batches."""

    partner: str | None = None  # packed beside this job: keep it or undo it
    before: float | None = None  # moved for locality: time per mini-batch where it was


class Verdict(NamedTuple):
    job: str
    check: Check
    seconds: float  # per mini-batch, measured
    partner_seconds: float = 0.0


class Introspection:
    """Watches jobs, one check at a time each."""

    def __init__(self, minibatches: int, seed: int, first_look: float) -> None:
        self.minibatches, self.seed, self.first_look = minibatches, seed, first_look
        self.alone: dict[str, float] = {}  # profiled jobs: seconds per mini-batch with the GPUs to themselves
        self.checks: dict[str, Check] = {}
        self._version: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._due: list[tuple[float, int, str, int]] = []  # when, order, job, version
        self._order = 0

    def watch(self, job_id: str, now: float, check: Check | None = None, pace: float | None = None) -> None:
        """From now on; whatever was watched of the job before is void. `pace`: expected seconds per mini-batch."""
        self.checks[job_id] = check or Check()
        self._version[job_id] = self._version.get(job_id, 0) + 1
        self._since[job_id] = now
        self._look(job_id, now + (self.first_look if pace is None else max(1e-6, pace) * self.minibatches))

    def _look(self, job_id: str, when: float) -> None:
        self._order += 1
        heapq.heappush(self._due, (when, self._order, job_id, self._version[job_id]))

    def forget(self, job_id: str) -> None:
        self.checks.pop(job_id, None)
        self._version.pop(job_id, None)
        self._since.pop(job_id, None)
        self.alone.pop(job_id, None)

    def stop(self, job_id: str) -> None:
        """No more to be judged; its profile stays."""
        self.checks.pop(job_id, None)

    def next_look(self) -> float | None:
        due = self._due
        while due and (due[0][2] not in self.checks or self._version.get(due[0][2]) != due[0][3]):
            heapq.heappop(due)
        return due[0][0] if due else None

    def verdicts(self, view: View, now: float) -> list[Verdict]:
        """Jobs that have done their mini-batches by now."""
        found = []
        while (when := self.next_look()) is not None and when <= now:
            job_id = heapq.heappop(self._due)[2]
            check = self.checks[job_id]
            jobs = [view.job(job_id)] + ([view.job(check.partner)] if check.partner else [])
            left = max(self._seconds_left(view, job, self._since[job_id], now) for job in jobs)
            if left > 0:
                self._look(job_id, now + left)
                continue
            del self.checks[job_id]
            times = [view.minibatch_time(job, now, self.seed) or 0.0 for job in jobs]
            found.append(Verdict(job_id, check, *times))
        return found

    def _seconds_left(self, view: View, job: ActiveJob, since: float, now: float) -> float:
        """Until the job has done its mini-batches, at the pace it has had since it is watched."""
        done = view.minibatches(job, now)
        if done >= self.minibatches:
            return 0.0
        passed = now - max(since, job.progress_from)
        if done < 1 or passed <= 0:
            return max(self.first_look, passed, job.progress_from - now)  # twice as long each time
        return max(passed * (self.minibatches - done) / done, 1e-3 * self.first_look, 1e-6 * now)

    def utilization(self, job: ActiveJob) -> float:
        """Share of the time its GPU is busy, as a profile shows it: within a few per cent, the same each time."""
        from dally.catalog.interference import use_of

        true = use_of(job.job.model).utilization
        noise = random.Random(f"{self.seed}/utilization/{job.id}").gauss(0.0, 0.02)
        return min(1.0, max(0.01, true + noise))
