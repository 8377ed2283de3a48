"""What a service answers when it cannot do what it is asked: each with its HTTP status and one sentence.

Any other `UserError` is bad input (400). The client raises the same errors again on the other side.
"""

from __future__ import annotations

from dally.core.errors import UserError


class ServiceError(UserError):
    status = 400


class Unauthorized(ServiceError):
    """Nobody knows who asks."""

    status = 401


class Forbidden(ServiceError):
    """It is known who asks, and it is not theirs to ask."""

    status = 403


class NotFound(ServiceError):
    status = 404


class Conflict(ServiceError):
    """Not in the state it is in: a finished job cannot be cancelled."""

    status = 409


class TooLarge(ServiceError):
    status = 413


class NotJson(ServiceError):
    status = 415


class Invalid(ServiceError):
    """A request that is no such request: a field is missing, misspelt or of another kind."""

    status = 422


class Busy(ServiceError):
    """More is asked than can be done at once; ask again in `retry` seconds."""

    status = 429

    def __init__(self, sentence: str, retry: float = 1.0) -> None:
        super().__init__(sentence)
        self.retry = retry


class Unavailable(ServiceError):
    """Not now: the store is gone, or the service is stopping; ask again in `retry` seconds."""

    status = 503
    exit_code = 4

    def __init__(self, sentence: str, retry: float = 1.0) -> None:
        super().__init__(sentence)
        self.retry = retry


class NotLeader(Unavailable):
    """Another service is in charge; `url` is where, if that is known."""

    def __init__(self, url: str | None = None, retry: float = 1.0) -> None:
        where = f"; ask {url}" if url else ""
        super().__init__(f"this service stands by and another one is in charge{where}", retry)
        self.url = url


class Fault(ServiceError):
    """The service has a fault of its own."""

    status = 500
    exit_code = 1


class Unreachable(UserError):
    """No service answers where one should be."""

    exit_code = 4
