"""What jobs show of themselves: time per mini-batch, alone and beside others, with noise (OSDI'18).

Every job is watched for a number of mini-batches after each change. When they are over, the policy looks: a lone
job is profiled, a trial is judged. Nothing is looked at in between, however many jobs there are.
"""

from __future__ import annotations

import math
import random
from typing import Final, NamedTuple

from dally.core.active import ActiveJob
from dally.core.policy import View
from dally.core.states import State
from dally.policies.gandiva.memory import Check, GandivaMemory, Watch

_PROFILE: Final = Check()  # nothing but how fast it is
_NOISE: Final = 0.02  # sigma of a utilisation
_FARTHEST: Final = 8.6  # sigmas that noise can be off: of 53 random bits `gauss` makes at most √(2·ln 2⁵³) = 8.57


class Verdict(NamedTuple):
    job: str
    check: Check
    seconds: float  # per mini-batch, measured
    partner_seconds: float = 0.0


class Introspection:
    """Watches jobs, one check at a time each."""

    def __init__(self, minibatches: int, seed: int, first_look: float) -> None:
        self.minibatches, self.seed, self.first_look = minibatches, seed, first_look
        self._utilization: dict[str, float] = {}  # as worked out before
        self._busy: dict[str | None, float] = {}  # of a model, by the catalog
        self._chance = random.Random(0)  # made once: to seed it again takes less than a new one does

    def watch(self, memory: GandivaMemory, job_id: str, now: float, check: Check | None = None,
              pace: float | None = None) -> None:  # fmt: skip
        """From now on; whatever was watched of the job before is void. `pace`: expected seconds per mini-batch."""
        when = now + (self.first_look if pace is None else max(1e-6, pace) * self.minibatches)
        self._look(memory, job_id, check or _PROFILE, now, when)

    @staticmethod
    def _look(memory: GandivaMemory, job_id: str, check: Check, since: float, when: float) -> None:
        looks, watched = memory.looks, memory.watched
        before = watched.get(job_id)
        if before is not None:
            looks.remove(before.due)
        due = (when, memory.next(), job_id)
        looks.add(due)
        watched[job_id] = Watch(check, since, due)

    def forget(self, memory: GandivaMemory, job_id: str) -> None:
        self.stop(memory, job_id)
        if job_id in memory.alone:
            del memory.alone[job_id]
        if job_id in self._utilization:
            del self._utilization[job_id]

    @staticmethod
    def stop(memory: GandivaMemory, job_id: str) -> None:
        """No more to be judged; its profile stays."""
        watched = memory.watched
        watch = watched.get(job_id)
        if watch is not None:
            memory.looks.remove(watch.due)
            del watched[job_id]

    @staticmethod
    def next_look(memory: GandivaMemory) -> float:
        looks = memory.looks
        return looks[0][0] if looks else math.inf

    def verdicts(self, view: View, memory: GandivaMemory, now: float) -> list[Verdict]:
        """Jobs that have done their mini-batches by now."""
        found = []
        looks = memory.looks
        while looks and looks[0][0] <= now:
            job_id = looks[0][2]
            check, since, _ = memory.watched[job_id]
            job, partner = view.job(job_id), view.job(check.partner) if check.partner else None
            left = self._seconds_left(view, job, since, now)
            if partner is not None:
                left = max(left, self._seconds_left(view, partner, since, now))
            if left > 0:
                self._look(memory, job_id, check, since, now + left)
                continue
            self.stop(memory, job_id)
            seconds = view.minibatch_time(job, now, self.seed) or 0.0
            beside = 0.0 if partner is None else view.minibatch_time(partner, now, self.seed) or 0.0
            found.append(Verdict(job_id, check, seconds, beside))
        return found

    def _seconds_left(self, view: View, job: ActiveJob, since: float, now: float) -> float:
        """Until the job has done its mini-batches, at the pace it has had since it is watched."""
        done = view.minibatches(job, now)
        runs = job.state is State.RUNNING
        if done >= self.minibatches and runs:
            return 0.0
        passed = now - max(since, job.progress_from)
        if done < 1 or passed <= 0 or not runs:
            return max(self.first_look, passed, job.progress_from - now)  # twice as long each time
        return max(passed * (self.minibatches - done) / done, 1e-3 * self.first_look, 1e-6 * now)

    def utilization(self, job: ActiveJob) -> float:
        """Share of the time its GPU is busy, as a profile shows it: within a few per cent, the same each time."""
        found = self._utilization.get(job.id)
        if found is None:
            self._chance.seed(f"{self.seed}/utilization/{job.id}")
            noise = self._chance.gauss(0.0, _NOISE)
            found = self._utilization[job.id] = min(1.0, max(0.01, self._true(job.job.model) + noise))
        return found

    def least_utilization(self, job: ActiveJob) -> float:
        """What a profile cannot show less than; where there is one, what it shows. Takes next to nothing."""
        found = self._utilization.get(job.id)
        return max(0.01, self._true(job.job.model) - _FARTHEST * _NOISE) if found is None else found

    def _true(self, model: str | None) -> float:
        found = self._busy.get(model)
        if found is None:
            from dally.catalog.interference import use_of

            found = self._busy[model] = use_of(model).utilization
        return found
