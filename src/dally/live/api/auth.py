"""Who asks: by token, or, where there are no tokens, the user who started the service and nobody else.

Without tokens a service listens on loopback only. Other users of the machine can reach loopback too, and so can pages
in a browser: the first are told apart by the owner of the connection, the second by Host and Origin.
"""

from __future__ import annotations

import getpass
import ipaddress
import os
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import Request

from dally.core.errors import UserError
from dally.live.api.peer import owner_of
from dally.live.errors import Forbidden, Unauthorized, Unavailable
from dally.live.tokens import Caller, TokenFile

_HERE = ("127.0.0.1", "localhost", "::1")
Peer = Callable[[tuple[str, int], tuple[str, int]], int | None]


class Auth:
    """Says who asks, or refuses in a sentence."""

    def __init__(self, tokens: TokenFile, owner: str | None = None, peer: Peer = owner_of) -> None:
        self.tokens = tokens
        self.owner = Caller(owner or local_user(), admin=True)
        self._peer = peer

    @property
    def open(self) -> bool:
        """Whether nobody needs a token."""
        return not self.tokens.exists

    def caller(self, request: Request) -> Caller:
        given = request.headers.get("authorization")
        if self.open:
            self._refuse_browsers(request)
            self._refuse_neighbours(request)
            return self.owner
        if given is None:
            raise Unauthorized("this service wants a token: set DALLY_API_TOKEN, or send `Authorization: Bearer TOKEN`")
        scheme, _, token = given.partition(" ")
        try:
            found = self.tokens.caller(token.strip()) if scheme.lower() == "bearer" else None
        except UserError as error:
            raise Unavailable(f"nobody can be let in: {error}", 5.0) from None
        if found is None:
            raise Unauthorized("the token is not one of this service's")
        return found

    def _refuse_browsers(self, request: Request) -> None:
        """A page from elsewhere must not reach a service that asks for no token."""
        if _name_of(request.headers.get("host", "")) not in _HERE:
            raise Forbidden(f"this service has no tokens and answers to {', '.join(_HERE)} only")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise Forbidden("this service has no tokens and answers no pages of other sites")

    def _refuse_neighbours(self, request: Request) -> None:
        client, server = request.client, request.scope.get("server")
        if client is None or not server:
            return  # no socket at all: called in this process
        if not _is_address(client.host):
            return  # likewise
        user = self._peer((client.host, client.port), (server[0], server[1]))
        if user not in (0, os.getuid()):
            raise Unauthorized(f"this service has no tokens and answers {self.owner.name} alone; others need a token "
                               "(`dally token add`)")  # fmt: skip


@lru_cache(maxsize=64)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=64)
def _name_of(host: str) -> str | None:
    """Of a Host header, without the port; None: it is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return str(os.getuid())
