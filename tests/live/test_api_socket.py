"""The API on a real socket: large bodies, many readers of events, slow ones, resuming."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from api_serving import served, until
from fake_service import FakeService

import dally.live.api.events as events
from dally.live.config import LimitsConfig
from dally.live.tokens import TokenFile

pytest_plugins = ["api_served"]
JOB = {"command": ["true"], "gpus": 1}


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)


class Reader:
    """Reads events in a thread, as a browser would."""

    def __init__(self, url: str, query: str = "", headers: dict[str, str] | None = None) -> None:
        self.connection = connect(url)
        self.connection.request("GET", f"/v1/events{query}", headers=headers or {})
        self.response = self.connection.getresponse()
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.begun = threading.Event()
        threading.Thread(target=self._until_closed, daemon=True).start()
        assert self.begun.wait(30)

    def _until_closed(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            self._read()

    def _read(self) -> None:
        position = 0
        for raw in self.response:
            line = raw.decode().rstrip("\n")
            self.begun.set()
            if line.startswith("id: "):
                position = int(line[4:])
            elif line.startswith("data: "):
                self.events.append((position, json.loads(line[6:])))

    def close(self) -> None:
        sock = self.connection.sock or self.response.fp.raw._sock  # type: ignore[attr-defined]
        sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def test_a_body_of_a_hundred_megabytes_is_refused_and_the_service_goes_on(url: str, service: FakeService) -> None:
    size = 100_000_000
    for chunked in (False, True):
        connection = connect(url)
        connection.putrequest("POST", "/v1/jobs")
        connection.putheader("Content-Type", "application/json")
        connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))))
        connection.endheaders()
        piece, sent = b" " * 1_000_000, 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may not want to hear more
            while sent < size:
                connection.send(b"%x\r\n" % len(piece) + piece + b"\r\n" if chunked else piece)
                sent += len(piece)
        try:
            assert connection.getresponse().status == 413
        except (ConnectionResetError, http.client.BadStatusLine):
            assert sent < size  # cut off before its answer could be read
        connection.close()
    connection = connect(url)
    connection.request("GET", "/v1/health")
    assert connection.getresponse().status == 200
    assert service.submissions == 0


def test_events_come_as_they_happen_and_go_on_where_a_reader_was(url: str, service: FakeService) -> None:
    service.say(e="before")
    first = Reader(url)  # from now on
    service.say(e="one")
    service.say(e="two")
    until(lambda: len(first.events) == 2)
    assert [(position, found["happened"][0]["e"]) for position, found in first.events] == [(2, "one"), (3, "two")]
    first.close()
    service.say(e="three")
    by_header = Reader(url, headers={"Last-Event-ID": "2"})
    by_query = Reader(url, "?after=0")
    until(lambda: len(by_header.events) == 2 and len(by_query.events) == 4)
    assert [position for position, _ in by_header.events] == [3, 4]
    assert [found["happened"][0]["e"] for _, found in by_query.events] == ["before", "one", "two", "three"]
    by_header.close()
    by_query.close()


def test_a_hundred_readers_all_get_everything_in_order(url: str, service: FakeService) -> None:
    readers = [Reader(url, "?after=0") for _ in range(100)]
    for number in range(300):
        service.say(e="tick", n=number)
    until(lambda: all(len(reader.events) == 300 for reader in readers), 60)
    for reader in readers:
        assert [position for position, _ in reader.events] == list(range(1, 301))
        reader.close()


def test_a_reader_far_behind_reads_from_the_journal_until_it_has_caught_up(url: str, service: FakeService,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    ahead = Reader(url)
    for number in range(events.KEPT + 1000):
        service.say(e="tick", n=number)
    until(lambda: len(ahead.events) == events.KEPT + 1000)
    behind = Reader(url, "?after=3")
    until(lambda: len(behind.events) == events.KEPT + 997)
    assert [position for position, _ in behind.events] == list(range(4, events.KEPT + 1001))
    ahead.close()
    behind.close()


def test_a_reader_who_takes_nothing_is_cut_off_and_resumes(url: str, service: FakeService,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(events, "PATIENCE", 0.3)
    address = (urlsplit(url).hostname, urlsplit(url).port)
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect(address)
    lazy.sendall(f"GET /v1/events?after=0 HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    for number in range(3000):
        service.say(e="tick", n=number, padding="x" * 2000)  # more than any buffer on the way holds
    time.sleep(2.0)  # takes nothing for longer than anybody is patient
    lazy.settimeout(30)
    taken = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := lazy.recv(1 << 16):
            taken += piece
    lazy.close()
    last = max(int(line[4:]) for line in taken.split(b"\n")[:-1] if line.startswith(b"id: ") and line[4:].strip().isdigit())
    assert last < 3000
    again = Reader(url, f"?after={last}")
    until(lambda: again.events and again.events[-1][0] == 3000)
    assert [position for position, _ in again.events] == list(range(last + 1, 3001))
    again.close()


def test_more_streams_than_there_may_be_are_refused(service: FakeService, tokens: TokenFile) -> None:
    with served(service, tokens, LimitsConfig(streams=1)) as url:
        only = Reader(url)
        connection = connect(url)
        connection.request("GET", "/v1/events")
        answer = connection.getresponse()
        assert answer.status == 503 and answer.headers["Retry-After"] == "5"
        only.close()

        def again() -> bool:
            other = connect(url)
            other.request("GET", "/v1/events")
            found = other.getresponse().status
            other.close()
            return found == 200

        until(again)


def test_positions_that_are_none_are_refused(url: str) -> None:
    for query, headers in (("?after=-1", {}), ("?after=x", {}), ("", {"Last-Event-ID": "x"}),
                           ("", {"Last-Event-ID": "9" * 30})):  # fmt: skip
        connection = connect(url)
        connection.request("GET", f"/v1/events{query}", headers=headers)
        assert connection.getresponse().status == 422
        connection.close()


def test_fifty_clients_submit_at_once_and_every_job_has_an_id_of_its_own(url: str, service: FakeService) -> None:
    lock, ids = threading.Lock(), list[str]()
    accept = service.submit

    def one_at_a_time(*args: Any) -> list[str]:  # the fake is not safe from threads; the API is what is tried
        with lock:
            return accept(*args)

    service.submit = one_at_a_time  # type: ignore[method-assign, assignment]

    def client() -> None:
        connection = connect(url)
        for _ in range(10):
            connection.request("POST", "/v1/jobs", json.dumps(JOB), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            ids.append(json.loads(answer.read())["id"])

    threads = [threading.Thread(target=client) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == len(set(ids)) == 500
