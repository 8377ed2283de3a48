"""What a service finds when it comes back: requests and decisions that another one did not come to carry out.

The engine here is written by the test: it says what became of attempts, and nothing takes any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.core.events import MachinesChanged
from dally.core.journal import Refused
from dally.core.queues import Queue
from dally.core.reasons import Token
from dally.core.snapshot import save
from dally.core.states import State
from dally.live.attending import LiveRules
from dally.live.config import ServiceConfig
from dally.live.driver import Driver, Hooks, Wanted
from dally.live.engine import Began, Exited, NotBegun, Order, Report
from dally.live.foresight import explained
from dally.live.opening import open_service
from dally.live.spec import read_spec
from dally.policies.options import make_policy
from dally.store.database import Database
from dally.store.errors import FencedError
from dally.store.taking import Handed, Taken

CLUSTER = load_cluster("1x2x4")


class Scripted:
    """Reports what it is given, in order; when there is no more, the world is told to quit."""

    shares = True
    even = False

    def __init__(self, found: Mapping[tuple[str, int], Sequence[Report]] | None = None) -> None:
        self.found = dict(found or {})  # what it finds of attempts that it is asked to adopt
        self.started: list[tuple[str, int]] = []
        self.stopped: list[tuple[str, int, float]] = []
        self.reports: list[Report] = []
        self.driver: Driver | None = None

    def start(self, order: Order) -> None:
        self.started.append((order.job, order.attempt))

    def stop(self, job: str, attempt: int, grace: float) -> None:
        self.stopped.append((job, attempt, grace))

    def adopt(self, job: str, attempt: int) -> None:
        self.reports += self.found.get((job, attempt), ())

    def observe(self, patience: float) -> Sequence[Report]:
        if patience > 0 and not self.reports and self.driver is not None:
            self.driver.world.quit()
        found, self.reports = self.reports, []
        return found

    def suspend(self, job: str, attempt: int) -> None: ...

    def resume(self, job: str, attempt: int) -> None: ...

    def forget(self, job: str, attempt: int) -> None: ...

    def wake(self) -> None: ...

    def running(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None: ...

    def clear(self) -> None: ...


@pytest.fixture
def store(tmp_path: Path) -> Database:
    database = Database(f"sqlite:///{tmp_path}/dally.db")
    database.prepare(CLUSTER, policy="fifo")
    return database


def leads(store: Database, engine: Scripted, policy: str = "fifo", queues: tuple[Queue, ...] = ()) -> Driver:
    """A service that has just come up on this store."""
    assert store.take_the_lead(store.lead(), {"pid": 1})
    engine.driver = Driver(store, engine, Wanted(policy, CLUSTER, queues), LiveRules(), Hooks())
    return engine.driver


def go_on(driver: Driver) -> None:
    """Until nothing more happens."""
    driver.world.go_on()
    driver.run()


def submit(store: Database, **spec: object) -> str:
    plain = read_spec({"command": ["true"], "gpus": 8, "user": "ada", **spec}).plain()
    (taken,) = store.submit([Handed("ada", time.time(), [[(None, plain)]], None, "")])
    assert isinstance(taken, Taken)
    return taken.ids[0]


def kept(driver: Driver, job: str) -> dict[str, Any] | None:
    """The row of a job, in memory or, once it has ended, in the store."""
    row = driver.board.rows.get(job)
    if row is None and job not in driver.submissions and (known := driver.database.known(job)) is not None:
        row = known.row
    return row


def state(driver: Driver, job: str) -> str:
    row = kept(driver, job)
    return row["state"] if row is not None and row["state"] is not None else driver.scheduler.jobs[job].state.value


def test_a_job_that_was_cancelled_before_the_scheduler_heard_of_it_is_cancelled(store: Database) -> None:
    job = submit(store)
    store.ask({"what": "cancel", "job": job, "user": "ada"})
    driver = leads(store, Scripted())
    go_on(driver)
    assert state(driver, job) == "cancelled"
    assert not store.open_requests()


@pytest.mark.parametrize(("asked", "becomes"), [(["release"], "starting"), (["release", "hold"], "held")])
def test_who_is_held_or_released_while_it_comes_after_others_stays_so_after_a_restart(
        store: Database, asked: list[str], becomes: str) -> None:  # fmt: skip
    before = submit(store)
    job = submit(store, after=[before], hold=True)
    first = Scripted()
    driver = leads(store, first)
    go_on(driver)
    for what in asked:
        driver.feed(store.ask({"what": what, "job": job, "user": "ada"}))
        go_on(driver)
    first.reports.append(Began(before, 1))
    go_on(driver)  # an instant, which answers what was asked
    driver = leads(store, Scripted({(before, 1): [Began(before, 1), Exited(before, 1, 0)]}))
    go_on(driver)
    assert ("held" if job in driver.held_back else state(driver, job)) == becomes
    driver.feed(store.ask({"what": "cancel", "job": job, "user": "ada"}))
    go_on(driver)
    assert state(driver, job) == "cancelled" and not store.open_requests()


def test_a_start_that_nobody_came_to_make_is_no_fault_of_the_job(store: Database) -> None:
    job = submit(store)
    go_on(leads(store, Scripted()))
    engine = Scripted({(job, 1): [NotBegun(job, 1, "it never began")]})
    driver = leads(store, engine)
    go_on(driver)
    assert (state(driver, job), engine.started) == ("starting", [(job, 2)])


@pytest.mark.parametrize(("code", "becomes"), [(143, "starting"), (-9, "starting"), (0, "finished")])
def test_a_job_asked_to_leave_by_a_service_that_is_no_more_waits_again(store: Database, code: int, becomes: str) -> None:
    job = submit(store)
    first = Scripted()
    driver = leads(store, first)
    go_on(driver)
    first.reports.append(Began(job, 1))
    go_on(driver)
    driver.feed(store.ask({"what": "requeue", "job": job, "user": "ada"}))
    go_on(driver)
    assert [(each[0], each[1]) for each in first.stopped] == [(job, 1)]
    second = leads(store, Scripted({(job, 1): [Began(job, 1), Exited(job, 1, code, asked=True)]}))
    go_on(second)
    assert state(second, job) == becomes


def test_an_attempt_of_which_nothing_is_left_is_not_waited_for_for_ever(store: Database) -> None:
    job = submit(store, retries=1)
    first = Scripted()
    driver = leads(store, first)
    go_on(driver)
    first.reports.append(Began(job, 1))
    go_on(driver)
    second = Scripted({(job, 1): [NotBegun(job, 1, "it never began")]})
    go_on(leads(store, second))
    assert second.started == [(job, 2)]


def test_a_start_that_is_called_back_before_it_began_is_no_fault_of_the_job(store: Database) -> None:
    job = submit(store)
    engine = Scripted()
    driver = leads(store, engine)
    go_on(driver)
    driver.feed(store.ask({"what": "requeue", "job": job, "user": "ada"}))
    go_on(driver)
    engine.reports.append(NotBegun(job, 1, "it never began"))
    go_on(driver)
    assert engine.started == [(job, 1), (job, 2)]


def test_a_configured_policy_that_cannot_take_over_leaves_the_one_that_is_in_charge(store: Database) -> None:
    jobs = [submit(store) for _ in range(2)]
    engine = Scripted()
    leads(store, Scripted())
    driver = leads(store, engine, "gandiva")
    go_on(driver)
    engine.reports += [Began(*key) for key in engine.started]
    go_on(driver)
    with pytest.raises(UserError, match="jobs share GPUs"):
        driver.scheduler.books.check_sharing(shares=False)
    again = leads(store, Scripted(), "fifo")
    assert again.scheduler.policy.name == "gandiva"
    for job in jobs:
        again.feed(store.ask({"what": "cancel", "job": job, "user": "ada"}))
    go_on(again)
    assert leads(store, Scripted(), "fifo").scheduler.policy.name == "fifo"  # tried again at the next start


def test_a_job_whose_machines_were_taken_out_of_the_cluster_is_explained(store: Database) -> None:
    job = submit(store, gpus=4)
    engine = Scripted()
    driver = leads(store, engine)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    driver.world.report(MachinesChanged((), (CLUSTER.machine_names[0],)))
    go_on(driver)
    assert explained(driver, job)["state"] == "lost"


POLICY = """
from dally.policies.fifo import Fifo

class Mine(Fifo):
    title = {title!r}

    def {method}(self, *arguments):
        raise ZeroDivisionError("a mistake")
"""


@pytest.mark.parametrize("method", ["hear", "rank", "plan"])
def test_a_policy_that_fails_stops_nobody_and_loses_nobody(store: Database, tmp_path: Path, method: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(POLICY.format(title="mine", method=method))
    leads(store, Scripted())
    engine = Scripted()
    driver = leads(store, engine, make_policy(str(mine)).name)
    jobs = [submit(store, gpus=1) for _ in range(2)]
    for _, submission in store.submissions():
        driver.know(submission)
        driver.feed(submission)
    go_on(driver)
    assert ([state(driver, job) for job in jobs], engine.started) == (["waiting"] * 2, [])
    refused = [entry for instant in store.since(0, CLUSTER) for entry in instant.decided or () if isinstance(entry, Refused)]
    assert refused and all("ZeroDivisionError: a mistake" in entry.rule for entry in refused)
    after = Scripted()
    go_on(leads(store, after, "fifo"))
    assert after.started == [(job, 1) for job in jobs]


def test_a_policy_of_ones_own_file_is_found_by_its_name_and_may_not_have_anothers(tmp_path: Path) -> None:
    mine = tmp_path / "own.py"
    mine.write_text(POLICY.format(title="own", method="notes"))
    config = ServiceConfig(state=str(tmp_path / "state"), policy=str(mine), cluster="1x1x4")
    config.folder.mkdir()
    service = open_service(config)
    service.close()
    assert service.database.about["policy"] == "own"
    mine.write_text(POLICY.format(title="fifo", method="notes"))
    with pytest.raises(UserError, match="has the name of an installed one, 'fifo'"):
        open_service(config)


def test_what_comes_in_while_a_service_comes_up_again_is_not_left_lying(store: Database) -> None:
    engine = Scripted()
    driver = leads(store, engine)
    jobs = [submit(store), submit(store)]  # by a thread that held the driver before this one
    store.ask({"what": "cancel", "job": jobs[1], "user": "ada"})
    driver.catch_up()
    go_on(driver)
    assert ([state(driver, job) for job in jobs], engine.started) == (["starting", "cancelled"], [(jobs[0], 1)])


def test_a_service_that_leads_no_more_accepts_nothing(store: Database, tmp_path: Path) -> None:
    assert store.take_the_lead(store.lead(), {"pid": 1})
    other = Database(f"sqlite:///{tmp_path}/dally.db")
    other.prepare(CLUSTER, policy="fifo")
    assert other.take_the_lead(other.lead(), {"pid": 2})
    with pytest.raises(FencedError):
        submit(store)
    with pytest.raises(FencedError):
        store.ask({"what": "cancel", "job": "1", "user": "ada"})
    assert not other.submissions() and not other.open_requests()


def test_who_came_back_to_the_queue_as_a_service_stopped_is_started_by_the_next_one(store: Database) -> None:
    job = submit(store)
    first = Scripted()
    driver = leads(store, first)
    go_on(driver)
    first.reports.append(Began(job, 1))
    go_on(driver)
    driver.stopped_asking = True  # as where a stop checkpoints what runs
    driver.world.leave_all()
    first.reports.append(Exited(job, 1, 143))
    go_on(driver)
    second = Scripted()
    go_on(leads(store, second))
    assert second.started == [(job, 2)]


@pytest.mark.parametrize("fails", ["raise ZeroDivisionError('a mistake')", "return float('nan')", "return None"])
def test_a_policy_that_fails_at_the_gate_of_a_queue_stops_nobody_and_loses_nobody(
        store: Database, tmp_path: Path, fails: str) -> None:  # fmt: skip
    mine = tmp_path / "mine.py"
    mine.write_text(f"from dally.policies.fifo import Fifo\n\nclass Mine(Fifo):\n    title = 'mine'\n\n"
                    f"    def rank(self, *arguments):\n        {fails}\n")  # fmt: skip
    queues = (Queue("a", max_gpus=4), Queue("b"))
    leads(store, Scripted())
    jobs = [submit(store, gpus=4, queue="a"), submit(store, gpus=4, queue="a"), submit(store, gpus=1, queue="b")]
    for engine in (Scripted(), Scripted()):  # also after a restart from a snapshot
        driver = leads(store, engine, make_policy(str(mine)).name, queues=queues)
        go_on(driver)
        driver.feed(store.ask({"what": "drain", "machine": CLUSTER.machine_names[1], "user": "ada"}))
        go_on(driver)
        assert engine.started == []
        assert {row.state for row in driver.scheduler.jobs.values()} == {State.HELD}
        why = driver.scheduler.reason(jobs[0])
        assert why is not None and why.sentence == "the policy has not given it a place in queue a yet"
        driver.feed(store.ask({"what": "resume", "machine": CLUSTER.machine_names[1], "user": "ada"}))
        go_on(driver)
    refused = [entry for instant in store.since(0, CLUSTER) for entry in instant.decided or () if isinstance(entry, Refused)]
    assert len(refused) >= 4
    after = Scripted()
    driver = leads(store, after, "fifo", queues=queues)
    go_on(driver)
    assert sorted(after.started) == [(jobs[0], 1), (jobs[2], 1)]
    assert driver.scheduler.reason(jobs[1]).token is Token.WAITING_FOR_QUOTA  # type: ignore[union-attr]
    after.reports += [Began(jobs[0], 1), Exited(jobs[0], 1, 0)]
    go_on(driver)
    assert sorted(after.started) == [(jobs[0], 1), (jobs[1], 1), (jobs[2], 1)]
    again = Driver(store, Scripted(), Wanted("fifo", CLUSTER, queues), LiveRules(), Hooks())  # and as it is recorded
    assert save(again.scheduler)["jobs"] == save(driver.scheduler)["jobs"]
