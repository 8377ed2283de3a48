"""Answers: JSON in ASCII, errors as one sentence with the right status."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dally.core.errors import UserError
from dally.live.errors import NotLeader, ServiceError, Unauthorized
from dally.live.plain_errors import shown

_dense = json.JSONEncoder(separators=(",", ":")).encode
_LOG = logging.getLogger("dally.api")


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Plain data as JSON. What text cannot be sent (half a character) is escaped, not a fault."""
    return Response(_dense(data), status, headers, media_type="application/json")


def refusal(sentence: str, status: int, headers: dict[str, str] | None = None, **more: Any) -> Response:
    return answer({"error": sentence, **more}, status, headers)


def of_error(error: Exception) -> Response:
    """The answer to what went wrong."""
    sentence = " ".join(str(error).split())
    if not isinstance(error, ServiceError):
        return refusal(sentence, 400)
    headers = {}
    retry = getattr(error, "retry", None)
    if retry is not None:
        headers["Retry-After"] = str(max(1, round(retry)))
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, NotLeader) and error.url:
        return refusal(sentence, error.status, headers, leader=error.url)
    return refusal(sentence, error.status, headers)


def of_fault(request: Request, error: Exception) -> Response:
    """The answer to what should not have gone wrong."""
    _LOG.error("%s %s: %r", request.method, request.url.path, error, exc_info=error)
    return refusal("the service has a fault of its own here; its log says more", 500)


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(UserError)
    def known(request: Request, error: Exception) -> Response:
        return of_error(error)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return refusal(f"{field}: {first['msg']}, not {shown(first.get('input'))}", 422)

    @app.exception_handler(HTTPException)
    def by_status(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        known = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
        return refusal(known.get(error.status_code, str(error.detail)), error.status_code, dict(error.headers or {}))

    @app.exception_handler(Exception)
    def fault(request: Request, error: Exception) -> Response:
        return of_fault(request, error)
