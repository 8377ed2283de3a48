"""The stream of events (SSE): the journal as it is written, resumable by position, for any number of readers.

One thread follows the journal for all of them and keeps the newest instants at hand; a reader who is further back
reads from the journal until it has caught up. Nothing is ever queued for a reader: one that does not take what it is
sent is cut off after a while and comes back with the position it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from dally.core.errors import UserError
from dally.live.api.asking import Service, Who
from dally.live.api.rows import PROBLEMS
from dally.live.errors import Invalid
from dally.live.serving import Serving
from dally.live.tokens import Caller

KEPT = 4096  # instants at hand
SIZE = 16_000_000  # characters of them, at the most
BATCH = 256  # instants read or sent at a time
GATHER = 0.1  # seconds in which what is written is sent together: a hundred readers are woken once, not every time
PATIENCE = 30.0  # seconds a reader may take nothing
HEARTBEAT = 15.0  # seconds between signs of life
_LOG = logging.getLogger("dally.events")


class Told(NamedTuple):
    """An instant of the journal, and how many there are up to it."""

    position: int
    line: str


class Follower:
    """Follows the journal in a thread, and wakes those who wait for more."""

    def __init__(self, service: Serving, loop: asyncio.AbstractEventLoop) -> None:
        self.service, self._loop = service, loop
        self._kept: list[Told] = []  # without gaps
        self._shown: dict[tuple[str | None, int, int], bytes] = {}  # what readers of the newest are sent, by whom
        self._grown = asyncio.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="events", daemon=True)
        self._asked = False

    def start(self) -> None:
        """With the first reader: a service nobody watches follows nothing."""
        if not self._asked:
            self._asked = True
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._grown.set()

    def let_go(self) -> None:
        """`stop`, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self.stop)

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def _follow(self) -> None:
        position: int | None = None
        while not self._stopped.is_set():
            try:
                if position is None:
                    position = self.newest()
                found = self._read(position, 1.0)
            except UserError:  # the store is gone for a while, or another service is in charge
                self._stopped.wait(0.5)
                continue
            except Exception:
                _LOG.exception("events cannot be followed")
                self._stopped.wait(5.0)
                continue
            if found:
                position = found[-1].position
                self._loop.call_soon_threadsafe(self._add, found)
                if len(found) < BATCH:
                    self._stopped.wait(GATHER)

    def newest(self) -> int:
        """Position of the newest instant: how many there are."""
        return int(self.service.health()["instants"])

    def _read(self, position: int, wait: float) -> list[Told]:
        """After so many instants, those that follow."""
        return [Told(number + 1, line) for number, line in self.service.events_after(position, BATCH, wait)]

    def _add(self, found: list[Told]) -> None:
        if self._kept and self._kept[-1].position + 1 != found[0].position:
            self._kept.clear()
        self._kept += found
        if len(self._kept) >= 2 * KEPT:
            del self._kept[:-KEPT]
        while len(self._kept) > 1 and sum(len(told.line) for told in self._kept) > SIZE:
            del self._kept[: len(self._kept) // 2]
        self._shown.clear()
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def after(self, position: int) -> list[Told]:
        """Some instants after this position; nothing after a heartbeat's time without any."""
        if not (self._kept and self._kept[0].position <= position + 1):  # further back than what is at hand
            found = await run_in_threadpool(self._read, position, 0.0)
            if found:
                return found
        newer = self._newer(position)  # looked at again after that: more may have come meanwhile
        if newer:
            return newer
        try:
            async with asyncio.timeout(HEARTBEAT):
                await self._grown.wait()
        except TimeoutError:
            return []
        return self._newer(position)

    def _newer(self, position: int) -> list[Told]:
        if not self._kept or self._kept[-1].position <= position:
            return []
        first = max(0, position + 1 - self._kept[0].position)
        return self._kept[first : first + BATCH]

    async def shown(self, found: list[Told], owners: Owners, caller: Caller) -> bytes:
        """What this caller is sent of them; made once for all who are sent the same."""
        key = (None if caller.admin else caller.name, found[0].position, found[-1].position)
        if key not in self._shown:
            text = _plain(found) if caller.admin else await run_in_threadpool(_filtered, found, owners, caller)
            if len(self._shown) > 1000:
                self._shown.clear()
            self._shown[key] = text
        return self._shown[key]


class Owners:
    """Whose a job is, remembered: it never changes."""

    def __init__(self, service: Serving) -> None:
        self._service = service
        self._known: dict[str, str | None] = {}

    def readable(self, instant: dict[str, Any], caller: Caller) -> dict[str, Any] | None:
        """What of an instant this caller may see: entries that name a job of theirs."""
        if caller.admin:
            return instant
        kept: dict[str, Any] = {name: [entry for entry in instant.get(name) or () if self._theirs(entry, caller)]
                for name in ("happened", "decided") if name in instant}  # fmt: skip
        return {**instant, **kept} if any(kept.values()) else None

    def _theirs(self, entry: dict[str, Any], caller: Caller) -> bool:
        named = entry.get("job", entry.get("who"))
        id = named.get("id") if isinstance(named, dict) else named
        if not isinstance(id, str):
            return False
        if id not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            row = self._service.job(id)
            self._known[id] = None if row is None else row.get("user")
        return caller.may_see(self._known[id])


class EventStream(Response):
    """Server-sent events that cut off who does not read them."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]],
                       send: Callable[[Any], Awaitable[None]]) -> None:  # fmt: skip
        gone, sending = asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except TimeoutError:
            _LOG.info("a reader of events took nothing for %g s and was cut off", PATIENCE)
        finally:
            gone.cancel()
            sending.cancel()

    async def _send(self, send: Callable[[Any], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in self._chunks:
            async with asyncio.timeout(PATIENCE):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        async with asyncio.timeout(PATIENCE):
            await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


router = APIRouter(tags=["events"], responses=PROBLEMS)


@router.get("/v1/events", response_class=Response,
            responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}},
                             "description": "One event per instant of the journal; its id is its position."}},
            )  # fmt: skip
async def events(request: Request, service: Service, caller: Who,
                 after: Annotated[int | None, Query(ge=0, le=2**62, description="Position; none: from now on.")] = None,
                 last: Annotated[str | None, Header(alias="Last-Event-ID")] = None) -> Response:  # fmt: skip
    """What happens and what is decided, as it is written. Goes on after the position that is named."""
    follower: Follower = request.app.state.follower
    owners: Owners = request.app.state.owners
    if last is not None:
        if not last.isdigit() or len(last) > 18:
            raise Invalid(f"Last-Event-ID: {last[:60]!r} is no position")
        position = int(last)
    elif after is not None:
        position = after
    else:
        position = await run_in_threadpool(follower.newest)
    follower.start()
    return EventStream(_chunks(follower, owners, caller, position))


async def _chunks(follower: Follower, owners: Owners, caller: Caller, position: int) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n: from position %d\n\n" % position
    while not follower.stopped:
        try:
            found = await follower.after(position)
        except UserError as error:
            yield b"event: error\ndata: %s\n\n" % json.dumps({"error": str(error)}).encode()
            return
        if not found:
            yield b": still here\n\n"
            continue
        position = found[-1].position
        shown = await follower.shown(found, owners, caller)
        yield shown or b"id: %d\n: nothing of yours\n\n" % position


def _plain(found: list[Told]) -> bytes:
    return "".join(f"id: {position}\ndata: {line.rstrip()}\n\n" for position, line in found).encode()


def _filtered(found: list[Told], owners: Owners, caller: Caller) -> bytes:
    seen = ((position, owners.readable(json.loads(line), caller)) for position, line in found)
    return "".join(f"id: {position}\ndata: {json.dumps(instant, separators=(',', ':'))}\n\n"
                   for position, instant in seen if instant is not None).encode()  # fmt: skip
