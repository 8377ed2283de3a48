"""Jobs and machines as people ask for them: rows, in memory while a job has not ended, from the store after that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from dally.core.active import ActiveJob
from dally.core.states import ENDED, State
from dally.live.board import Row, machines
from dally.live.driver import Driver
from dally.live.errors import Unavailable
from dally.live.expected import Expectations
from dally.live.roster import id_order
from dally.live.serving import ENDED as _ENDED
from dally.live.spec import JobSpec, read_spec
from dally.store.database import Database, Known, Submission
from dally.store.errors import StoreUnavailableError

T = TypeVar("T")
PAGE = 500  # jobs read from the store at a time


class Listing:
    """Looks at a driver from outside, and into the store for those it no longer remembers."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._expectations: Expectations | None = None

    def jobs(self, driver: Driver, *, states: Collection[str] | None = None, user: str | None = None,
             queue: str | None = None, name: str | None = None, array: str | None = None, after: str | None = None,
             limit: int | None = None) -> list[Row]:  # fmt: skip
        """Rows, oldest first; from the one after a job on, and so many, if that is asked for."""
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

    def _in_memory(self, driver: Driver, after: str | None) -> Iterator[Seen]:
        """Jobs that have not ended, and a few that have just done so."""
        return (seen for job in driver.roster.after(after) if (seen := _seen(driver, job)) is not None)

    def _everybody(self, driver: Driver, after: str | None) -> Iterator[Seen]:
        """Also those who ended long ago: read from the store, page by page."""
        at = 0
        if after is not None:
            known = self.stored(after)
            at = id_order(after)[0] - 1 if known is None else known.seq
        while page := self._from_store(partial(self.database.known_after, at, PAGE)):
            for known in page:
                if after is None or id_order(known.submission.id) > id_order(after):
                    yield _seen(driver, known.submission.id) or self._left(known)
            at = page[-1].seq

    def _left(self, known: Known) -> Seen:
        """A job that is not in memory; where it was when the store was read, it has ended since."""
        if known.row is None or known.row["state"] is None:
            known = self.stored(known.submission.id) or known
        return Seen(known.submission, read_spec(known.submission.spec), known.row)

    def stored(self, id: str) -> Known | None:
        return self._from_store(partial(self.database.known, id))

    def _from_store(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except StoreUnavailableError as error:
            raise Unavailable(f"the store does not answer ({error})") from error

    def find(self, driver: Driver, id: str) -> Seen | None:
        """One job, in memory or not."""
        seen = _seen(driver, id)
        if seen is None and (known := self.stored(id)) is not None:
            seen = self._left(known)
        return seen

    def counts(self, driver: Driver) -> dict[str, int]:
        """Jobs by state."""
        active = Counter(_state(driver, seen) for seen in self._in_memory(driver, None))
        return {state: count for state, count in active.items() if state not in _ENDED} | driver.ended

    def job(self, driver: Driver, id: str) -> Row | None:
        """A row with `spec` and `history`."""
        seen = self.find(driver, id)
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

    def _row(self, driver: Driver, seen: Seen) -> Row:
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


def nodes(driver: Driver) -> list[dict[str, Any]]:
    """The machines, with what is free of them and who is there."""
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


class Seen(NamedTuple):
    """A job as it is looked at: what was handed in, how that reads, and its row, once it has one."""

    submission: Submission
    spec: JobSpec
    row: Row | None


def _seen(driver: Driver, job: str) -> Seen | None:
    """A job that is in memory. Its row first: it leaves memory last."""
    row = driver.board.rows.get(job)
    spec, submission = driver.specs.get(job), driver.submissions.get(job)
    return None if spec is None or submission is None else Seen(submission, spec, row)


def _state(driver: Driver, seen: Seen) -> str:
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
