"""In front of every request: how many at a time, how large, how long it took."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dally.live.api.answers import of_error
from dally.live.config import LimitsConfig
from dally.live.errors import Busy, TooLarge, Unavailable
from dally.live.metrics import LiveMetrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOG = logging.getLogger("dally.requests")
_STREAM = "/v1/events"
_ALWAYS = ("/v1/health", "/metrics")  # must answer when nothing else does


class Front:
    """ASGI middleware. What is too much is refused before anything is read or done."""

    def __init__(self, app: App, limits: LimitsConfig, metrics: LiveMetrics, log_requests: bool = False) -> None:
        self.app, self.limits, self.metrics, self.log_requests = app, limits, metrics, log_requests
        self.writes = self.requests = self.streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        refused = self._refusal(scope)
        counter = self._counter(scope)
        if refused is None:
            setattr(self, counter, getattr(self, counter) + 1)
        try:
            if refused is not None:
                await of_error(refused)(scope, receive, watched)
            else:
                await self.app(scope, self._limited(receive), watched)
        except Exception:
            status = status or 500
            raise
        finally:
            if refused is None:
                setattr(self, counter, getattr(self, counter) - 1)
            self._note(scope, status or 499, time.perf_counter() - began)  # 499: who asked has gone

    def _counter(self, scope: Scope) -> str:
        if scope["path"] == _STREAM:
            return "streams"
        return "requests" if scope["method"] in ("GET", "HEAD") else "writes"

    def _refusal(self, scope: Scope) -> Exception | None:
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length) > self.limits.body:
            return TooLarge(f"the request has {int(length)} bytes; {self.limits.body} are the most (limits.body)")
        if scope["path"] in _ALWAYS:
            return None
        kind = self._counter(scope)
        if kind == "streams" and self.streams >= self.limits.streams:
            return Unavailable(f"{self.limits.streams} streams of events are open, the most there may be", 5.0)
        if kind == "writes" and self.writes >= self.limits.writes:
            return Busy(f"{self.writes} changes are waiting to be written; try again in a moment", 1.0)
        if self.requests + self.writes >= self.limits.requests:
            return Unavailable(f"{self.requests + self.writes} requests are being answered; try again in a moment", 1.0)
        return None

    def _limited(self, receive: Receive) -> Receive:
        """The body, counted while it is read: a length that was not said, or was a lie, makes no difference."""
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.limits.body:
                raise TooLarge(f"the request has more than {self.limits.body} bytes, the most there may be")
            return message

        return counted

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"  # never the path itself: ids are no labels
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT") else "other"
        if route != _STREAM:
            self.metrics.answered(method, route, status, seconds)
        if self.log_requests:
            _LOG.info("%s %s %s", scope["method"], scope["path"], status,
                      extra={"method": scope["method"], "path": scope["path"], "status": status,
                             "seconds": round(seconds, 6), "client": (scope.get("client") or ("",))[0]})  # fmt: skip
