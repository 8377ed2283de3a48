"""Runs that get nowhere: a policy that leaves jobs waiting for ever, is woken in vain, or moves jobs in circles.

A policy may wait as long as it likes while something happens. What is named here is a run in which nothing will, and a
run that decides and decides while no job arrives, ends or gets on.
"""

from __future__ import annotations

from dally.core.errors import RunError
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.core.units import show_time

IDLE = 10_000  # decisions in a row with jobs waiting, GPUs free for them and nobody on any
MOVING = 10_000  # decisions in a row in which nobody got on, and
MOVES = 1_000  # so many starts among them
FAILURES = 5_000  # starts among them, where failures throw jobs back, and
LOOKS = 3  # so many times in a row
CROWDED = 50_000  # decisions in a row without an arrival or an end, on average less than
APART = 0.01  # seconds of simulated time apart


def forgotten(scheduler: Scheduler) -> str | None:
    """What is wrong where the world has nothing more to report and somebody waits who could run; None where nobody
    does. While a machine is down for good, waiting for it may be what the policy wants."""
    found = _could_run(scheduler)
    if found is None:
        return None
    job, waiting, free = found
    return (f"leaves job {job!r} waiting for ever: {waiting:,} job{'s wait' if waiting > 1 else ' waits'} at the end, "
            f"{free:,} GPUs are free, nothing runs and it asks for no wake-up (did its plan forget to start them?)")


def _could_run(scheduler: Scheduler) -> tuple[str, int, int] | None:
    """A waiting job that the free GPUs could hold, how many wait, and how many GPUs are free; None where there is none,
    somebody still has GPUs, or a machine is down."""
    books, view = scheduler.books, scheduler.view
    if books.holding or view.down:
        return None
    free = {kind: pool.total for kind, pool in view.free.pools.items()}
    for demand, bucket in view.waiting.buckets.items():
        room = max(free.values(), default=0) if demand.gpu_type is None else free.get(demand.gpu_type, 0)
        if room >= demand.gpus:
            return bucket.job(0).id, len(view.waiting), sum(free.values())
    return None


class Circles:
    """Looked at every now and then between two decisions; raises where the run goes in circles."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._known = (-1, -1)  # jobs that have arrived, and that have ended
        self._decisions = 0  # when that last changed
        self._since = 0.0
        self._held = False  # whether anybody had GPUs at any look since
        self._work: dict[str, float] = {}
        self._best: dict[str, float] = {}  # the most that each had done at any look
        self._in_vain = 0  # looks in a row at which nobody had got further
        self._starts = 0
        self._looked = 0

    def look(self, now: float, decisions: int, ended: int) -> None:
        """`decisions`: so many so far; `ended`: jobs that have."""
        known = (self.scheduler.books.arrivals, ended)
        if known != self._known:
            self._known, self._decisions, self._since, self._held = known, decisions, now, False
            self._looked, self._work, self._best, self._in_vain = decisions, {}, {}, 0
            return
        lately = decisions - self._decisions
        self._held = self._held or bool(self.scheduler.books.holding)
        if lately >= IDLE and not self._held:
            self._never_starts(now, lately)
        if lately >= CROWDED and now - self._since < lately * APART:
            raise self._error(f"goes in circles: {lately:,} decisions within {show_time(now - self._since)} of "
                              "simulated time, and no job arrived or ended meanwhile (does it ask to be woken too "
                              "soon?)")  # fmt: skip
        if decisions - self._looked >= MOVING:
            self._gets_nowhere(now, decisions - self._looked)
            self._looked = decisions

    def _never_starts(self, now: float, lately: int) -> None:
        found = _could_run(self.scheduler)
        if found is not None:
            job, waiting, free = found
            raise self._error(f"goes in circles: it was woken {lately:,} times in a row and starts nobody, "
                              f"though {free:,} GPUs are free and {waiting:,} jobs wait, {job!r} among them")

    def _gets_nowhere(self, now: float, lately: int) -> None:
        alive = [job for job in self.scheduler.jobs.values() if job.state not in ENDED]
        work = {job.id: job.work_at(now) for job in alive}
        starts = sum(job.attempts for job in alive)
        before, started = self._work, starts - self._starts
        self._work, self._starts = work, starts
        further = any(done > self._best.get(name, -1.0) for name, done in work.items())
        self._in_vain = self._in_vain + 1 if before and started >= FAILURES and not further else 0
        if self._in_vain >= LOOKS:
            raise self._error(f"gets nowhere: of {started:,} attempts in the last {lately:,} decisions, and of those "
                              "before them, none got further than an earlier one, and none of the "
                              f"{len(alive):,} jobs there are ended (do they fail faster than they can be done?)")
        self._best = {name: max(done, self._best.get(name, -1.0)) for name, done in work.items()}
        if before and started >= MOVES and all(done <= before.get(name, -1.0) for name, done in work.items()):
            running = sum(job.state is State.RUNNING for job in alive)
            raise self._error(f"goes in circles: in the last {lately:,} decisions it started jobs {started:,} times, "
                              f"and none of the {len(alive):,} there are got on by a step ({running:,} run at the "
                              "moment); jobs that are stopped before they have loaded their checkpoint do no work")

    def _error(self, what: str) -> RunError:
        return RunError(self.scheduler.policy.name, what)
