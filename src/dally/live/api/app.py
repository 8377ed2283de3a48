"""The application: routes, errors and limits around a service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from dally.live.api import cluster, events, jobs
from dally.live.api.answers import handle_errors
from dally.live.api.auth import Auth
from dally.live.api.door import Door
from dally.live.api.front import Front
from dally.live.api.rows import PolicyText
from dally.live.config import LimitsConfig
from dally.live.serving import Serving
from dally.live.spec import JobSpec
from dally.version import __version__

THINKING = 4  # estimates that are made at a time


def make_app(service: Serving, auth: Auth, limits: LimitsConfig | None = None, log_requests: bool = False) -> FastAPI:
    """The API over this service, for any ASGI server."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.follower = events.Follower(service, asyncio.get_running_loop())
        try:
            yield
        finally:
            app.state.follower.stop()

    app = FastAPI(title="Dally", version=__version__, docs_url=None, redoc_url=None, lifespan=life,
                  description="Which job runs next, on which GPUs, given that distance costs time?")  # fmt: skip
    app.state.service, app.state.auth, app.state.owners = service, auth, events.Owners(service)
    app.state.thinking = threading.BoundedSemaphore(THINKING)
    for each in (jobs, cluster, events):
        app.include_router(each.router)
    handle_errors(app)
    service.metrics.watch(service.counts, service.nodes, service.health)
    app.add_middleware(Door, service=service, auth=auth)
    app.add_middleware(Front, limits=limits or LimitsConfig(), metrics=service.metrics, log_requests=log_requests)
    _with_schemas(app)
    return app


def _with_schemas(app: FastAPI) -> None:
    """Bodies are read by hand, so that their errors are sentences; the schema of them is put in by hand too."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = make()
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            for model in (JobSpec, PolicyText):
                schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas.update(schema.pop("$defs", {}))
                schemas[model.__name__] = schema
            schemes = found["components"].setdefault("securitySchemes", {})
            schemes["token"] = {"type": "http", "scheme": "bearer"}
            found["security"] = [{"token": []}, {}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
