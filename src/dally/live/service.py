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
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from dally.core.errors import UserError
from dally.core.queues import Queue, by_name
from dally.core.topology import Topology
from dally.core.topology_text import topology_to_plain
from dally.live import foresight
from dally.live.attending import LiveRules
from dally.live.board import Row
from dally.live.driver import Driver, Hooks, Reopen, Wanted
from dally.live.engine import Engine
from dally.live.errors import Conflict, NotFound, NotLeader, Unavailable
from dally.live.intake import Intake
from dally.live.lead import Leadership
from dally.live.listing import Listing, nodes
from dally.live.local.output import output_folder, read_output
from dally.live.news import News
from dally.live.spec import JobSpec, check_levels, check_model, expand
from dally.policies.options import make_policy
from dally.store.database import Database, Submission
from dally.store.errors import FencedError, StoreUnavailableError
from dally.store.taking import Handed
from dally.version import __version__

log = logging.getLogger("dally.service")

Act = Literal["cancel", "hold", "release", "requeue"]


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
        self._news, self._listing = News(database), Listing(database)
        self._status = "starting"

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
        self._news.wrote(number, line)

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
            if other not in driver.submissions and self._listing.stored(other) is None and not driver.members(other):
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
        return self._listing.jobs(self._leading(), states=states, user=user, queue=queue, name=name, array=array,
                                  after=after, limit=limit)  # fmt: skip

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        return self._listing.counts(self._leading())

    def job(self, id: str) -> Row | None:
        """A row with `spec` and `history`."""
        return self._listing.job(self._leading(), id)

    def nodes(self) -> list[dict[str, Any]]:
        return nodes(self._leading())

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
        seen = self._listing.find(self._leading(), id)
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
        return self._news.after(position, limit, wait)
