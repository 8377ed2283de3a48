"""Attempts as the engine is told of them: starts, moves, leaving, leases, and whose turn it is.

A start waits until everybody has left its GPUs. A job moves by leaving with its checkpoint and starting again
elsewhere. An engine may forget the end of an attempt once it is written: it is told so one instant later.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.agenda import Agenda
from dally.core.clock import Clock
from dally.core.journal import Decided, Rejected
from dally.core.records import dataclass
from dally.core.sharing import Groups
from dally.core.topology import Topology
from dally.live.attempts import Attempt, Key, Leaving, Terms
from dally.live.engine import Engine, Order, Program, Report
from dally.live.turns import Turns


@dataclass(frozen=True, slots=True)
class LiveRules:
    retries: int = 0  # crashes, and starts that fail, that a job survives
    start_timeout: float | None = 60.0  # seconds after which a start of which nothing is heard has failed; None: never
    longest_wait: float = 3600.0  # seconds the engine may be left alone where nothing is due


class Attending(ABC):
    """Who runs, who is to, who leaves; carries out what is decided. What the engine reports is heard by `LiveWorld`."""

    def __init__(self, topology: Topology, engine: Engine, clock: Clock, rules: LiveRules | None = None) -> None:
        self.engine, self.clock, self.rules = engine, clock, rules or LiveRules()
        self.topology = topology
        self.programs: dict[str, Program] = {}
        self.terms: dict[str, Terms] = {}
        self.names: dict[str, str] = {}  # what people call their jobs
        self.references: dict[str, float] = {}  # seconds of a step at full speed, where that is known
        self.jobs: Mapping[str, ActiveJob] = {}  # of the scheduler this world serves; it counts failures and work
        self._turn_ends: float | None = None
        self._inbox: queue.SimpleQueue[ev.Event | Requeued] = queue.SimpleQueue()
        self._heard: deque[Report] = deque()  # reports that wait for the next instant
        self._agenda = Agenda()
        self._current: dict[str, Attempt] = {}  # the one that counts, be it waiting for its GPUs
        self._told: dict[Key, Attempt] = {}  # all the engine was told of and that are not over
        self._queue: list[Attempt] = []  # decided, and waiting for somebody to leave their GPUs
        self._over: list[Key] = []  # ended; once that is written the engine may forget them
        self._numbers: dict[str, int] = {}  # attempts so far
        self._unended: set[str] = set()
        self._leases: dict[str, int] = {}  # which of a job's leases counts
        self._turns: Turns | None = None

    def take_turns(self, groups: Callable[[], Groups]) -> None:
        """Jobs may share GPUs, as these groups say."""
        self._turns = Turns(self.engine, groups)

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        for action in decided:
            if isinstance(action, pl.Preempt):
                self._ask_to_leave(action.job, Leaving.PREEMPTED)
        for action in decided:
            if isinstance(action, pl.Start):
                self._queue.append(self._attempt(now, action))
            elif isinstance(action, pl.Migrate):
                self._move(now, action)
            elif isinstance(action, pl.Extend):
                self._lease(now + action.lease, action.job)
            elif isinstance(action, pl.WakeAt):
                self._agenda.enter(action.time, ev.TimerDue, ring)
            elif isinstance(action, pl.Stop):
                self._put_out(action.job)
            elif isinstance(action, Rejected):
                self._unended.discard(action.job)
        self._give_gpus()
        self._give_turns(now)
        return ()

    def _attempt(self, now: float, action: pl.Start | pl.Migrate) -> Attempt:
        number = self._numbers[action.job] = self._numbers.get(action.job, 0) + 1
        attempt = self._current[action.job] = Attempt(Key(action.job, number), action.placement)
        attempt.saved = self.jobs[action.job].work_done if action.job in self.jobs else 0.0
        self._lease(None if action.lease is None else now + action.lease, action.job)
        return attempt

    def _move(self, now: float, action: pl.Migrate) -> None:
        """A job moves by leaving with its checkpoint and starting again elsewhere."""
        here = self._current.get(action.job)
        there = self._attempt(now, action)
        if here is None or here.key not in self._told:
            self._queue.append(there)
            return
        there.saved = here.saved
        here.moves_to, here.leaving = there, Leaving.MOVES
        self.engine.stop(*here.key, self.programs[action.job].grace)

    def _ask_to_leave(self, job_id: str, why: Leaving) -> None:
        attempt = self._current.get(job_id)
        if attempt is not None and attempt.key in self._told and attempt.leaving is Leaving.NOT:
            attempt.leaving = why
            self.engine.stop(*attempt.key, self.programs[job_id].grace)

    def _put_out(self, job_id: str) -> None:
        """At once: nobody is interested in its checkpoint."""
        for attempt in [each for each in self._queue if each.job == job_id]:
            self._without(attempt)
        self._current.pop(job_id, None)
        for key, attempt in self._told.items():
            if key.job == job_id:
                attempt.leaving, attempt.moves_to = Leaving.UNWANTED, None
                self.engine.stop(*key, 0.0)
        running = self.engine.running().get(job_id)
        if running is not None and Key(job_id, running) not in self._told:
            self.engine.stop(job_id, running, 0.0)

    def _give_gpus(self) -> None:
        """Start those whose GPUs everybody else has left."""
        for attempt in list(self._queue):
            if self._occupied(attempt):
                continue
            self._queue.remove(attempt)
            self._told[attempt.key] = attempt
            names = tuple(self.topology.machine_names[machine] for machine, _ in attempt.placement.slices)
            program = self.programs[attempt.job]
            program = replace(program, reference=self.references.get(attempt.job, program.reference))
            self.engine.start(Order(*attempt.key, attempt.placement, names, program,
                                    restarts=attempt.key.number - 1, name=self.names.get(attempt.job, "")))  # fmt: skip
            self._over += [attempt.follows] if attempt.follows is not None else []
            self._expect_to_hear_of(attempt)

    def _give_turns(self, now: float) -> None:
        if self._turns is not None:
            begun = {job: attempt.key for job, attempt in self._current.items()
                     if attempt.began and attempt.leaving is Leaving.NOT}  # fmt: skip
            self._turn_ends = self._turns.look(now, begun)

    def _expect_to_hear_of(self, attempt: Attempt) -> None:
        if self.rules.start_timeout is not None:
            self._agenda.enter(self.clock.now() + self.rules.start_timeout, ev.StartFailed, self._not_heard_of, attempt)

    @abstractmethod
    def _not_heard_of(self, now: float, attempt: Attempt, epoch: int, events: list[ev.Event]) -> None:
        """Called where nothing is heard of a start for too long."""

    def _occupied(self, wants: Attempt) -> bool:
        """By somebody who has to leave first: not by those it shares its GPUs with."""
        wanted = dict(wants.placement.slices)
        for key, other in self._told.items():
            if key.job == wants.job:
                return True
            shares = self._turns is not None and other.leaving is Leaving.NOT and other.placement == wants.placement
            if not shares and any(wanted.get(machine, 0) & mask for machine, mask in other.placement.slices):
                return True
        return False

    def _lease(self, end: float | None, job_id: str) -> None:
        """A new lease, or none, in the place of the one before."""
        epoch = self._leases[job_id] = self._leases.get(job_id, 0) + 1
        if end is not None:
            self._agenda.enter(end, ev.LeaseEnded, self._lease_ends, job_id, epoch)

    def _lease_ends(self, now: float, job_id: str, epoch: int, events: list[ev.Event]) -> None:
        if self._leases.get(job_id) == epoch and job_id in self._current:
            events.append(ev.LeaseEnded(job_id))

    def _without(self, attempt: Attempt | None) -> None:
        """An attempt that was to follow does not."""
        if attempt is not None:
            self._queue = [each for each in self._queue if each is not attempt]
            self._over += [attempt.follows] if attempt.follows is not None else []
            if self._current.get(attempt.job) is attempt:
                del self._current[attempt.job]

    def _call_back(self, job_id: str, why: Leaving) -> list[ev.Event]:
        """A start that waits for its GPUs is not made; of a move only the leaving is left."""
        attempt = self._current.get(job_id)
        if attempt is None or attempt.key in self._told:
            return []
        self._without(attempt)
        for here in self._told.values():
            if here.moves_to is attempt:
                here.moves_to, here.leaving = None, why
                self._current[job_id] = here
                return []
        return [ev.StartFailed(job_id, why.value)]


class Requeued:
    """Somebody wants a job to leave its GPUs and wait again."""

    __slots__ = ("job",)

    def __init__(self, job: str) -> None:
        self.job = job


def ring(now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
    if not any(isinstance(event, ev.TimerDue) for event in events):
        events.append(ev.TimerDue())
