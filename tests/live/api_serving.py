"""The real API on a real socket, and waiting for what will come."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fake_service import FakeService

from dally.live.api.app import make_app
from dally.live.api.auth import Auth
from dally.live.config import LimitsConfig
from dally.live.tokens import TokenFile


@contextmanager
def served(service: FakeService, tokens: TokenFile, limits: LimitsConfig | None = None) -> Iterator[str]:
    """The URL of a real server on a free port."""
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    app = make_app(service, Auth(tokens, owner="owner"), limits)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        app.state.follower.let_go()
        server.should_exit = True
        thread.join(20)
        listening.close()


def until(holds: Callable[[], object], limit: float = 30.0) -> None:
    """Wait for something that will come; the limit is only for tests that fail."""
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)
