"""The service: takes in what people hand in, answers what they ask, and leads or stands by. Safe from any thread.

Whatever is accepted is in the store before anybody is told so. One thread decides (live/driver.py); everybody else
reads what it has decided, and looks at its scheduler only while it stands still.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.queues import Queue, by_name
from dally.core.states import ENDED, State
from dally.core.topology import Topology
from dally.core.topology_text import topology_to_plain
from dally.live import foresight
from dally.live.board import Row, machines
from dally.live.driver import Driver, Hooks, Reopen, Wanted, id_order
from dally.live.engine import Engine
from dally.live.errors import Conflict, NotFound, NotLeader, Unavailable
from dally.live.expected import Expectations
from dally.live.intake import Intake
from dally.live.lead import Leadership
from dally.live.local.output import output_folder, read_output
from dally.live.serving import ENDED as _ENDED
from dally.live.spec import JobSpec, check_levels, check_model, expand, read_spec
from dally.live.world import LiveRules
from dally.policies.options import make_policy
from dally.store.database import Database, Handed, Known, Submission
from dally.store.errors import FencedError, StoreUnavailableError
from dally.version import __version__

log = logging.getLogger("dally.service")

Act = Literal["cancel", "hold", "release", "requeue"]
T = TypeVar("T")
PAGE = 500  # jobs read from the store at a time
RECENT, RECENT_SIZE = 10_000, 16_000_000  # instants, and characters of them, kept in memory for those who watch


class Drains(Protocol):
    """Who drains machines, where that is not the scheduler's to decide; refuses with one of `live.errors`."""

    def drain(self, machine: str, user: str) -> None: ...

    def resume(self, machine: str, user: str) -> None: ...


class Service:
    """What the API asks (live/serving.py) and `dally serve` runs."""

    def __init__(self, database: Database, make_engine: Callable[[], Engine], topology: Topology | None, *,
                 policy: str = "dally", rules: LiveRules | None = None, url: str = "", metrics: Any = None,
                 stop_jobs: bool = False, state: Path | None = None,
                 queues: tuple[Queue, ...] = (), drains: Drains | None = None) -> None:  # fmt: skip
        self.database, self._make_engine = database, make_engine
        self._wanted, self._rules, self.url = Wanted(policy, topology, queues), rules or LiveRules(), url
        self.metrics = metrics
        self._drains = drains
        self._state = state  # folder of the engine, where what jobs print is found
        self.stop_jobs = stop_jobs  # whether a clean stop checkpoints what runs, or lets it go on
        self.lead = Leadership(database, url)
        self._intake = Intake(database, self._accepted)
        self._driver: Driver | None = None
        self._stopping = threading.Event()
        self._recent: deque[tuple[int, str]] = deque()
        self._recent_size = 0
        self._news = threading.Condition()
        self._status = "starting"
        self._expectations: Expectations | None = None

    # --- leading ----------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Lead or stand by, until `stop`."""
        while not self._stopping.is_set():
            self._status = "standing by"
            if not self.lead.acquire(self._stopping):
                break
            log.info("leading, epoch %d", self.database.epoch)
            try:
                self._lead()
            except FencedError as error:
                log.warning("%s; standing by", error)
                self.lead.held = False
            except Reopen as error:
                log.warning("%s; reading the store again", error)
            except StoreUnavailableError as error:
                log.warning("%s; trying again", error)
                time.sleep(0.5)
            finally:
                self._driver = None
                self.lead.let_go(hand_over=True)
        self._status = "stopped"

    def _lead(self) -> None:
        self.database.beat()
        engine = self._make_engine()
        try:
            hooks = Hooks(self._written)
            if self.metrics is not None:
                hooks.decided, hooks.waited = self.metrics.decided, self.metrics.waited
            driver = Driver(self.database, engine, self._wanted, self._rules, hooks)
            self.lead.keep(driver.world.quit)
            self._driver, self._status = driver, "ok"
            driver.catch_up()
            if self._stopping.is_set():
                driver.world.quit()
            driver.run()
            if self._stopping.is_set() and self.stop_jobs:
                self._checkpoint(driver)
        finally:
            self._driver = None
            engine.close()

    def _checkpoint(self, driver: Driver) -> None:
        """Everybody saves and leaves; nobody is started any more. What ends now is written as ever."""
        driver.stopped_asking = True
        driver.world.go_on()
        driver.world.leave_all()
        longest = max((driver.world.programs[job].grace for job in driver.world.busy()), default=0.0)
        deadline = time.monotonic() + longest + 10.0
        while driver.world.busy() and time.monotonic() < deadline:
            driver.go_on_for(0.2)
        driver.snapshot()

    def stop(self) -> None:
        """End `run_forever` soon; jobs go on, or are checkpointed, as configured."""
        self._stopping.set()
        driver = self._driver
        if driver is not None:
            driver.world.quit()

    def close(self) -> None:
        self._intake.close()
        self.database.close()

    def reload(self, *, policy: str | None = None, rules: LiveRules | None = None,
               stop_jobs: bool | None = None, queues: tuple[Queue, ...] | None = None) -> None:  # fmt: skip
        """Take over what may change while the service runs."""
        if rules is not None:
            self._rules = rules
            driver = self._driver
            if driver is not None:
                driver.world.rules = rules
        if stop_jobs is not None:
            self.stop_jobs = stop_jobs
        if queues is not None:
            self._wanted = replace(self._wanted, queues=queues)
            if self._driver is not None:
                self._driver.set_queues(queues)
        if policy is not None and make_policy(policy).name != self._wanted.policy:
            self._wanted = replace(self._wanted, policy=make_policy(policy).name)
            if self._driver is not None:
                self.set_policy(policy, "configuration")
                self.database.note("policy", self._wanted.policy)

    def _written(self, number: int, line: str) -> None:
        if self.metrics is not None:
            self.metrics.wrote()
        with self._news:
            if self._recent and self._recent[-1][0] != number - 1:
                self._recent.clear()  # somebody else has led meanwhile
                self._recent_size = 0
            self._recent.append((number, line))
            self._recent_size += len(line)
            while len(self._recent) > RECENT or (self._recent_size > RECENT_SIZE and len(self._recent) > 1):
                self._recent_size -= len(self._recent.popleft()[1])
            self._news.notify_all()

    def _leading(self) -> Driver:
        driver = self._driver
        if driver is None:
            if self._stopping.is_set():
                raise Unavailable("the service is stopping")
            url = self.lead.leader.get("url")
            raise NotLeader(url if url != self.url else None)
        return driver

    # --- handing in -------------------------------------------------------------------------------------------

    def submit(self, specs: list[JobSpec], user: str, key: str | None = None) -> list[str]:
        """As `hand_in`, waited for."""
        return self.hand_in(specs, user, key).result()

    def hand_in(self, specs: list[JobSpec], user: str, key: str | None = None) -> Future[list[str]]:
        """Ids, in order, arrays expanded; there once they are durable. The same key again: the same ids, nothing
        new."""
        driver = self._leading()
        for spec in specs:
            self.check(driver, spec)
        owned = [spec if spec.user else spec.model_copy(update={"user": user}) for spec in specs]
        plain = [spec.plain() for spec in owned]
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
        groups = [expand(spec) for spec in owned]
        written = [[(None, whole)] if spec.array is None else [(member, each.plain()) for member, each in group]
                   for spec, whole, group in zip(owned, plain, groups, strict=True)]  # fmt: skip
        flat = [each for group in groups for _, each in group]
        return self._intake.hand_in(Handed(user, time.time(), written, key, digest), flat)

    def _accepted(self, handed: Handed, specs: Sequence[JobSpec], ids: list[str]) -> None:
        """What is durable is fed to whoever decides now; where nobody does, the next one reads it from the store."""
        driver = self._driver
        if driver is not None:
            plain = (plain for group in handed.specs for _, plain in group)
            driver.take([(Submission(job, handed.who, handed.made, each), spec)
                         for job, each, spec in zip(ids, plain, specs, strict=True)])  # fmt: skip
        if self.metrics is not None:
            self.metrics.submitted(len(ids))

    def check(self, driver: Driver, spec: JobSpec) -> None:
        """What this cluster, engine or policy cannot do is refused at the door, in a sentence."""
        check_levels(spec, driver.scheduler.view.topology)
        check_model(spec)
        policy = driver.scheduler.policy
        if spec.placement is not None and spec.placement.preferred is not None and not policy.heeds_wishes:
            raise UserError(f"placement.preferred: policy {policy.name!r} does not wait for levels jobs would like; "
                            "`dally` does, and `required` counts under every policy")  # fmt: skip
        gate = driver.scheduler.books.door.gate
        if gate is not None and spec.queue is not None and spec.queue not in (names := by_name(gate.queues)):
            raise UserError(f"queue: there is no queue {spec.queue!r}; there are {', '.join(sorted(names))}")
        for other in (*spec.after, *spec.after_ok):
            if other not in driver.submissions and self._stored(other) is None and not driver.members(other):
                raise UserError(f"there is no job {other} to come after")

    def act(self, what: Act, id: str, user: str) -> None:
        driver = self._leading()
        row = self.job(id)
        if row is None:
            raise NotFound(f"there is no job {id}")
        state = row["state"]
        if state in ("finished", "failed", "cancelled", "rejected"):
            raise Conflict(f"job {id} is {state} already")
        if what == "requeue" and state not in ("running", "starting"):
            raise Conflict(f"job {id} is {state}; only a job that runs can be put back into the queue")
        active = driver.scheduler.jobs.get(id)
        held = row["reason"] == "Held" or (active is not None and active.hold is not None)  # it may still run
        if what == "release" and not held:
            why = f": {row['why']}" if state == "held" else ""
            raise Conflict(f"job {id} is {state}{why}; nobody holds it")
        if what == "hold" and held:
            raise Conflict(f"job {id} is held already")
        self._ask(driver, {"what": what, "job": id, "user": user})

    def _ask(self, driver: Driver, body: dict[str, Any]) -> None:
        try:
            request = self.database.ask(body)
        except StoreUnavailableError as error:
            raise Unavailable(f"nothing was done: the store does not answer ({error})") from error
        except FencedError as error:
            raise NotLeader() from error
        (self._driver or driver).feed(request)

    def drain(self, machine: str, user: str) -> None:
        self._machine("drain", machine, user)

    def resume(self, machine: str, user: str) -> None:
        self._machine("resume", machine, user)

    def _machine(self, what: str, machine: str, user: str) -> None:
        driver = self._leading()
        if machine not in driver.scheduler.view.topology.machine_by_name:
            raise NotFound(f"the cluster has no machine {machine!r}")
        if self._drains is not None:
            (self._drains.drain if what == "drain" else self._drains.resume)(machine, user)
            return
        self._ask(driver, {"what": what, "machine": machine, "user": user})

    def set_policy(self, written: str, user: str) -> None:
        driver = self._leading()
        policy = make_policy(written)
        driver.world.check(policy)
        with driver.lock:
            driver.scheduler.books.check_sharing(policy.shares)
        self._ask(driver, {"what": "policy", "policy": written, "user": user})

    # --- looking ----------------------------------------------------------------------------------------------

    def jobs(self, *, states: Collection[str] | None = None, user: str | None = None, queue: str | None = None,
             name: str | None = None, array: str | None = None, after: str | None = None,
             limit: int | None = None) -> list[Row]:  # fmt: skip
        """Rows, oldest first; from the one after a job on, and so many, if that is asked for."""
        driver = self._leading()
        found: list[Row] = []
        wanted = ((user, "user"), (queue, "queue"), (name, "title"))
        in_memory = states is not None and not any(state in _ENDED for state in states)
        for seen in self._in_memory(driver, after) if in_memory else self._everybody(driver, after):
            job, spec = seen.submission.id, seen.spec
            if any(word is not None and word != getattr(spec, what) for word, what in wanted) or \
                    (array is not None and not job.startswith(f"{array}_")):  # fmt: skip
                continue
            if states is None or _state(driver, seen) in states:
                found.append(self._row(driver, seen))
                if limit is not None and len(found) >= limit:
                    break
        return found

    def _in_memory(self, driver: Driver, after: str | None) -> Iterator[_Seen]:
        """Jobs that have not ended, and a few that have just done so."""
        return (seen for job in driver.ids_after(after) if (seen := _seen(driver, job)) is not None)

    def _everybody(self, driver: Driver, after: str | None) -> Iterator[_Seen]:
        """Also those who ended long ago: read from the store, page by page."""
        at = 0
        if after is not None:
            known = self._stored(after)
            at = id_order(after)[0] - 1 if known is None else known.seq
        while page := self._from_store(partial(self.database.known_after, at, PAGE)):
            for known in page:
                if after is None or id_order(known.submission.id) > id_order(after):
                    yield _seen(driver, known.submission.id) or self._left(known)
            at = page[-1].seq

    def _left(self, known: Known) -> _Seen:
        """A job that is not in memory; where it was when the store was read, it has ended since."""
        if known.row is None or known.row["state"] is None:
            known = self._stored(known.submission.id) or known
        return _Seen(known.submission, read_spec(known.submission.spec), known.row)

    def _stored(self, id: str) -> Known | None:
        return self._from_store(partial(self.database.known, id))

    def _from_store(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except StoreUnavailableError as error:
            raise Unavailable(f"the store does not answer ({error})") from error

    def _find(self, driver: Driver, id: str) -> _Seen | None:
        """One job, in memory or not."""
        seen = _seen(driver, id)
        if seen is None and (known := self._stored(id)) is not None:
            seen = self._left(known)
        return seen

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        driver = self._leading()
        active = Counter(_state(driver, seen) for seen in self._in_memory(driver, None))
        return {state: count for state, count in active.items() if state not in _ENDED} | driver.ended

    def job(self, id: str) -> Row | None:
        """A row with `spec` and `history`."""
        driver = self._leading()
        seen = self._find(driver, id)
        if seen is None:
            return None
        row = self._row(driver, seen)
        kept = seen.row
        unix = driver.clock.unix
        row["spec"] = seen.submission.spec
        times = ("decided", "began", "ended")
        row["history"] = [{**each, **{name: unix(each[name]) for name in times if each[name] is not None}}
                          for each in (kept["history"] if kept else ())]  # fmt: skip
        row["cause"] = kept["cause"] if kept else None
        named, expected = seen.spec.model or seen.spec.profile, self._expected(driver)
        for each in row["history"]:
            each["step"] = expected.step(named, each["machines"], each.get("step"))
        row["step"] = row["history"][-1]["step"] if row["history"] else None
        return row

    def _expected(self, driver: Driver) -> Expectations:
        topology, found = driver.scheduler.view.topology, self._expectations
        if found is None or found.topology is not topology:
            found = self._expectations = Expectations(topology)
        return found

    def _row(self, driver: Driver, seen: _Seen) -> Row:
        submission, spec, kept = seen
        job = submission.id
        active = driver.scheduler.jobs.get(job)
        unix = driver.clock.unix
        state, token, why, until = _standing(driver, job, active, kept)
        placed = None
        if active is not None and active.placement is not None:
            placed = machines(active.placement, driver.scheduler.view.topology)
        attempts = kept["attempts"] if kept else 0
        return {
            "id": job, "name": spec.title, "user": spec.user or submission.who,
            "queue": spec.queue, "state": state, "gpus": spec.total_gpus, "priority": spec.priority,
            "attempts": attempts, "restarts": max(0, attempts - 1), "machines": placed,
            "submitted": submission.made,
            "started": unix(kept["started"]) if kept and kept["started"] is not None else None,
            "ended": unix(kept["ended"]) if kept and kept["ended"] is not None else None,
            "exit_code": kept["exit_code"] if kept else None,
            "reason": token, "why": why, "until": until,
        }  # fmt: skip

    def nodes(self) -> list[dict[str, Any]]:
        driver = self._leading()
        with driver.lock:
            view = driver.scheduler.view
            topology, drained = view.topology, driver.scheduler.books.fleet.drained
            jobs: dict[int, list[str]] = {}
            withheld = driver.scheduler.books.fleet.masks
            taken = {topology.machine_by_name[name]: mask for name, mask in withheld.items()}
            for active in driver.scheduler.books.holding.values():
                for held in (active.placement, active.leaving):
                    for machine, mask in held.slices if held is not None else ():
                        jobs.setdefault(machine, []).append(active.id)
                        taken[machine] = taken.get(machine, 0) | mask
            return [
                {"name": machine.name, "gpu_type": machine.gpu_type, "gpus": machine.gpus,
                 "free": machine.gpus - taken.get(machine.index, 0).bit_count(),
                 "state": "up" if machine.index not in view.down else "drained" if machine.name in drained else "down",
                 "jobs": sorted(set(jobs.get(machine.index, ())))}
                for machine in topology.machines
            ]  # fmt: skip

    def topology(self) -> dict[str, Any]:
        return topology_to_plain(self._leading().scheduler.view.topology)

    def policy(self) -> dict[str, Any]:
        driver = self._leading()
        with driver.lock:
            policy = driver.scheduler.policy
            return {"policy": policy.name, "shares": policy.shares, "preempts": policy.preempts,
                    "notes": policy.notes(driver.scheduler.memory)}  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data: what `dally simulate --snapshot` goes on from."""
        return foresight.handed_out(self._leading())

    def explain(self, id: str) -> dict[str, Any]:
        """Why it waits and until when, who is ahead, when it may start, what would make it start sooner."""
        driver = self._leading()
        row = self.job(id)
        if row is None:
            raise NotFound(f"there is no job {id}")
        if id in driver.scheduler.jobs:
            known = {name: row[name] for name in ("name", "user", "cause", "step")}
            return {**foresight.explained(driver, id), **known}
        left = None if row["until"] is None else max(0.0, row["until"] - time.time())
        return {"id": id, "name": row["name"], "user": row["user"], "state": row["state"], "gpus": row["gpus"],
                "gpu_type": row["spec"].get("gpu_type"), "reason": row["reason"], "why": row["why"],
                "until": row["until"], "until_in": left,
                "lasts": None, "preemptions": 0, "evidence": [], "ahead": None, "free": None, "machines": None,
                "level": None, "speed": None, "step": row["step"], "estimate": None,
                "alternatives": []}  # fmt: skip

    def dry_run(self, spec: JobSpec, user: str) -> dict[str, Any]:
        """What would become of it; changes nothing."""
        driver = self._leading()
        self.check(driver, spec)
        return foresight.tried(driver, spec)

    def log(self, id: str, attempt: int | None, offset: int, limit: int) -> tuple[bytes, int]:
        """What was printed, and the offset to go on from. No attempt: the newest one."""
        seen = self._find(self._leading(), id)
        if seen is None:
            raise NotFound(f"there is no job {id}")
        count = len(seen.row["history"]) if seen.row else 0
        if attempt is not None and not 1 <= attempt <= count:
            raise NotFound(f"job {id} has no attempt {attempt}")
        if self._state is None or count == 0:
            return b"", 0
        return read_output(output_folder(self._state, id, attempt or count), offset, limit)

    def health(self) -> dict[str, Any]:
        driver = self._driver
        return {"status": self._status, "leader": driver is not None, "url": self.url, "version": __version__,
                "leader_url": self.lead.leader.get("url"), "instants": self.database.instants,
                "policy": driver.scheduler.policy.name if driver is not None else None}  # fmt: skip

    def events_after(self, position: int, limit: int, wait: float) -> list[tuple[int, str]]:
        """Instants, as text, with their numbers, from this number on; waits so long if there is none."""
        self._leading()
        deadline = time.monotonic() + wait
        with self._news:
            while not self._recent or self._recent[-1][0] < position:
                left = deadline - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    break
            recent = self._recent
            if recent and recent[0][0] <= position:
                first = position - recent[0][0]
                return [recent[at] for at in range(first, min(first + limit, len(recent)))]
        if position >= self.database.instants:
            return []
        try:
            return list(self.database.lines(position, limit))
        except StoreUnavailableError as error:
            raise Unavailable(f"the store does not answer ({error})") from error


class _Seen(NamedTuple):
    """A job as it is looked at: what was handed in, how that reads, and its row, once it has one."""

    submission: Submission
    spec: JobSpec
    row: Row | None


def _seen(driver: Driver, job: str) -> _Seen | None:
    """A job that is in memory. Its row first: it leaves memory last."""
    row = driver.board.rows.get(job)
    spec, submission = driver.specs.get(job), driver.submissions.get(job)
    return None if spec is None or submission is None else _Seen(submission, spec, row)


def _state(driver: Driver, seen: _Seen) -> str:
    """A job's state alone: what lists are filtered by."""
    job, kept = seen.submission.id, seen.row
    if kept is not None and kept["state"] is not None:
        return str(kept["state"])
    active = driver.scheduler.jobs.get(job)
    if active is not None:
        return _written_state(active)
    return "held" if job in driver.held_back else "waiting"


def _written_state(active: ActiveJob) -> str:
    """Nobody is told of an end that is not written yet. Who is kept back by a queue waits; held is who was told to."""
    if active.state is State.HELD and active.hold is None:
        return State.WAITING.value
    return State.RUNNING.value if active.state in ENDED else active.state.value


def _standing(driver: Driver, job: str, active: ActiveJob | None,
              kept: Row | None) -> tuple[str, str | None, str | None, float | None]:  # fmt: skip
    """State, and for who does not run: reason, sentence, until when (unix time)."""
    if kept is not None and kept["state"] is not None:
        return kept["state"], None, kept["cause"], None
    if active is None:
        if job in driver.held_back:
            token, sentence, until = driver.held_back.why(job)
            return "held", token, sentence, until
        return "waiting", "Arriving", "it was accepted and is about to enter the queue", None
    if active.state is State.RUNNING or active.state in ENDED:
        return _written_state(active), None, None, None
    reason = driver.scheduler.reason(job)
    if reason is None:
        return _written_state(active), None, None, None
    until = None if reason.until is None else driver.clock.unix(reason.until)
    return _written_state(active), reason.token.label, reason.sentence, until


