"""What `dally serve` does: a service, its API on a socket, and signals, until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from dally.core.errors import UserError
from dally.core.queues import Queue
from dally.live.api.app import make_app
from dally.live.api.auth import Auth
from dally.live.attending import LiveRules
from dally.live.config import Configured, ServiceConfig, check_exposure, differences
from dally.live.logs import set_up
from dally.live.places import forget_address, write_address
from dally.live.serving import Server
from dally.live.tokens import TokenFile

_LOG = logging.getLogger("dally.serve")
GRACE = 5  # seconds that requests under way may take when the service stops
SWITCH = 0.0005  # seconds a thread that computes may go on while others, who answer people, want to
Open = Callable[[ServiceConfig], Server]
Read = Callable[[], Configured]


class _Web(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(read: Read, open_service: Open) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. `read` reads the configuration, now and at SIGHUP."""
    configured = read()
    configured.check()
    config = configured.config
    tokens = TokenFile(config.token_file)
    tokens.rows()  # a file that cannot be read is said now, not at the first request
    check_exposure(config, bool(tokens.rows()))
    set_up(config.log)
    try:
        config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"the state {config.folder} cannot be made: {error.strerror}") from None
    listening = _listen(config)
    port = listening.getsockname()[1]
    config = config.model_copy(update={"listen": config.listen.model_copy(update={"port": port})})
    service = open_service(config)
    return _Run(config, service, tokens, listening, read).until_told()


class _Run:
    def __init__(self, config: ServiceConfig, service: Server, tokens: TokenFile, listening: socket.socket,
                 read: Read) -> None:  # fmt: skip
        self.config, self.service, self.listening, self._read = config, service, listening, read
        self.app: FastAPI = make_app(service, Auth(tokens), config.limits, config.log.requests)
        self.web = _Web(uvicorn.Config(
            self.app, log_config=None, access_log=False, lifespan="on", server_header=False, backlog=1024,
            timeout_graceful_shutdown=GRACE, ws="none",
            ssl_certfile=config.tls.certificate if config.tls else None,
            ssl_keyfile=config.tls.key if config.tls else None,
        ))  # fmt: skip
        self.broken: BaseException | None = None

    def until_told(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        signal.signal(signal.SIGHUP, self._told_to_reload)
        sys.setswitchinterval(SWITCH)
        thread = threading.Thread(target=self._lead, name="service")
        thread.start()
        write_address(self.config.folder, self.config.url)
        print(f"dally serves {self.config.url} (state {self.config.folder}, policy {self.config.policy})",
              file=sys.stderr, flush=True)  # fmt: skip
        try:
            self.web.run(sockets=[self.listening])
        finally:
            self.service.stop()
            thread.join()
            self.service.close()
            forget_address(self.config.folder)
        if self.broken is not None:
            print(f"dally: the service broke off: {self.broken}", file=sys.stderr)
            return 1
        return 0

    def _lead(self) -> None:
        try:
            self.service.run_forever()
        except BaseException as error:
            self.broken = error
            _LOG.error("the service broke off", exc_info=error)
        finally:
            self._end()

    def _end(self) -> None:
        """Readers of events are let go, so that nobody waits for them."""
        follower = getattr(self.app.state, "follower", None)
        if follower is not None:
            follower.let_go()
        self.web.should_exit = True

    def _told_to_stop(self, number: int, frame: FrameType | None) -> None:
        if self.web.should_exit and number == signal.SIGINT:
            self.web.force_exit = True  # a second Ctrl-C does not wait for requests
        self._end()

    def _told_to_reload(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._reload, name="reload").start()  # a signal must not wait for files

    def _reload(self) -> None:
        try:
            configured = self._read()
            configured.check()
            new = configured.config
            new = new.model_copy(update={"listen": self.config.listen}) if new.listen.port == 0 else new
            changed, stuck = differences(self.config, new)
            kept = {name: getattr(self.config, name) for name in stuck}
            new = new.model_copy(update=kept)
            self.service.reload(policy=new.policy, rules=rules_of(new), stop_jobs=new.stop == "checkpoint",
                                queues=queues_of(new))  # fmt: skip
        except UserError as error:
            _LOG.error("the configuration was not taken over: %s", error)
            return
        self.config = new
        set_up(new.log)
        _LOG.info("configuration read again; changed: %s", ", ".join(sorted(changed)) or "nothing")
        if stuck:
            _LOG.warning("these count only after a restart: %s", ", ".join(sorted(stuck)))


def queues_of(config: ServiceConfig) -> tuple[Queue, ...]:
    return tuple(Queue(name, queue.weight, queue.max_gpus, queue.max_gpus_per_user, queue.max_jobs_per_user)
                 for name, queue in config.queues.items())  # fmt: skip


def rules_of(config: ServiceConfig) -> LiveRules:
    """On Slurm it is the engine that says whether a start has failed: a controller that is away says nothing."""
    patience = None if config.engine == "slurm" else config.rules.start_timeout
    return LiveRules(retries=config.rules.retries, start_timeout=patience)


def _listen(config: ServiceConfig) -> socket.socket:
    """Bound before anything else: of two services for one address only one gets further."""
    where = config.listen
    try:
        family, _, _, _, address = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle's delay on
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise UserError(f"cannot listen on {where.host}:{where.port}: {error.strerror or error}; is a service there "
                        "already? --port takes another one") from None  # fmt: skip
    found.set_inheritable(False)
    return found
