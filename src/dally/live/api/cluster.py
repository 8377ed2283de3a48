"""Routes for the cluster and the service itself: machines, topology, policy, snapshot, health, metrics."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from dally.live.api.answers import answer
from dally.live.api.asking import Admin, Body, Service, Who
from dally.live.api.rows import PROBLEMS, Done, Health, NodeRow
from dally.live.errors import Invalid, NotFound
from dally.live.serving import Serving
from dally.policies.options import make_policy

_TAKES_OVER = 2.0  # seconds that are waited for a policy to be in charge
router = APIRouter(tags=["cluster"], responses=PROBLEMS)
Machine = Annotated[str, Path(max_length=500, description="Name of a machine; it may have slashes: rack0/m1.")]
_POLICY_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {
    "schema": {"$ref": "#/components/schemas/PolicyText"}}}}}  # fmt: skip


@router.get("/v1/nodes", response_model=list[NodeRow])
def nodes(service: Service, caller: Who) -> Response:
    """Machines with their GPUs. Of the jobs on them everybody sees their own."""
    rows = service.nodes()
    if not caller.admin:
        mine = {row["id"] for row in service.jobs(user=caller.name)}
        rows = [{**row, "jobs": [id for id in row["jobs"] if id in mine]} for row in rows]
    return answer(rows)


@router.post("/v1/nodes/{name:path}/drain", response_model=Done)
def drain(service: Service, caller: Admin, name: Machine) -> Response:
    """No new jobs on this machine; those that run there go on."""
    service.drain(_machine(service, name), caller.name)
    return answer({"id": name, "done": "drain"})


@router.post("/v1/nodes/{name:path}/resume", response_model=Done)
def resume(service: Service, caller: Admin, name: Machine) -> Response:
    """The machine takes jobs again."""
    service.resume(_machine(service, name), caller.name)
    return answer({"id": name, "done": "resume"})


def _machine(service: Serving, name: str) -> str:
    names = [row["name"] for row in service.nodes()]
    if name not in names:
        raise NotFound(f"there is no machine {name[:60]!r}")
    return name


@router.get("/v1/topology", response_model=dict[str, Any])
def topology(service: Service, caller: Who) -> Response:
    """The cluster as a tree: levels with their links, machines with their paths."""
    return answer(service.topology())


@router.get("/v1/policy", response_model=dict[str, Any])
def policy(service: Service, caller: Who) -> Response:
    """The policy in charge."""
    return answer(service.policy())


@router.put("/v1/policy", response_model=dict[str, Any], openapi_extra=_POLICY_BODY)
def set_policy(service: Service, caller: Admin, body: Body) -> Response:
    """Put another policy in charge, on the queue as it is."""
    if not isinstance(body, dict) or set(body) != {"policy"} or not isinstance(body["policy"], str):
        raise Invalid('the body must be {"policy": "name[option=value]"}')
    written = body["policy"]
    if not written.isprintable() or len(written) > 2000:
        raise Invalid("policy: it is too long, or has characters that cannot be printed")
    if ".py" in written.partition("[")[0] or "/" in written.partition("[")[0]:
        raise Invalid("policy: a policy of one's own is put in charge by the configuration or `dally serve --policy`; "
                      "over the network only installed ones are")  # fmt: skip
    service.set_policy(written, caller.name)
    wanted = make_policy(written).name
    until = time.monotonic() + _TAKES_OVER
    while service.policy()["policy"] != wanted and time.monotonic() < until:
        time.sleep(0.02)  # it is accepted; the service puts it in charge between two decisions
    found = service.policy()
    return answer(found, 200 if found["policy"] == wanted else 202)


@router.get("/v1/snapshot", response_model=dict[str, Any])
def snapshot(service: Service, caller: Admin) -> Response:
    """Everything the scheduler knows, for `dally simulate --snapshot`."""
    return answer(service.snapshot())


@router.get("/v1/whoami", response_model=dict[str, Any])
def whoami(caller: Who) -> Response:
    """Who the service takes the caller for."""
    return answer({"user": caller.name, "admin": caller.admin})


@router.get("/v1/health", response_model=Health)
async def health(request: Request) -> Response:
    """Whether it works and is in charge; nobody needs a token for this."""
    service: Serving = request.app.state.service  # asked right here: it must answer when every thread is busy
    found = service.health()
    well = found["status"] in ("ok", "standing by")
    return answer(found, 200 if well else 503, None if well else {"Retry-After": "1"})


@router.get("/metrics", response_class=Response,
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})  # fmt: skip
def metrics(service: Service, caller: Who) -> Response:
    """For Prometheus (docs/metrics-live.md)."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
