"""The short way for submissions, which come in bulk: read, handed in and answered before any route is looked for.

Whatever is out of the ordinary (a query, a key that is too long) goes the long way, to the route of the same path; that
answers the same (tests/live/test_api.py).
"""

from __future__ import annotations

from starlette.requests import Request

from dally.core.errors import UserError
from dally.live.api import jobs
from dally.live.api.answers import of_error, of_fault
from dally.live.api.asking import the_body
from dally.live.api.auth import Auth
from dally.live.api.front import App, Receive, Scope, Send
from dally.live.serving import Serving

_ROUTE = next(route for route in jobs.router.routes if route.name == "submit")  # type: ignore[attr-defined]


class Door:
    """ASGI middleware, behind the limits and in front of the routes."""

    def __init__(self, app: App, service: Serving, auth: Auth) -> None:
        self.app, self.service, self.auth = app, service, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != jobs.PATH or scope["query_string"]:
            await self.app(scope, receive, send)
            return
        keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        if len(keys) > 1 or any(len(key) > jobs.MOST_KEY for key in keys):
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        scope["route"] = _ROUTE
        try:
            caller = self.auth.caller(request)
            response = await jobs.submitted(self.service, caller, await the_body(request),
                                            keys[0].decode("latin-1") if keys else None)  # fmt: skip
        except UserError as error:
            response = of_error(error)
        except Exception as error:
            response = of_fault(request, error)
        await response(scope, receive, send)
