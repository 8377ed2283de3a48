"""What routes share: who asks, the body of a request, which job is meant."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Depends, Path
from starlette.requests import Request

from dally.live.api.auth import Auth
from dally.live.errors import Busy, Forbidden, Invalid, NotFound, NotJson
from dally.live.serving import Row, Serving
from dally.live.tokens import Caller

_ID = re.compile(r"^[0-9]{1,18}(_[0-9]{1,9})?$")


# Dependencies are coroutines though they wait for nothing: a plain function would be sent to a thread, each.


async def the_service(request: Request) -> Serving:
    service: Serving = request.app.state.service
    return service


async def the_caller(request: Request) -> Caller:
    auth: Auth = request.app.state.auth
    return auth.caller(request)


async def an_admin(caller: Annotated[Caller, Depends(the_caller)]) -> Caller:
    if not caller.admin:
        raise Forbidden(f"{caller.name} is not an administrator of this service")
    return caller


async def the_body(request: Request) -> Any:
    """The body as plain data. Only JSON: a form on somebody's page cannot send that."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise NotJson("the body must be JSON, sent with `Content-Type: application/json`")
    raw = await request.body()
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise Invalid("the body is nested too deeply") from None
    except ValueError as error:
        raise Invalid(f"the body is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


Service = Annotated[Serving, Depends(the_service)]
Who = Annotated[Caller, Depends(the_caller)]
Admin = Annotated[Caller, Depends(an_admin)]
Body = Annotated[Any, Depends(the_body)]
JobPath = Annotated[str, Path(description="Id of a job: 42, or 42_0 in an array.")]


@contextmanager
def thinking(request: Request) -> Iterator[None]:
    """Around questions that are answered by simulating forward: few at a time, so that the rest is answered too."""
    slots: threading.BoundedSemaphore = request.app.state.thinking
    if not slots.acquire(blocking=False):
        raise Busy("others are having their start estimated; try again in a moment", 1.0)
    try:
        yield
    finally:
        slots.release()


def known_id(id: str) -> str:
    """An id that could be one; anything else is no job, whatever it looks like."""
    if not _ID.match(id):
        raise NotFound(f"there is no job {id[:60]!r}")
    return id


def own_job(service: Serving, caller: Caller, id: str) -> Row:
    """The job, if it is there for this caller. Whether others have one of that id is nobody's business."""
    row = service.job(known_id(id))
    if row is None or not caller.may_see(row.get("user")):
        raise NotFound(f"there is no job {id!r}")
    return row
