"""The other end of the API: finds the service, sends, waits out a restart. Standard library only, so that it is quick.

DALLY_URL says where the service is, or several of which one is in charge, with commas between; DALLY_API_TOKEN who
asks; DALLY_CA the file of certificates to trust; DALLY_PATIENCE for how many seconds a service that does not answer is
waited for. A submission is sent with the same key until it is answered: it is never doubled.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from dally.core.errors import UserError
from dally.live.errors import (
    Busy,
    Conflict,
    Fault,
    Forbidden,
    Invalid,
    NotFound,
    ServiceError,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from dally.live.places import DEFAULT_URL, default_state, read_address

PATIENCE = 30.0
TIMEOUT = 30.0  # seconds for one answer
_ERRORS: dict[int, type[ServiceError]] = {each.status: each for each in (
    Unauthorized, Forbidden, NotFound, Conflict, TooLarge, Invalid, Busy, Unavailable
)}  # fmt: skip
_LOST = (OSError, http.client.HTTPException)  # refused, reset, timed out, cut off


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, urls: list[str], token: str | None = None, patience: float = PATIENCE,
                 note: Callable[[str], None] | None = None) -> None:  # fmt: skip
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UserError(f"{url!r} is not where a service can be; DALLY_URL is like {DEFAULT_URL}")
        self.urls, self.token, self.patience = list(urls), token, patience
        self._note = note or (lambda text: print(f"dally: {text}", file=sys.stderr, flush=True))
        self._connection: tuple[str, http.client.HTTPConnection] | None = None
        self._met = False  # whether anybody has answered yet
        self._following = 0.0

    @classmethod
    def found(cls) -> Client:
        """By the environment, or where the service of the default state says it is."""
        token = os.environ.get("DALLY_API_TOKEN") or None
        given = [url.strip().rstrip("/") for url in os.environ.get("DALLY_URL", "").split(",") if url.strip()]
        if not given:
            known = read_address(default_state())
            if known is None:  # nobody says that there is a service: there is nothing to wait for
                return cls([DEFAULT_URL], token, patience=0.0)
            given = [known]
        return cls(given, token, patience=_patience())

    def follow(self, patience: float = 600.0) -> Client:
        """For commands that follow something: once a service has answered, it is waited for longer."""
        self._following = patience
        return self

    # --- requests ---------------------------------------------------------------------------------------------

    def get(self, *path: str, **query: Any) -> Any:
        return self.send("GET", path, query=query).data

    def post(self, *path: str, body: Any = None, key: str | None = None, **query: Any) -> Any:
        return self.send("POST", path, body=body, key=key, query=query).data

    def put(self, *path: str, body: Any) -> Any:
        return self.send("PUT", path, body=body).data

    def send(self, method: str, path: tuple[str, ...], *, body: Any = None, query: Mapping[str, Any] | None = None,
             key: str | None = None) -> Answer:  # fmt: skip
        """Until it is answered, or nobody has answered for as long as we are patient."""
        safe = "/" if path[0] == "nodes" else ""  # names of machines have slashes, ids do not
        target = "/v1/" + "/".join(quote(part, safe=safe) for part in path)
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        if asked:
            target += "?" + urlencode(asked, doseq=True)
        raw = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + (max(self.patience, self._following) if self._met else self.patience)
        pause, noted = 0.1, False
        while True:
            answer, why = self._ask_all(method, target, raw, key)
            if answer is not None:
                self._met = True
                if noted:
                    self._note("the service is back")
                return answer
            left = until - time.monotonic()
            if left <= 0:
                raise why if isinstance(why, ServiceError) else self._unreachable()
            if not noted:
                self._note(f"{' and '.join(self.urls)} {_what(why)}; trying again for {left:.0f} s")
                noted = True
            retry = why.retry if isinstance(why, (Busy, Unavailable)) else pause
            time.sleep(max(0.0, min(retry, pause * 2, left)))
            pause = min(1.0, pause * 1.5)

    def _ask_all(self, method: str, target: str, raw: bytes | None,
                 key: str | None) -> tuple[Answer | None, Exception]:  # fmt: skip
        """Ask one after the other; the first that answers is asked first from then on."""
        why: Exception = Unreachable("nobody was asked")
        urls = list(self.urls)
        for url in urls:
            try:
                answer = self._ask(url, method, target, raw, key)
            except _LOST as error:
                self.close()
                if type(error).__name__ == "SSLCertVerificationError":  # waiting does not help
                    raise Unreachable(f"the certificate of {url} is not trusted: name the file of the one that signed "
                                      "it in DALLY_CA") from None  # fmt: skip
                why = why if isinstance(why, ServiceError) else error
                continue
            if answer.status < 400:
                self.urls = [url, *(other for other in self.urls if other != url)]
                return answer, why
            found = _error(answer)
            if not isinstance(found, (Busy, Unavailable)):
                raise found
            why = found
            leader = _leader(answer)
            if leader is not None and leader not in urls and len(urls) < 20:
                urls.append(leader)  # it knows who is in charge
        return None, why

    def _ask(self, url: str, method: str, target: str, raw: bytes | None, key: str | None) -> Answer:
        used = self._connection is not None and self._connection[0] == url
        try:
            return self._ask_once(url, method, target, raw, key)
        except ConnectionError:
            if not used:
                raise
            self.close()  # a connection that was idle, and closed for that, says nothing of the service
            return self._ask_once(url, method, target, raw, key)

    def _ask_once(self, url: str, method: str, target: str, raw: bytes | None, key: str | None) -> Answer:
        if self._connection is None or self._connection[0] != url:
            self.close()
            self._connection = (url, _connect(url))
        connection = self._connection[1]
        headers = {"Accept": "application/json", "User-Agent": "dally"}
        if raw is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if key is not None:
            headers["Idempotency-Key"] = key
        with contextlib.suppress(BrokenPipeError):  # it answered before it had read all: too large, most likely
            connection.request(method, urlsplit(url).path + target, raw, headers)
        response = connection.getresponse()
        answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()},
                        response.read())  # fmt: skip
        if response.will_close:
            self.close()
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    def _unreachable(self) -> Unreachable:
        return Unreachable(f"no service answers at {' or '.join(self.urls)}: start one with `dally serve`, or say "
                           "where it is with DALLY_URL")  # fmt: skip


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
    import ssl

    try:
        context = ssl.create_default_context(cafile=os.environ.get("DALLY_CA"))
    except OSError as error:
        raise UserError(f"DALLY_CA: {os.environ.get('DALLY_CA')} cannot be used: {error}") from None
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT, context=context)


def _error(answer: Answer) -> ServiceError:
    try:
        sentence = str(answer.data["error"])
    except (ValueError, LookupError, TypeError):
        sentence = f"the service answers with status {answer.status} and no sentence; is it a Dally service?"
    kind = _ERRORS.get(answer.status, Fault if answer.status >= 500 else ServiceError)
    if kind is Busy or kind is Unavailable:
        wait = answer.headers.get("retry-after", "")
        return (Busy if kind is Busy else Unavailable)(sentence, float(wait) if wait.isdigit() else 1.0)
    return kind(sentence)


def _leader(answer: Answer) -> str | None:
    try:
        url = answer.data.get("leader")
    except (ValueError, AttributeError):
        return None
    return url.rstrip("/") if isinstance(url, str) and url.startswith(("http://", "https://")) else None


def _what(why: Exception) -> str:
    if isinstance(why, ServiceError):
        return f"says: {why}"
    if isinstance(why, socket.gaierror):
        return "cannot be found"
    return "does not answer"


def _patience() -> float:
    text = os.environ.get("DALLY_PATIENCE")
    if text is None:
        return PATIENCE
    from dally.core.units import seconds

    return max(0.0, seconds(text))
