"""After a restart: what the scheduler believes to run, against what the engine really runs.

Attempts that go on, have ended, are gone, never began, or run though nobody knows them: the differences are the first
events of the service that comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.core.states import ENDED, State
from dally.live.attempts import Attempt, Key, Leaving
from dally.live.attending import Attending, ring

_STRANGERS = 60.0  # seconds that somebody whom nobody knows has to leave
Put = Callable[[str, int], tuple[Placement, bool] | None]


class TakingUp(Attending):
    """Attempts of a service before this one, taken up."""

    def reconcile(self, jobs: Iterable[ActiveJob], timer: float | None, put: Put | None = None) -> None:
        """Take up what a scheduler that came back believes, against what the engine really runs: attempts that go on,
        have ended, are gone, never began, or run though nobody knows them. The differences are the first events.
        `put`: where an attempt was put, and whether another one follows it at once; the scheduler knows that only of
        those that are not leaving."""
        running = dict(self.engine.running())
        if timer is not None:
            self._agenda.enter(timer, ev.TimerDue, ring)
        for job in jobs:
            self._numbers[job.id] = job.attempts
            if job.job.reference is not None:
                self.references[job.id] = job.job.reference
            number = running.pop(job.id, None)
            if job.state in ENDED:
                known = False
            else:
                self._unended.add(job.id)
                known = self._take_up(job, number, put or _nobody_knows)
            if number is not None and not (known and Key(job.id, number) in self._told):
                self._put_out_stranger(Key(job.id, number))
        for stranger, number in running.items():
            self._put_out_stranger(Key(stranger, number))

    def _take_up(self, job: ActiveJob, number: int | None, put: Put) -> bool:
        """An attempt that should be running, or leaving: the engine is asked what became of it."""
        placement = job.placement
        if placement is None and job.leaving is not None:  # others may have been promised some of it already
            where = put(job.id, job.attempts)
            placement = job.leaving if where is None else where[0]
        if placement is None:
            return False
        attempt = self._current[job.id] = Attempt(Key(job.id, job.attempts), placement)
        attempt.adopted = True
        before = put(job.id, job.attempts - 1)
        if job.state is State.STARTING and before is not None and before[1] and number != job.attempts:
            self._take_up_move(attempt, before[0])
            return True
        self._told[attempt.key] = attempt
        attempt.began = job.state in (State.RUNNING, State.YIELDING)
        self.engine.adopt(*attempt.key)
        if job.state is State.STARTING:
            self._expect_to_hear_of(attempt)
        elif job.state is State.LOST:
            attempt.began = True
            self._inbox.put(ev.ContactRestored(job.id))
        if job.placement is None:
            self._ask_to_leave(job.id, Leaving.PREEMPTED)
        if job.lease_until is not None:
            self._lease(job.lease_until, job.id)
        return True

    def _take_up_move(self, there: Attempt, where: Placement) -> None:
        """A job on its way to other GPUs: the engine is asked about the attempt that leaves, whose grace goes on, and
        about the one that follows only when that is over."""
        here = Attempt(Key(there.job, there.key.number - 1), where)
        here.adopted = here.began = True
        here.leaving, here.moves_to = Leaving.MOVES, there
        self._told[here.key] = here
        self.engine.adopt(*here.key)
        self.engine.stop(*here.key, self.programs[there.job].grace)  # of one that was asked before: nothing new

    def _put_out_stranger(self, key: Key) -> None:
        """What runs though nobody decided it: its GPUs are not given to anybody before it is gone."""
        self.engine.stop(*key, 0.0)
        deadline = self.clock.now() + (self.rules.start_timeout or _STRANGERS)
        while self.engine.running().get(key.job) == key.number and self.clock.now() < deadline:
            self._heard.extend(self.engine.observe(0.05))


def _nobody_knows(job: str, attempt: int) -> None:
    return None
