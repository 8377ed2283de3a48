"""The client: a submission is never doubled, a restart is waited out, the service in charge is found."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from api_serving import served
from fake_service import FakeService

from dally.core.errors import UserError
from dally.live.client import Client
from dally.live.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge, Unauthorized, Unavailable, Unreachable
from dally.live.places import write_address
from dally.live.tokens import TokenFile

pytest_plugins = ["api_served"]
JOB = {"command": ["true"], "gpus": 1}
Answering = Callable[[BaseHTTPRequestHandler, int], None]


class Scripted:
    """A server that answers its n-th request as it is told."""

    def __init__(self, answering: Answering) -> None:
        outer = self
        self.requests: list[tuple[str, str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.command, self.path, dict(self.headers)))
                answering(self, len(outer.requests))

            do_GET = do_POST = do_PUT = handle_any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def scripted() -> Iterator[Callable[[Answering], Scripted]]:
    made: list[Scripted] = []

    def make(answering: Answering) -> Scripted:
        made.append(Scripted(answering))
        return made[-1]

    yield make
    for each in made:
        each.close()


def reply(handler: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    raw = json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(raw)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(raw)


def quiet(urls: list[str], patience: float = 20.0, notes: list[str] | None = None) -> Client:
    return Client(urls, patience=patience, note=(notes if notes is not None else []).append)


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_key(scripted: Callable[[Answering], Scripted]) -> None:
    def answering(handler: BaseHTTPRequestHandler, number: int) -> None:
        if number < 3:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)  # it may have done it: nobody knows
        else:
            reply(handler, 201, {"ids": ["7"]})

    server, notes = scripted(answering), list[str]()
    assert quiet([server.url], notes=notes).post("jobs", body=JOB, key="abc")["ids"] == ["7"]
    assert [headers["Idempotency-Key"] for _, _, headers in server.requests] == ["abc"] * 3
    assert len(notes) == 2 and "does not answer; trying again" in notes[0] and notes[1] == "the service is back"


def test_a_service_that_is_restarted_is_waited_for(service: FakeService, tokens: TokenFile) -> None:
    with served(service, tokens) as url:
        client = quiet([url])
        client.get("health")
    port = int(url.rpartition(":")[2])
    back = threading.Event()

    def restart() -> None:
        import uvicorn

        from dally.live.api.app import make_app
        from dally.live.api.auth import Auth

        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        again = FakeService()
        server = uvicorn.Server(uvicorn.Config(make_app(again, Auth(tokens)), log_config=None, lifespan="on"))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        back.wait(30)
        server.should_exit = True

    timer = threading.Timer(0.5, restart)
    timer.start()
    assert client.post("jobs", body=JOB, key="k")["ids"] == ["1"]
    back.set()
    timer.join()


def test_who_is_busy_or_away_is_asked_again_when_it_says(scripted: Callable[[Answering], Scripted]) -> None:
    def answering(handler: BaseHTTPRequestHandler, number: int) -> None:
        if number == 1:
            reply(handler, 429, {"error": "busy"}, Retry_After="1")
        elif number == 2:
            reply(handler, 503, {"error": "away"}, Retry_After="1")
        else:
            reply(handler, 200, {"jobs": []})

    server = scripted(answering)
    assert quiet([server.url]).get("jobs") == {"jobs": []}
    assert len(server.requests) == 3


def test_patience_ends_and_then_it_is_said_why(scripted: Callable[[Answering], Scripted]) -> None:
    server = scripted(lambda handler, number: reply(handler, 503, {"error": "the store is gone"}))
    with pytest.raises(Unavailable, match="the store is gone"):
        quiet([server.url], patience=0.3).get("jobs")
    with pytest.raises(Unreachable, match=r"no service answers at http://127.0.0.1:9: start one with `dally serve`"):
        quiet(["http://127.0.0.1:9"], patience=0.2).get("jobs")


def test_an_idle_connection_that_was_closed_is_no_trouble_worth_a_word(scripted: Callable[[Answering], Scripted]) -> None:
    def answering(handler: BaseHTTPRequestHandler, number: int) -> None:
        reply(handler, 200, {"jobs": [number]})
        handler.close_connection = True  # without having said so

    server, said = scripted(answering), list[str]()
    client = Client([server.url], note=said.append)
    assert [client.get("jobs")["jobs"] for _ in range(3)] == [[1], [2], [3]]
    assert said == []


def test_of_several_services_the_one_in_charge_is_found_and_kept(scripted: Callable[[Answering], Scripted]) -> None:
    leader = scripted(lambda handler, number: reply(handler, 200, {"jobs": [number]}))
    standby = scripted(lambda handler, number: reply(handler, 503, {"error": "stands by"}, Retry_After="1"))
    client = quiet(["http://127.0.0.1:9", standby.url, leader.url])
    assert [client.get("jobs")["jobs"] for _ in range(3)] == [[1], [2], [3]]
    assert len(standby.requests) == 1


def test_a_service_that_stands_by_may_say_who_is_in_charge(scripted: Callable[[Answering], Scripted]) -> None:
    leader = scripted(lambda handler, number: reply(handler, 200, {"jobs": []}))
    standby = scripted(lambda handler, number: reply(handler, 503, {"error": "stands by", "leader": leader.url}))
    assert quiet([standby.url]).get("jobs") == {"jobs": []}


@pytest.mark.parametrize(("status", "kind"), [(400, UserError), (401, Unauthorized), (403, Forbidden), (404, NotFound),
                                              (409, Conflict), (413, TooLarge), (422, Invalid)])  # fmt: skip
def test_a_refusal_is_the_same_sentence_here_and_is_not_asked_again(scripted: Callable[[Answering], Scripted],
                                                                   status: int, kind: type[UserError]) -> None:  # fmt: skip
    server = scripted(lambda handler, number: reply(handler, status, {"error": "no, because"}))
    with pytest.raises(kind, match=r"^no, because$"):
        quiet([server.url]).get("jobs")
    assert len(server.requests) == 1


def test_something_that_is_no_service_of_ours_is_said_to_be_none(scripted: Callable[[Answering], Scripted]) -> None:
    server = scripted(lambda handler, number: reply(handler, 404, "nope"))
    with pytest.raises(NotFound, match="is it a Dally service"):
        quiet([server.url]).get("jobs")


def test_the_token_is_sent_and_the_environment_says_where_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                            scripted: Callable[[Answering], Scripted]) -> None:  # fmt: skip
    server = scripted(lambda handler, number: reply(handler, 200, {}))
    monkeypatch.setenv("DALLY_URL", f"http://127.0.0.1:9, {server.url}/")
    monkeypatch.setenv("DALLY_API_TOKEN", "dally_x")
    monkeypatch.setenv("DALLY_PATIENCE", "5s")
    client = Client.found()
    client.get("jobs")
    assert client.patience == 5.0 and server.requests[0][2]["Authorization"] == "Bearer dally_x"
    monkeypatch.delenv("DALLY_URL")
    monkeypatch.setenv("DALLY_STATE", str(tmp_path))
    assert Client.found().patience == 0.0  # nobody says that there is a service
    write_address(tmp_path, server.url)
    assert (Client.found().urls, Client.found().patience) == ([server.url], 5.0)
    monkeypatch.setenv("DALLY_URL", "ftp://x")
    with pytest.raises(UserError, match="is not where a service can be"):
        Client.found()
