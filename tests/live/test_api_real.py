"""The API over the real service: whatever schemathesis asks of it, it answers, and its scheduler goes on.

The engine runs nothing: what schemathesis thinks up as a command must not be tried on anybody's machine.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import schemathesis
from api_serving import until
from hypothesis import HealthCheck, given, settings
from test_api_schema import HEADERS, OPERATIONS

from dally.catalog.clusters import load_cluster
from dally.live.api.app import make_app
from dally.live.api.auth import Auth
from dally.live.engine import Began, Exited, Order, Report
from dally.live.errors import Conflict
from dally.live.metrics import LiveMetrics
from dally.live.service import Service
from dally.live.spec import read_spec
from dally.live.tokens import TokenFile
from dally.store.database import Database


class Obliging:
    """Says of every attempt that it began and has ended well; of every fifth that it stays until it is stopped."""

    shares = False
    even = False

    def __init__(self) -> None:
        self._reports: queue.Queue[Report | None] = queue.Queue()
        self._here: dict[str, int] = {}
        self._count = 0

    def start(self, order: Order) -> None:
        self._count += 1
        self._reports.put(Began(order.job, order.attempt))
        self._here[order.job] = order.attempt
        if self._count % 5:
            self._end(order.job, order.attempt, 0)

    def stop(self, job: str, attempt: int, grace: float) -> None:
        if self._here.get(job) == attempt:
            self._end(job, attempt, 143 if grace > 0 else -9)

    def _end(self, job: str, attempt: int, code: int) -> None:
        del self._here[job]
        self._reports.put(Exited(job, attempt, code))

    def observe(self, patience: float) -> Sequence[Report]:
        try:
            found = self._reports.get(timeout=max(0.0, patience))
        except queue.Empty:
            return []
        return [] if found is None else [found]

    def wake(self) -> None:
        self._reports.put(None)

    def running(self) -> Mapping[str, int]:
        return dict(self._here)

    def adopt(self, job: str, attempt: int) -> None:
        raise AssertionError("nothing is adopted here")

    def suspend(self, job: str, attempt: int) -> None: ...

    def resume(self, job: str, attempt: int) -> None: ...

    def forget(self, job: str, attempt: int) -> None: ...

    def close(self) -> None: ...

    def clear(self) -> None: ...


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all: what one request leaves behind, the next one meets."""
    folder = tmp_path_factory.mktemp("state")
    topology = load_cluster("2x2x4")
    database = Database(f"sqlite:///{folder}/dally.db")
    database.prepare(topology, policy="dally")
    made = Service(database, Obliging, topology, policy="dally", metrics=LiveMetrics(), state=folder)
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    until(lambda: made.health()["leader"])
    yield made
    made.stop()
    thread.join(30)
    made.close()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def schema(service: Service) -> schemathesis.schemas.BaseSchema:
    app = make_app(service, Auth(TokenFile(Path("/nowhere/tokens.json")), owner="owner"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return schemathesis.openapi.from_asgi("/openapi.json", app)


# submissions first, so that the rest has jobs to ask about
@pytest.mark.parametrize("label", sorted((each for each in OPERATIONS if each != "GET /v1/events"),
                                         key=lambda label: label != "POST /v1/jobs"))  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_nothing_that_is_asked_is_a_fault_of_the_real_service(label: str, schema: schemathesis.schemas.BaseSchema,
                                                             service: Service) -> None:  # fmt: skip
    operation = next(found.ok() for found in schema.get_all_operations() if found.ok().label == label)
    ids = ["1", "2", "3", "1_0", "999"]

    @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE))
    def ask(case: schemathesis.Case) -> None:
        if "id" in (case.path_parameters or {}) and ids:
            case.path_parameters["id"] = ids[len(str(case.path_parameters)) % len(ids)]  # jobs that are there
        answer = case.call(headers=HEADERS)
        assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.status_code} {answer.text}"

    ask()
    assert service.health()["leader"]  # it goes on


def test_at_the_end_the_service_still_takes_and_finishes_jobs(service: Service) -> None:
    for machine in service.nodes():
        service.resume(machine["name"], "owner")
    service.set_policy("fifo", "owner")
    until(lambda: service.policy()["policy"] == "fifo")
    ids = service.submit([read_spec({"command": ["true"], "gpus": 1, "user": "owner"})] * 20, "owner")
    for row in service.jobs():  # those of every fifth, and whatever was held
        if row["id"] not in ids:
            with contextlib.suppress(Conflict):
                service.act("cancel", row["id"], "owner")

    def over() -> bool:
        rows = {row["id"]: row["state"] for row in service.jobs()}
        for id in ids:
            if rows[id] == "running":  # one that stays until it is stopped, or one that ends at this moment
                with contextlib.suppress(Conflict):
                    service.act("requeue", id, "owner")
        return all(rows[id] == "finished" for id in ids)

    until(over)
