"""Users with tokens: each sees and touches what is theirs; the administrator everything; nobody else anything."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_service import FakeService

from dally.core.errors import UserError
from dally.live.api import peer
from dally.live.api.app import make_app
from dally.live.api.auth import Auth
from dally.live.api.events import Owners
from dally.live.api.peer import owner_of
from dally.live.tokens import Caller, TokenFile

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

pytest_plugins = ["api_served"]
JOB = {"command": ["true"], "gpus": 1}
Users = dict[str, dict[str, str]]


@pytest.fixture
def users(tokens: TokenFile) -> Users:
    """Headers by name of user."""
    made = {"alice": tokens.add("alice"), "bob": tokens.add("bob"), "root": tokens.add("root", admin=True)}
    return {name: {"Authorization": f"Bearer {token}"} for name, token in made.items()}


@pytest.fixture
def api(service: FakeService, tokens: TokenFile) -> Iterator[TestClient]:
    with TestClient(make_app(service, Auth(tokens, owner="owner")), base_url="http://anywhere.example") as client:
        yield client


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"},
    {"Authorization": "Basic eDp5"}, {"Authorization": "bearer dally_" + "A" * 43}, {"Authorization": "Bearer \xff"},
])  # fmt: skip
def test_without_a_token_of_this_service_nothing_is_answered_but_health(api: TestClient, users: Users,
                                                                       headers: dict[str, str]) -> None:  # fmt: skip
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/nodes"), ("GET", "/v1/policy"),
                         ("GET", "/metrics"), ("GET", "/v1/events"), ("GET", "/v1/snapshot")):  # fmt: skip
        answer = api.request(method, path, headers={k: v.encode("latin-1") for k, v in headers.items()},
                             **({"json": JOB} if method == "POST" else {}))  # fmt: skip
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer", path
    assert api.get("/v1/health").status_code == 200


def test_others_jobs_are_not_there_and_are_only_counted(api: TestClient, users: Users, service: FakeService) -> None:
    api.post("/v1/jobs", json=JOB, headers=users["alice"])
    for path in ("/v1/jobs/1", "/v1/jobs/1/explain", "/v1/jobs/1/logs"):
        assert api.get(path, headers=users["bob"]).status_code == 404
        assert api.get(path, headers=users["alice"]).status_code == api.get(path, headers=users["root"]).status_code == 200
    for what in ("cancel", "hold", "release", "requeue"):
        assert api.post(f"/v1/jobs/1/{what}", headers=users["bob"]).status_code == 404
    assert service.rows["1"]["state"] == "waiting"
    # it is the same answer as for a job that nobody has
    assert api.get("/v1/jobs/1", headers=users["bob"]).text.replace("1", "7") == api.get("/v1/jobs/7", headers=users["bob"]).text
    page = api.get("/v1/jobs", headers=users["bob"]).json()
    assert (page["jobs"], page["others"]) == ([], {"waiting": 1})
    assert api.get("/v1/jobs?user=alice", headers=users["bob"]).status_code == 403
    assert [row["id"] for row in api.get("/v1/jobs", headers=users["root"]).json()["jobs"]] == ["1"]


def test_nobody_submits_for_another_except_as_a_label_of_the_administrator(api: TestClient, users: Users,
                                                                          service: FakeService) -> None:  # fmt: skip
    refused = api.post("/v1/jobs", json={**JOB, "user": "alice"}, headers=users["bob"])
    assert (refused.status_code, refused.json()["error"]) == (403, "user: bob cannot submit for alice")
    assert api.post("/v1/jobs?dry_run=true", json={**JOB, "user": "alice"}, headers=users["bob"]).status_code == 403
    assert not service.rows
    assert api.post("/v1/jobs", json={**JOB, "user": "alice"}, headers=users["root"]).status_code == 201
    assert service.rows["1"]["user"] == "alice"


def test_nobody_comes_after_anothers_job_and_learns_how_it_ended(api: TestClient, users: Users) -> None:
    api.post("/v1/jobs", json=JOB, headers=users["alice"])
    for dry in ("", "?dry_run=true"):
        refused = api.post(f"/v1/jobs{dry}", json={**JOB, "after_ok": ["1"]}, headers=users["bob"])
        assert (refused.status_code, refused.json()["error"]) == (400, "there is no job 1 to come after")
    for name in ("alice", "root"):
        assert api.post("/v1/jobs", json={**JOB, "after_ok": ["1"]}, headers=users[name]).status_code == 201


def test_a_key_of_one_user_is_no_key_of_another(api: TestClient, users: Users) -> None:
    ids = {name: api.post("/v1/jobs", json=JOB, headers={**users[name], "Idempotency-Key": "k"}).json()["id"]
           for name in ("alice", "bob")}  # fmt: skip
    assert ids["alice"] != ids["bob"]


def test_only_administrators_change_machines_and_policy_and_take_snapshots(api: TestClient, users: Users) -> None:
    asked = [("POST", "/v1/nodes/rack0/m0/drain", None), ("POST", "/v1/nodes/rack0/m0/resume", None),
             ("PUT", "/v1/policy", {"policy": "las"}), ("GET", "/v1/snapshot", None)]  # fmt: skip
    for method, path, body in asked:
        body_of: dict[str, Any] = {} if body is None else {"json": body}
        assert api.request(method, path, headers=users["alice"], **body_of).status_code == 403
        assert api.request(method, path, headers=users["root"], **body_of).status_code == 200


def test_on_machines_everybody_sees_their_own_jobs(api: TestClient, users: Users, service: FakeService) -> None:
    for name in ("alice", "bob"):
        api.post("/v1/jobs", json=JOB, headers=users[name])
    service.put("1", "running")
    service.put("2", "running")
    assert api.get("/v1/nodes", headers=users["bob"]).json()[0]["jobs"] == ["2"]
    assert api.get("/v1/nodes", headers=users["root"]).json()[0]["jobs"] == ["1", "2"]


def test_of_the_journal_everybody_sees_what_names_their_jobs(api: TestClient, users: Users, service: FakeService) -> None:
    for name in ("alice", "bob"):
        api.post("/v1/jobs", json=JOB, headers=users[name])
    owners = Owners(service)
    instant = {"t": 1.0, "happened": [{"e": "arrived", "job": {"id": "1", "gpus": 1}}, {"e": "started", "job": "2"},
                                      {"e": "timer"}], "decided": [{"e": "wait", "who": "1", "reason": ["x", "y"]}]}  # fmt: skip
    assert owners.readable(instant, Caller("root", admin=True)) == instant
    assert owners.readable(instant, Caller("bob")) == {"t": 1.0, "happened": [{"e": "started", "job": "2"}], "decided": []}
    assert owners.readable(instant, Caller("carol")) is None


def test_tokens_are_kept_as_digests_in_a_file_of_their_owner_alone(tokens: TokenFile) -> None:
    token = tokens.add("alice")
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert token not in tokens.path.read_text() and token.removeprefix("dally_") not in tokens.path.read_text()
    assert tokens.caller(token) == Caller("alice", False)
    assert tokens.caller(token[:-1]) is None and tokens.caller("") is None


def test_tokens_come_and_go_without_a_restart_and_the_last_one_lets_nobody_in(api: TestClient, tokens: TokenFile) -> None:
    other = TokenFile(tokens.path)  # as `dally token` does it, in another process
    token = other.add("alice")
    headers = {"Authorization": f"Bearer {token}"}
    assert api.get("/v1/jobs", headers=headers).status_code == 200
    (row,) = other.rows()
    other.remove(row.id)
    assert api.get("/v1/jobs", headers=headers).status_code == 401
    assert api.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tokens": [1]}', '{"tokens": [{"user": "x"}]}'])
def test_a_broken_file_of_tokens_lets_nobody_in(api: TestClient, tokens: TokenFile, text: str) -> None:
    tokens.path.write_text(text)
    with pytest.raises(UserError, match="is not a file of tokens"):
        tokens.rows()
    assert api.get("/v1/jobs", headers={"Authorization": "Bearer x"}).status_code == 503


def test_names_that_are_none_get_no_token(tokens: TokenFile) -> None:
    for name in ("", "../x", "a b", "x" * 65, "-x"):
        with pytest.raises(UserError, match="is not the name of a user"):
            tokens.add(name)
    with pytest.raises(UserError, match="there is no token"):
        tokens.remove("nobody")


def test_the_kernel_says_whose_a_connection_is() -> None:
    import socket

    listening = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listening.getsockname())
    far, address = listening.accept()
    for way in (owner_of, peer._looked_up):
        assert way(address, listening.getsockname()) == os.getuid()
        assert way(("127.0.0.1", 1), listening.getsockname()) is None
    for each in (near, far, listening):
        each.close()


def test_without_tokens_other_users_of_the_machine_are_refused(tokens: TokenFile) -> None:
    auth = Auth(tokens, owner="owner", peer=lambda client, server: os.getuid() + 1)
    for address in ("127.0.0.1", "127.0.0.2", "::1"):
        client = TestClient(make_app(FakeService(), auth), base_url="http://127.0.0.1", client=(address, 5))
        answer = client.get("/v1/jobs")
        assert answer.status_code == 401 and "answers owner alone" in answer.json()["error"]
    unknown = Auth(tokens, owner="owner", peer=lambda client, server: None)
    client = TestClient(make_app(FakeService(), unknown), base_url="http://127.0.0.1", client=("127.0.0.1", 5))
    assert client.get("/v1/jobs").status_code == 401
    mine = Auth(tokens, owner="owner", peer=lambda client, server: os.getuid())
    client = TestClient(make_app(FakeService(), mine), base_url="http://127.0.0.1", client=("127.0.0.1", 5))
    assert client.get("/v1/jobs").status_code == 200


def test_a_file_of_tokens_can_be_read_by_people(tokens: TokenFile, tmp_path: Path) -> None:
    tokens.add("alice", admin=True)
    (row,) = json.loads(tokens.path.read_text())["tokens"]
    assert (row["user"], row["admin"], len(row["sha256"])) == ("alice", True, 64)
