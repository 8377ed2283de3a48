"""Jobs that have ended leave a service's memory, and are answered for all the same."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quick_engine import Quick

from dally.catalog.clusters.load import load_cluster
from dally.core.active import ActiveJob
from dally.live import coming_back, verified
from dally.live.engine import Program
from dally.live.service import Service
from dally.live.spec import JobSpec, read_spec
from dally.store.database import Database

CLUSTER = load_cluster("1x2x4")
JOBS, REMEMBERS = 2000, 100
JOB = {"command": ["true"], "gpus": 1, "user": "ada"}


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Quick], Service]]:
    """A service that leads; the one before it is stopped."""
    monkeypatch.setattr(coming_back, "REMEMBERS", REMEMBERS)
    monkeypatch.setattr(verified, "REMEMBERS", REMEMBERS)
    running: list[tuple[Service, threading.Thread]] = []

    def stop() -> None:
        service, thread = running.pop()
        service.stop()
        thread.join()
        service.close()

    def start(engine: Quick) -> Service:
        if running:
            stop()
        database = Database(f"sqlite:///{tmp_path}/dally.db")
        database.prepare(CLUSTER, policy="fifo")
        service = Service(database, lambda: engine, CLUSTER, policy="fifo")
        thread = threading.Thread(target=service.run_forever)
        thread.start()
        running.append((service, thread))
        until(lambda: service.health()["leader"])
        return service

    yield start
    if running:
        stop()


def until(true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to that")


def kept(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def test_thousands_of_jobs_that_ended_leave_no_trace_in_memory_and_all_of_them_in_the_store(
        serve: Callable[[Quick], Service], tmp_path: Path) -> None:  # fmt: skip
    engine = Quick()
    service = serve(engine)
    before = {kind: kept(kind) for kind in (ActiveJob, JobSpec, Program)}
    first = service.submit([read_spec(JOB)], "ada", "key")
    for _ in range(JOBS // 200):
        service.submit([read_spec(JOB)] * 200, "ada")
    until(lambda: service.counts().get("finished") == JOBS + 1)
    until(lambda: kept(JobSpec) - before[JobSpec] < 10)
    assert kept(ActiveJob) - before[ActiveJob] <= 2 * REMEMBERS + 300  # they end a few at a time
    assert kept(Program) - before[Program] < 10
    answers_for_all(service, engine)

    again = Quick()
    service = serve(again)
    assert kept(ActiveJob) - before[ActiveJob] <= 2 * REMEMBERS + 300
    assert service.submit([read_spec(JOB)], "ada", "key") == first
    answers_for_all(service, again)
    late = service.submit([read_spec({**JOB, "after_ok": first})], "ada")
    until(lambda: (service.job(late[0]) or {})["state"] == "finished")
    assert again.started == [(late[0], 1)]  # nobody else ran again
    found = verified.verify(f"sqlite:///{tmp_path}/dally.db")
    assert found.difference is None and found.rows == [] and found.instants > 0


def answers_for_all(service: Service, engine: Quick) -> None:
    row = service.job("7")
    assert row is not None and row["state"] == "finished" and row["history"][0]["how"] == "finished"
    assert row["user"] == "ada" and row["spec"] == JOB
    assert service.job(str(JOBS + 5)) is None
    assert service.jobs(states={"waiting", "running"}) == []
    ids, after = [], None
    while page := service.jobs(after=after, limit=700):
        ids += [each["id"] for each in page]
        after = ids[-1]
    assert ids == [str(number) for number in range(1, JOBS + 2)]
    assert len(service.jobs(states={"finished"}, user="ada")) == JOBS + 1
    assert service.jobs(user="bob") == service.jobs(states={"failed"}) == []
    assert service.counts() == {"finished": JOBS + 1}
    assert service.log("7", None, 0, 10) == (b"", 0)
