"""The API over a service in memory: what it answers, and that every refusal is one sentence with the right status."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from fake_service import FakeService

from dally.live.api.app import make_app
from dally.live.api.auth import Auth
from dally.live.config import LimitsConfig
from dally.live.errors import NotLeader, Unavailable
from dally.live.tokens import TokenFile
from dally.policies.options import make_policy

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

pytest_plugins = ["api_served"]
JOB = {"command": ["true"], "gpus": 1}


@pytest.fixture
def api(service: FakeService, tokens: TokenFile) -> Iterator[TestClient]:
    app = make_app(service, Auth(tokens, owner="owner"))
    with TestClient(app, base_url="http://127.0.0.1:7433", raise_server_exceptions=False) as client:
        yield client


def error(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def test_a_job_is_accepted_with_its_id_and_belongs_to_who_submitted_it(api: TestClient, service: FakeService) -> None:
    answer = api.post("/v1/jobs", json=JOB)
    assert (answer.status_code, answer.json()) == (201, {"id": "1", "ids": ["1"]})
    assert answer.headers["location"] == "/v1/jobs/1"
    assert service.rows["1"]["user"] == "owner"


def test_a_list_is_accepted_whole_or_not_at_all(api: TestClient, service: FakeService) -> None:
    assert api.post("/v1/jobs", json=[JOB, {**JOB, "array": "0-2"}]).json()["ids"] == ["1", "2_0", "2_1", "2_2"]
    bad = api.post("/v1/jobs", json=[JOB, {**JOB, "gpus": 0}])
    assert error(bad) == (422, "job 1: gpus: it must be at least 1, not 0")
    assert len(service.rows) == 4
    assert error(api.post("/v1/jobs", json=[]))[0] == 422
    assert error(api.post("/v1/jobs", json=[JOB] * 1001))[0] == 422


def test_a_model_or_profile_nobody_has_is_refused_before_anything_is_kept(api: TestClient, service: FakeService) -> None:
    assert error(api.post("/v1/jobs", json={**JOB, "model": "no-such-model"}))[0] == 422
    refused = error(api.post("/v1/jobs", json={**JOB, "profile": "/no/such.yaml"}))
    assert refused[0] == 422 and refused[1].startswith("profile: ")
    assert service.submissions == 0


def test_the_same_key_submits_once(api: TestClient, service: FakeService) -> None:
    ids = [api.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"}).json()["id"] for _ in range(3)]
    assert ids == ["1", "1", "1"] and len(service.rows) == 1


def test_a_dry_run_says_what_would_happen_and_submits_nothing(api: TestClient, service: FakeService) -> None:
    assert api.post("/v1/jobs?dry_run=true", json=JOB).json()["starts"] == "now"
    assert api.post("/v1/jobs?dry_run=true", json={**JOB, "gpus": 99}).json()["starts"] == "never"
    assert not service.rows


def test_pages_of_a_listing_together_are_the_whole_in_order(api: TestClient) -> None:
    api.post("/v1/jobs", json={**JOB, "array": "0-24"})
    api.post("/v1/jobs", json=JOB)
    found: list[str] = []
    cursor = None
    while True:
        page = api.get("/v1/jobs", params={"limit": 7, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["jobs"]) <= 7
        found += [row["id"] for row in page["jobs"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == [*(f"1_{n}" for n in range(25)), "2"]


def test_listings_are_filtered_by_state_queue_name_and_array(api: TestClient, service: FakeService) -> None:
    api.post("/v1/jobs", json=[{**JOB, "name": "a"}, {**JOB, "name": "b", "queue": "vision"}, {**JOB, "array": "0-1"}])
    service.put("1", "running")
    service.put("2", "finished")

    def ids(query: str) -> list[str]:
        return [row["id"] for row in api.get(f"/v1/jobs?{query}").json()["jobs"]]

    assert ids("state=running") == ["1"]
    assert ids("state=active") == ["1", "3_0", "3_1"]
    assert ids("state=ended&state=running") == ["1", "2"]
    assert ids("state=ended,running") == ["1", "2"]
    assert (ids("queue=vision"), ids("name=a"), ids("array=3")) == (["2"], ["1"], ["3_0", "3_1"])
    assert error(api.get("/v1/jobs?state=asleep"))[0] == 422
    assert error(api.get("/v1/jobs?cursor=../x"))[0] == 422


def test_jobs_are_changed_and_what_cannot_be_is_a_conflict(api: TestClient, service: FakeService) -> None:
    api.post("/v1/jobs", json=JOB)
    for what, state in (("hold", "held"), ("release", "waiting"), ("requeue", "waiting"), ("cancel", "cancelled")):
        assert api.post(f"/v1/jobs/1/{what}").json() == {"id": "1", "done": what}
        assert service.rows["1"]["state"] == state
    assert error(api.post("/v1/jobs/1/cancel")) == (409, "job '1' is cancelled")
    assert error(api.post("/v1/jobs/1/explode"))[0] == 422


def test_machines_are_drained_by_their_whole_name(api: TestClient, service: FakeService) -> None:
    assert api.post("/v1/nodes/rack0/m1/drain").status_code == 200
    assert service.machines == {"rack0/m0": "up", "rack0/m1": "drained"}
    api.post("/v1/nodes/rack0/m1/resume")
    assert service.machines["rack0/m1"] == "up"
    assert error(api.post("/v1/nodes/rack9/m1/drain")) == (404, "there is no machine 'rack9/m1'")


def test_the_policy_is_shown_and_changed_but_no_file_is_run_over_the_network(api: TestClient) -> None:
    assert api.put("/v1/policy", json={"policy": "las[quantum=10m]"}).status_code == 200
    assert api.get("/v1/policy").json()["policy"] == make_policy("las[quantum=10m]").name
    assert error(api.put("/v1/policy", json={"policy": "nope"}))[0] == 400
    for path in ("/tmp/evil.py", "evil.py[x=1]", "../evil"):
        assert error(api.put("/v1/policy", json={"policy": path}))[0] == 422
    assert error(api.put("/v1/policy", json={"policy": 3}))[0] == 422


@pytest.mark.parametrize("id", ["0x1", "..", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "1%00", "１", "-1", "1_", "9" * 40,
                                "%2e%2e", "1;ls", "' OR 1=1 --"])  # fmt: skip
@pytest.mark.parametrize("rest", ["", "/logs", "/explain"])
def test_path_tricks_find_no_job(api: TestClient, id: str, rest: str) -> None:
    assert api.get(f"/v1/jobs/{id}{rest}").status_code in (404, 405)


def test_a_log_is_read_in_pieces_from_any_offset(api: TestClient, service: FakeService) -> None:
    api.post("/v1/jobs", json=JOB)
    service.logs["1"] = b"".join(b"line %d\n" % n for n in range(1000))
    text, offset = b"", 0
    while True:
        answer = api.get(f"/v1/jobs/1/logs?offset={offset}&limit=999")
        assert len(answer.content) <= 999 and answer.headers["dally-ended"] == "false"
        if not answer.content:
            break
        text, offset = text + answer.content, int(answer.headers["dally-next-offset"])
    assert text == service.logs["1"]
    assert api.get("/v1/jobs/1/logs?tail=2").content == b"line 998\nline 999\n"
    assert api.get("/v1/jobs/1/logs?offset=99999999").content == b""


def test_a_log_of_a_million_lines_is_answered_within_its_limit(api: TestClient, service: FakeService) -> None:
    api.post("/v1/jobs", json=JOB)
    service.logs["1"] = b"".join(b"step %d\n" % n for n in range(1_000_000))
    whole = api.get("/v1/jobs/1/logs")
    assert len(whole.content) == 64 * 1024
    last = api.get("/v1/jobs/1/logs?tail=100000&limit=1000000")
    assert len(last.content) <= 1_000_000 and last.content.endswith(b"step 999999\n")
    assert error(api.get("/v1/jobs/1/logs?limit=100000000"))[0] == 422


@pytest.mark.parametrize(("body", "status"), [
    (b"", 422), (b"{", 422), (b"null", 422), (b'"x"', 422), (b"NaN", 422), (b"\xff\xfe", 422), (b"[" * 100_000, 422),
    (b'{"command": ["a"], "gpus": Infinity}', 422), (b'{"command": ["\\ud800"], "gpus": 1}', 422),
    (b'{"command": ["a"], "gpus": 1, "\\ud800": 1}', 422), (b'{"command": ["a"], "gpus": ' + b"9" * 5000 + b"}", 422),
    (b'{"command": ["a"], "gpus": 1e400}', 422), (b'{"command": ["a"], "gpus": 1, "name": "\\u0000"}', 422),
])  # fmt: skip
def test_a_body_that_is_no_job_is_refused_in_a_sentence(api: TestClient, body: bytes, status: int) -> None:
    answer = api.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status and answer.json()["error"]


def test_only_json_is_taken_so_that_no_form_of_a_page_can_submit(api: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = api.post("/v1/jobs", content=b'{"command": ["a"], "gpus": 1}', headers={"Content-Type": kind})
        assert error(answer)[0] == 415


def test_pages_of_other_sites_and_other_names_for_this_machine_are_refused_without_tokens(api: TestClient) -> None:
    assert error(api.get("/v1/jobs", headers={"Origin": "https://evil.example"}))[0] == 403
    assert error(api.get("/v1/jobs", headers={"Host": "evil.example:7433"}))[0] == 403
    assert api.get("/v1/jobs", headers={"Origin": "http://127.0.0.1:7433"}).status_code == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: TestClient, service: FakeService) -> None:
    headers = {"Content-Type": "application/json"}
    assert error(api.post("/v1/jobs", content=b" " * 1_000_001, headers=headers))[0] == 413
    pieces = (b" " * 10_000 for _ in range(200))  # no length is said: it is counted
    assert error(api.post("/v1/jobs", content=pieces, headers=headers))[0] == 413
    assert service.submissions == 0


def test_a_store_that_is_away_is_said_with_when_to_try_again(api: TestClient, service: FakeService) -> None:
    service.error = Unavailable("the store does not answer", 3.0)
    answer = api.post("/v1/jobs", json=JOB)
    assert error(answer) == (503, "the store does not answer") and answer.headers["retry-after"] == "3"
    service.error = NotLeader("http://other:7433")
    answer = api.post("/v1/jobs", json=JOB)
    assert answer.status_code == 503 and answer.json()["leader"] == "http://other:7433"


def test_a_fault_of_the_service_is_said_to_be_one_and_shows_nothing_of_its_insides(api: TestClient,
                                                                                  service: FakeService) -> None:  # fmt: skip
    service.error = RuntimeError("secret detail")
    answer = api.post("/v1/jobs", json=JOB)
    assert answer.status_code == 500 and "secret" not in answer.text and answer.json()["error"]


def test_more_changes_than_can_wait_are_refused_for_the_moment(service: FakeService, tokens: TokenFile) -> None:
    import threading

    inside, written = threading.Event(), Future[list[str]]()
    accept = service.hand_in

    def slow(*args: Any) -> Future[list[str]]:
        inside.set()
        return written

    service.hand_in = slow  # type: ignore[method-assign, assignment]
    app = make_app(service, Auth(tokens, owner="owner"), LimitsConfig(writes=1))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        first = threading.Thread(target=client.post, args=("/v1/jobs",), kwargs={"json": JOB})
        first.start()
        inside.wait(30)
        refused = client.post("/v1/jobs", json=JOB)
        assert error(refused)[0] == 429 and refused.headers["retry-after"] == "1"
        assert client.get("/v1/jobs").status_code == 200  # looking is not changing
        service.hand_in = accept  # type: ignore[method-assign]
        written.set_result(["1"])
        first.join()
        assert client.post("/v1/jobs", json=JOB).status_code == 201


def test_more_estimates_than_can_be_made_at_once_are_refused_for_the_moment(api: TestClient, service: FakeService) -> None:
    import threading

    from dally.live.api.app import THINKING

    api.post("/v1/jobs", json=JOB)
    hold, inside = threading.Event(), threading.Semaphore(0)
    quick = service.explain

    def slow(id: str) -> dict[str, Any]:
        inside.release()
        hold.wait(30)
        return quick(id)

    service.explain = slow  # type: ignore[method-assign, assignment]
    threads = [threading.Thread(target=api.get, args=("/v1/jobs/1/explain",)) for _ in range(THINKING)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert inside.acquire(timeout=30)
    refused = api.get("/v1/jobs/1/explain")
    assert error(refused)[0] == 429 and refused.headers["retry-after"] == "1"
    assert api.get("/v1/jobs/1").status_code == api.get("/v1/health").status_code == 200
    hold.set()
    for thread in threads:
        thread.join()
    assert api.get("/v1/jobs/1/explain").status_code == 200


def test_health_and_metrics_tell_what_there_is(api: TestClient, service: FakeService) -> None:
    assert api.get("/v1/health").json()["leader"] is True
    api.post("/v1/jobs", json=JOB)
    api.get("/v1/jobs/1")
    service.metrics.waited(5.0)
    text = api.get("/metrics").text
    for line in ('dally_jobs{state="waiting"} 1.0', 'dally_gpus{state="free"} 8.0', "dally_leader 1.0",
                 'dally_http_requests_total{method="POST",route="/v1/jobs",status="201"} 1.0',
                 'dally_http_requests_total{method="GET",route="/v1/jobs/{id}",status="200"} 1.0',
                 'dally_queue_wait_seconds_bucket{le="10.0"} 1.0'):  # fmt: skip
        assert line in text, line


def test_metrics_of_a_service_that_stands_by_say_so(api: TestClient, service: FakeService) -> None:
    def away(**_: Any) -> list[dict[str, Any]]:
        raise NotLeader(None)

    service.jobs = away  # type: ignore[method-assign, assignment]
    text = make_app_text(service)
    assert "dally_leader 0.0" in text and "dally_jobs{" not in text


def make_app_text(service: FakeService) -> str:
    from dally.live.metrics import LiveMetrics

    metrics = LiveMetrics()
    metrics.watch(service.jobs, service.nodes, service.health)
    return metrics.text().decode()


def test_everything_that_is_nowhere_is_a_sentence_too(api: TestClient) -> None:
    assert error(api.get("/v2/jobs")) == (404, "there is nothing at /v2/jobs")
    assert error(api.delete("/v1/jobs/1"))[0] == 405
    assert error(api.get("/v1/jobs?limit=many"))[0] == 422


def test_a_submission_is_answered_alike_on_the_short_way_and_by_its_route(api: TestClient) -> None:
    """A query sends it by the route."""
    asked: list[dict[str, Any]] = [
        {"json": JOB}, {"json": [JOB, JOB]}, {"json": {**JOB, "array": "0-2"}}, {"json": {**JOB, "gpus": 0}},
        {"json": []}, {"content": b"{"}, {"data": {"command": "true"}}, {"json": JOB, "headers": {"Origin": "http://a"}},
        {"json": JOB, "headers": {"Idempotency-Key": "k" * 201}}, {"json": JOB, "headers": {"Idempotency-Key": "a\tb"}},
    ]  # fmt: skip
    for each in asked:
        short, long = api.post("/v1/jobs", **each), api.post("/v1/jobs?dry_run=false", **each)
        assert short.status_code == long.status_code
        assert short.headers.keys() == long.headers.keys()
        if short.status_code == 201:
            assert len(short.json()["ids"]) == len(long.json()["ids"])
        else:
            assert short.json() == long.json()
    counted = api.get("/metrics").text
    assert 'dally_http_requests_total{method="POST",route="/v1/jobs",status="201"} 6.0' in counted
