"""Schemathesis reads /openapi.json and asks whatever it can think of: nothing it finds may be a fault of ours."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import schemathesis
from fake_service import FakeService
from hypothesis import HealthCheck, given, settings

from dally.live.api.app import make_app
from dally.live.api.auth import Auth
from dally.live.tokens import TokenFile

HEADERS = {"Host": "127.0.0.1:7433"}


def _schema(service: FakeService) -> schemathesis.schemas.BaseSchema:
    app = make_app(service, Auth(TokenFile(Path("/nowhere/tokens.json")), owner="owner"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return schemathesis.openapi.from_asgi("/openapi.json", app)


OPERATIONS = sorted(found.ok().label for found in _schema(FakeService()).get_all_operations())


def test_the_schema_has_everything_that_is_served() -> None:
    assert len(OPERATIONS) == 17 and "POST /v1/jobs/{id}/{what}" in OPERATIONS


@pytest.mark.parametrize("label", [each for each in OPERATIONS if each != "GET /v1/events"])  # it never ends
@pytest.mark.filterwarnings("ignore")
def test_nothing_that_is_asked_is_a_fault_of_the_service(label: str) -> None:
    service = FakeService()
    operation = next(found.ok() for found in _schema(service).get_all_operations() if found.ok().label == label)
    statuses: set[int] = set()
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        try:
            cases = operation.as_strategy(generation_mode=mode)
        except schemathesis.errors.SchemathesisError:
            continue  # nothing about this request can be wrong

        @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=cases)
        def ask(case: schemathesis.Case) -> None:
            answer = case.call(headers=HEADERS)
            statuses.add(answer.status_code)
            assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.status_code}"
            if answer.status_code >= 400:
                assert answer.json()["error"]

        try:
            ask()
        except Exception as error:
            if "negative" in str(error).lower() or "Unsatisfiable" in type(error).__name__:
                continue
            raise
    assert statuses
    if label == "POST /v1/jobs":
        assert {201, 422} <= statuses  # it really submitted, and really was refused
