"""The thread that decides: brings the scheduler back from the store, compares it with what really runs, and goes on.

Nothing is acted on before it is written. Where the store does not answer, the decision waits for it, whole: the same
instant is tried again, and if it turns out that it was written after all, everything is read from the store anew.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dally.core import events as ev
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Instant, Journal, Refused
from dally.core.placement import Placement
from dally.core.queues import Queue
from dally.core.records import dataclass
from dally.core.snapshot import save
from dally.core.topology import Topology, spec_of
from dally.live.attempts import Terms
from dally.live.attending import LiveRules
from dally.live.board import Board, Row, new_row
from dally.live.clock import ServiceClock
from dally.live.coming_back import come_back
from dally.live.durations import Past
from dally.live.engine import Engine
from dally.live.even import made_even
from dally.live.held_back import HeldBack
from dally.live.roster import Roster
from dally.live.spec import JobSpec, read_spec, to_job, to_program
from dally.live.world import LiveWorld
from dally.policies.options import make_policy
from dally.store.database import Database, Request, Submission
from dally.store.errors import StoreUnavailableError

log = logging.getLogger("dally.service")

SNAPSHOT_EVERY = 1000  # instants
MOST_PAST = 5000  # jobs that finished, whose durations estimates go by


class Reopen(Exception):  # noqa: N818 - it says what to do
    """What this process believes is not what the store holds: begin again from the store."""


@dataclass(slots=True)
class Hooks:
    """Who wants to know."""

    written: Callable[[int, str], None] = lambda number, line: None
    decided: Callable[[float], None] = lambda seconds: None
    waited: Callable[[float], None] = lambda seconds: None


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the service is configured, where the journal may have it otherwise."""

    policy: str
    topology: Topology | None = None  # None: as it is
    queues: tuple[Queue, ...] = ()


class Driver:
    """Everything that happens between taking the lead and letting it go. Others use `know`, `feed` and `lock`."""

    def __init__(self, database: Database, engine: Engine, wanted: Wanted, rules: LiveRules, hooks: Hooks) -> None:
        self.database, self.engine, self.rules, self.hooks = database, engine, rules, hooks
        self.lock = threading.RLock()  # of the scheduler, while somebody looks at it or it decides
        self.roster = Roster()
        self.specs, self.submissions = self.roster.specs, self.roster.submissions
        self.ended: Counter[str] = Counter()  # jobs by how they ended, from the first on
        self.past: deque[Past] = deque(maxlen=MOST_PAST)  # how long jobs took that finished
        self._leaving: list[str] = []  # ended, and not yet out of memory
        self.held_back = HeldBack()
        self.stopped_asking = False  # True: nothing new is started any more
        self._wanted = wanted
        self._inbox: queue.SimpleQueue[Submission | Request] = queue.SimpleQueue()
        self._answered: list[int] = []
        self._open_for: dict[str, list[int]] = {}  # requests about jobs that are held back, until these come in or end
        self._some_ended = True  # since those who wait for others were last looked at
        self._last_submission = self._last_request = 0  # read from the store
        self._open()

    # --- from the store ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        database = self.database
        self._last_submission = database.newest_submission()
        unended = database.unended()
        self.board = Board({known.submission.id: known.row for known in unended if known.row is not None})
        self.ended.update(database.ended())
        self.past.extend(_past(read_spec(submission.spec), row) for _, submission, row in
                         database.last_finished(MOST_PAST) if row is not None)  # fmt: skip
        self.scheduler, self.learned = come_back(database, self._wanted.policy)
        self.clock = ServiceClock(database.made, self.scheduler.time)
        self.scheduler.journal = journal = Journal(self._write)
        journal.instants = database.instants
        database.begin_text(self.scheduler.view.topology)
        self.world = LiveWorld(self.scheduler.view.topology, self.engine, self.clock, self.rules)
        self.world.jobs, self.scheduler.world = self.scheduler.jobs, self.world
        self.world.outside, self.world.fleet = self._take_in, self.scheduler.books.fleet
        if self.engine.shares:
            self.world.take_turns(lambda: self.scheduler.view.groups)
        self._snapshot_at = database.instants
        for _, submission, _ in unended:
            self.know(submission)
        self.world.reconcile(self.scheduler.jobs.values(), self.scheduler.books.timer, self._put)
        for submission in self.submissions.values():
            if submission.id not in self.scheduler.jobs and submission.id not in self.board.rows:
                self._inbox.put(submission)
            elif self._ending(submission.id) is None:
                self.held_back.is_in(submission.id, self.specs[submission.id])
        for request in database.open_requests():
            self._last_request = request.seq
            self._inbox.put(request)
        self._follow_configuration()
        if len(self.scheduler.view.waiting):  # who came back to the queue as the service stopped was not planned with
            self.world.nudge()

    def _put(self, job: str, attempt: int) -> tuple[Placement, bool] | None:
        return self.board.put(job, attempt, self.scheduler.view.topology)

    def catch_up(self) -> None:
        """What was written while this driver came up, by people who knew only the one before it."""
        self.take((submission, None) for _, submission in self.database.submissions(self._last_submission))
        for request in self.database.open_requests(self._last_request):
            self.feed(request)

    def know(self, submission: Submission, spec: JobSpec | None = None) -> None:
        """What a job runs, from what was handed in. From any thread."""
        spec = spec or read_spec(submission.spec)
        self.roster.add(submission, spec)
        self.world.programs[submission.id] = to_program(spec, submission.id)
        self.world.terms[submission.id] = Terms(spec.retries, tuple(spec.requeue_on))
        self.world.names[submission.id] = spec.title

    def _follow_configuration(self) -> None:
        """Where policy, cluster or queues are configured otherwise than last time, that counts from now on."""
        wanted = self._wanted
        before = self.database.note("policy")
        if before is not None and before != wanted.policy:
            try:
                self.put_in_charge(wanted.policy)
            except UserError as error:  # jobs share GPUs, say: the next start tries it again
                log.error("policy %s is not put in charge, %s stays: %s", wanted.policy, before, error)
                wanted = replace(wanted, policy=before)
        self.database.note("policy", wanted.policy)
        if wanted.topology is not None:
            event = _to_this(self.scheduler.view.topology, wanted.topology)
            if event is not None:
                self.world.report(event)
        self.set_queues(wanted.queues)

    def set_queues(self, queues: tuple[Queue, ...]) -> None:
        """Queues as configured; nothing happens where they are these already. From any thread."""
        gate = self.scheduler.books.door.gate
        if queues != (() if gate is None else gate.queues):
            self.world.report(ev.QueuesSet(queues))

    # --- going on ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the world is told to quit. Raises `FencedError` where somebody else leads."""
        while (found := self.world.next_events()) is not None:
            self._step(*found)
            if self.database.instants - self._snapshot_at >= SNAPSHOT_EVERY:
                self.snapshot()
        self.snapshot()

    def go_on_for(self, seconds: float) -> None:
        """For as long, at most; then the world is quiet again."""
        timer = threading.Timer(seconds, self.world.quit)
        timer.start()
        try:
            while (found := self.world.next_events()) is not None:
                self._step(*found)
        finally:
            timer.cancel()
            timer.join()
            self.world.go_on()

    def _step(self, now: float, events: Sequence[ev.Event]) -> None:
        begin = time.perf_counter()
        with self.lock:
            self.scheduler.absorb(now, events)
        while True:
            try:
                with self.lock:
                    if self.stopped_asking:
                        self.scheduler.write(now, None)
                    else:
                        self.scheduler.decide(now)
                break
            except StoreUnavailableError as error:
                log.warning("waiting for the store: %s", error)
                self._wait_for_the_store()
        self.hooks.decided(time.perf_counter() - begin)
        self._release_held_back(now)
        self._let_go()

    def _wait_for_the_store(self) -> None:
        """Until it answers; then it says whether what failed was written after all."""
        pause = 0.05
        while True:
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)
            try:
                self.database.beat()  # also says whether we still lead
                written = self.database.written()
            except StoreUnavailableError:
                continue
            if written != self.database.instants:
                raise Reopen("an instant that seemed lost was written")
            return

    def _write(self, instant: Instant) -> None:
        """The journal's sink: the instant, what it answers and the rows that follow, at once or not at all."""
        changed = self.board.after(instant, self.scheduler.view.topology)
        line = self.database.append(instant, self._answered, changed)
        self._answered = []
        self.board.take(changed)
        for job, row in changed.items():
            if row["state"] is not None:
                self._has_ended(job, row)
            if row["started"] == instant.time and job in self.submissions:
                self.hooks.waited(self.clock.unix(instant.time) - self.submissions[job].made)
        for entry in instant.decided or ():
            if isinstance(entry, Refused):
                log.error("policy %s: nothing of its plan is done: %s", entry.policy, entry.rule)
        self.hooks.written(self.database.instants - 1, line)

    def _has_ended(self, job: str, row: Row) -> None:
        self._some_ended = True
        self.ended[row["state"]] += 1
        self._leaving.append(job)
        if row["state"] == "finished" and job in self.specs:
            self.past.append(_past(self.specs[job], row))

    def snapshot(self) -> None:
        """So that the next start has less to read. Not needed for anything else: what fails is tried again later."""
        with self.lock:
            state = save(self.scheduler)
        try:
            self.database.snapshot(state)
        except StoreUnavailableError as error:
            log.warning("no snapshot: %s", error)
        self._snapshot_at = self.database.instants

    def _let_go(self) -> None:
        """Who has ended leaves memory, and is found in the store from now on."""
        if not self._leaving:
            return
        stay = set(self.world.let_go(self._leaving))
        for job in self._leaving:
            if job not in stay and job in self.submissions:
                self.roster.remove(job)
                self.board.rows.pop(job, None)  # last: whoever finds no row of a job looks whether it is still here
        self._leaving = list(stay)

    # --- what comes from outside ------------------------------------------------------------------------------

    def take(self, submissions: Iterable[tuple[Submission, JobSpec | None]]) -> None:
        """From any thread: submissions that are in the store already."""
        for submission, spec in submissions:
            if submission.id not in self.submissions:
                self.know(submission, spec)
                self._inbox.put(submission)
        self.engine.wake()

    def feed(self, item: Submission | Request) -> None:
        """From any thread: something that is in the store already."""
        self._inbox.put(item)
        self.engine.wake()

    def _take_in(self, now: float) -> None:
        later: list[Request] = []
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, Submission):
                self._submitted(now, item)
            elif item.body["what"] == "cancel" and self._arriving(item.body["job"]):
                later.append(item)  # an instant's ends come before its arrivals: it would end before it is there
            else:
                self._asked(now, item)
        for request in later:
            self._inbox.put(request)
        for job in self.held_back.begin_by(self.clock.unix(now)):
            self._arrives(now, job)
        self.world.wake_by(None if (due := self.held_back.next_begin()) is None else due - self.database.made)

    def _submitted(self, now: float, submission: Submission) -> None:
        if submission.id in self.scheduler.jobs or submission.id in self.board.rows:
            return
        spec = self.specs[submission.id]
        states = {job: self._ending(job) for job in (*spec.after, *spec.after_ok)}
        if self.held_back.enter(submission.id, spec, states, self.clock.unix(now)):
            self._fail_dependents(now)
            return
        self._arrives(now, submission.id)

    def _arriving(self, job: str) -> bool:
        """Whether the scheduler hears of a job with the next instant."""
        return job in self.submissions and not (
            job in self.scheduler.jobs or job in self.held_back or job in self.board.rows)  # fmt: skip

    def _ending(self, job: str) -> str | None:
        """How a job ended; None while it has not. Of an array: when all have, finished if all are, else how the first
        that is not has ended."""
        if job not in self.submissions:  # it left memory, or is an array
            there = [member for member in self.roster.members(job) if self._ending(member) is None]
            if there:
                return None
            if (known := self.database.known(job)) is not None:
                return None if known.row is None else known.row["state"]
            return self._array_ending(job)
        row = self.board.rows.get(job)
        return None if row is None else row["state"]

    def _array_ending(self, array: str) -> str | None:
        how: str | None = "finished"
        for member, kept in self.members(array).items():
            state = self.board.rows[member]["state"] if member in self.board.rows else kept
            if state is None:
                return None
            how = f"{state} ({member})" if how == "finished" and state != "finished" else how
        return how

    def members(self, array: str) -> dict[str, str | None]:
        """Of an array, in memory or not, and how they ended as far as the store knows; none of anything else."""
        if not array.isdecimal():
            return {}
        return {known.submission.id: None if known.row is None else known.row["state"]
                for known in self.database.members(array)}  # fmt: skip

    def _arrives(self, now: float, job: str) -> None:
        self._answered += self._open_for.pop(job, ())
        spec = self.specs[job]
        known = self.known_as(spec, job, now)
        known = replace(known, reference=self.learned.reference(known))
        try:
            self.world.submit(known, self.world.programs[job], self.world.terms[job])
        except UserError as error:
            self._end_here(now, job, "rejected", str(error))

    def known_as(self, spec: JobSpec, job: str, now: float) -> Job:
        """What the scheduler is told of it."""
        known = to_job(spec, job, now)
        return made_even(known, spec.nodes, self.scheduler.view.topology) if self.engine.even else known

    def _release_held_back(self, now: float) -> None:
        """Jobs that waited for one that has just ended."""
        if not self._some_ended:
            return
        self._some_ended = False
        for job in self.held_back.ended(self._ending, self.clock.unix(now)):
            self._arrives(now, job)
        self._fail_dependents(now)

    def _fail_dependents(self, now: float) -> None:
        while (never := self.held_back.never()) is not None:
            job, why = never
            self._end_here(now, job, "cancelled", why)
            for follower in self.held_back.ended(self._ending, self.clock.unix(now)):
                self._arrives(now, follower)

    def _end_here(self, now: float, job: str, state: str, why: str, answered: Sequence[int] = ()) -> None:
        """The end of a job that never came to the scheduler."""
        row = {**new_row(now), "ended": now, "state": state, "cause": why}
        answered = [*answered, *self._open_for.pop(job, ())]
        while True:
            try:
                self.database.put_rows({job: row}, answered)
                break
            except StoreUnavailableError as error:
                log.warning("waiting for the store: %s", error)
                self._wait_for_the_store()
        self.board.take({job: row})
        self._has_ended(job, row)

    def _asked(self, now: float, request: Request) -> None:
        """Done at least once: an instant that follows says that it need not be done again."""
        body = request.body
        what, job = body["what"], body.get("job", "")
        if what == "policy":
            self._answered.append(request.seq)
            try:
                self.put_in_charge(body["policy"])
            except UserError as error:
                log.warning("policy %s was not put in charge: %s", body["policy"], error)
            return
        if job in self.held_back:
            if what == "cancel":
                self.held_back.discard(job)
                self._end_here(now, job, "cancelled", "", [request.seq])
                self._release_held_back(now)
                return
            if what == "hold":
                self.held_back.hold(job)
            if what == "release" and self.held_back.release(job, self.clock.unix(now)):
                self._arrives(now, job)
            else:  # no instant says so: it stays open, and is done again after a restart
                self._open_for.setdefault(job, []).append(request.seq)
                return
        elif what == "cancel":
            self.world.cancel(job)
        elif what == "requeue":
            self.world.requeue(job)
        elif what == "hold":
            self.world.report(ev.Held(job))
        elif what == "release":
            self.world.report(ev.Released(job))
        elif what == "drain":
            self.world.report(ev.MachineDrained(body["machine"]))
        elif what == "resume":
            self.world.report(ev.MachineUp(body["machine"]))
        self._answered.append(request.seq)

    def put_in_charge(self, written: str) -> None:
        """Another policy decides from now on."""
        policy = make_policy(written)
        self.world.check(policy)
        with self.lock:
            if policy.name == self.scheduler.policy.name:
                return
            try:
                self.scheduler.put_in_charge(policy, self.clock.now())
            except StoreUnavailableError:
                self._wait_for_the_store()
                raise Reopen("the policy was changed while the store was away") from None
        self.world.nudge()


def _past(spec: JobSpec, row: Row) -> Past:
    """What a job that finished showed."""
    ran = sum(each["ended"] - each["began"] for each in row["history"] if each["began"] is not None)
    declared = spec.duration if spec.duration is not None else spec.time_limit
    return Past(spec.user, spec.title, spec.total_gpus, declared, ran)


def _to_this(now: Topology, wanted: Topology) -> ev.MachinesChanged | None:
    """What has to come and go for one cluster to be the other; None: nothing."""
    here = {machine.name: spec_of(machine, now) for machine in now.machines}
    there = {machine.name: spec_of(machine, wanted) for machine in wanted.machines}
    added = tuple(spec for name, spec in there.items() if here.get(name) != spec)
    removed = tuple(name for name, spec in here.items() if there.get(name) != spec)
    return ev.MachinesChanged(added, removed) if added or removed else None
