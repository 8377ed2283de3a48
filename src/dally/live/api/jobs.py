"""Routes for jobs: submit, list, show, explain, change, read what they print."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Future
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from dally.core.errors import UserError
from dally.live.api.answers import answer
from dally.live.api.asking import Body, JobPath, Service, Who, known_id, own_job, thinking
from dally.live.api.rows import PROBLEMS, Done, JobDetail, JobList, Submitted
from dally.live.errors import Forbidden, Invalid, NotFound
from dally.live.serving import ACTIVE, ENDED, STATES, Serving
from dally.live.spec import JobSpec, check_model, read_spec
from dally.live.tokens import Caller

MOST_SPECS = 1000  # of one request
MOST_ROWS = 1000  # of one page
MOST_KEY = 200  # characters
MOST_LOG = 1_000_000  # bytes of one answer
LOG_BYTES = 64 * 1024
_LONGER = {"array", "after", "after_ok", "model", "profile"}  # fields for which more is made, or files are read

PATH = "/v1/jobs"
router = APIRouter(prefix=PATH, tags=["jobs"], responses=PROBLEMS)
_SPEC_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": [
    {"$ref": "#/components/schemas/JobSpec"},
    {"type": "array", "items": {"$ref": "#/components/schemas/JobSpec"}, "minItems": 1, "maxItems": MOST_SPECS},
]}}}}}  # fmt: skip
Text = Annotated[str | None, Query(max_length=200)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=MOST_KEY,
                                   description="The same key again: the same ids, nothing is submitted twice."),
                ]  # fmt: skip


@router.post("", status_code=201, response_model=Submitted, openapi_extra=_SPEC_BODY,
             responses={200: {"description": "What would happen (dry_run)", "model": dict[str, Any]}})  # fmt: skip
async def submit(request: Request, service: Service, caller: Who, body: Body, key: Key = None,
                 dry_run: bool = False) -> Response:  # fmt: skip
    """Accept one job or a list of them, whole or not at all. They are durable when the answer comes."""
    if dry_run:
        return await run_in_threadpool(_tried, request, service, caller, body)
    return await submitted(service, caller, body, key)


async def submitted(service: Serving, caller: Caller, body: Any, key: str | None) -> Response:
    given = (service, caller, body, key)
    # What takes long is not for the loop, which answers everybody; for one plain job a thread costs more than it saves.
    quick = isinstance(body, dict) and not _LONGER & body.keys()
    ids = await asyncio.wrap_future(_handed_in(*given) if quick else await run_in_threadpool(_handed_in, *given))
    return answer({"id": ids[0], "ids": ids}, 201, {"Location": f"/v1/jobs/{ids[0]}"})


def _handed_in(service: Serving, caller: Caller, body: Any, key: str | None) -> Future[list[str]]:
    specs = _own_specs(service, caller, body)
    if key is not None and not key.isprintable():
        raise Invalid("Idempotency-Key: it has characters that cannot be printed")
    scoped = None if key is None else f"{caller.name}/{key}"  # nobody gets at another's jobs by guessing a key
    return service.hand_in(specs, caller.name, scoped)


def _tried(request: Request, service: Serving, caller: Caller, body: Any) -> Response:
    specs = _own_specs(service, caller, body)
    with thinking(request):
        found = [service.dry_run(spec, caller.name) for spec in specs]
    return answer(found if isinstance(body, list) else found[0])


def _own_specs(service: Serving, caller: Caller, body: Any) -> list[JobSpec]:
    specs = [_owned(spec, caller) for spec in _specs(body)]
    for other in {other for spec in specs for other in (*spec.after, *spec.after_ok)}:
        row = service.job(other) or next(iter(service.jobs(array=other, limit=1)), None)
        if row is not None and not caller.may_see(row.get("user")):  # what became of it is nobody else's business
            raise UserError(f"there is no job {other} to come after")
    return specs


def _specs(body: Any) -> list[JobSpec]:
    many = body if isinstance(body, list) else [body]
    if not 1 <= len(many) <= MOST_SPECS:
        raise Invalid(f"a request submits 1 to {MOST_SPECS} jobs, not {len(many)}; an array is one job")
    found = []
    for number, each in enumerate(many):
        try:
            found.append(read_spec(each))
            check_model(found[-1])
        except UserError as error:
            raise Invalid(f"job {number}: {error}" if len(many) > 1 else str(error)) from None
    return found


def _owned(spec: JobSpec, caller: Caller) -> JobSpec:
    """Everybody submits for themselves. What an administrator writes there is a label: all jobs run as the service."""
    if spec.user is None:
        return spec.model_copy(update={"user": caller.name})
    if spec.user != caller.name and not caller.admin:
        raise Forbidden(f"user: {caller.name} cannot submit for {spec.user}")
    return spec


@router.get("", response_model=JobList)
def listing(service: Service, caller: Who,
            state: Annotated[list[str] | None, Query(description="States, `active` or `ended`; several count as or.")
                             ] = None,
            user: Text = None, queue: Text = None, name: Text = None,
            array: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$", description="Members of this one.")] = None,
            limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
            cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
            ) -> Response:  # fmt: skip
    """Jobs by id, oldest first, page by page. Those of others are only counted, except for administrators."""
    states = _states(state)
    if not caller.admin and user not in (None, caller.name):
        raise Forbidden(f"user: {caller.name} sees no jobs of others")
    wanted = user if caller.admin else caller.name
    if cursor is not None:
        try:
            known_id(cursor)
        except NotFound:
            raise Invalid(f"cursor: {cursor[:60]!r} is none of this listing") from None
    rows = service.jobs(states=states, user=_clean(wanted), queue=_clean(queue), name=_clean(name), array=array,
                        after=cursor, limit=limit + 1)  # fmt: skip
    page = rows[:limit]
    others = None if caller.admin else _others(service, caller)
    return answer({"jobs": page, "next": page[-1]["id"] if len(rows) > limit else None, "others": others})


def _states(given: list[str] | None) -> frozenset[str] | None:
    if not given:
        return None
    found: set[str] = set()
    for word in (part.strip() for text in given for part in text.split(",")):
        if word not in (*STATES, "active", "ended"):
            raise Invalid(f"state: there is no state {word[:60]!r}; there are {', '.join(STATES)}, active and ended")
        found.update({"active": ACTIVE, "ended": ENDED}.get(word, (word,)))
    return frozenset(found)


def _clean(text: str | None) -> str | None:
    if text is not None and not text.isprintable():
        raise Invalid(f"{text[:60]!r} has characters that cannot be printed")
    return text


def _others(service: Serving, caller: Caller) -> dict[str, int]:
    """Active jobs of others, by state, without looking at each."""
    own = Counter(row["state"] for row in service.jobs(states=frozenset(ACTIVE), user=caller.name))
    everybody = service.counts()
    return {state: left for state in ACTIVE if (left := everybody.get(state, 0) - own[state]) > 0}


@router.get("/{id}", response_model=JobDetail)
def show(service: Service, caller: Who, id: JobPath) -> Response:
    """One job: its row, its specification, and what became of each attempt."""
    return answer(own_job(service, caller, id))


# every explanation has all of these: a job that is kept back has no place in the queue yet, and less to tell
_EXPLAINED: dict[str, Any] = {
    **dict.fromkeys(("name", "user", "gpu_type", "policy", "now", "lasts", "reason", "why", "until", "until_in",
                     "ahead", "free", "machines", "level", "speed", "step", "estimate")),
    "preemptions": 0, "evidence": [], "alternatives": [],
}  # fmt: skip


@router.get("/{id}/explain", response_model=dict[str, Any])
def explain(request: Request, service: Service, caller: Who, id: JobPath) -> Response:
    """Why it waits, who is ahead, when it may start, what would make it start sooner."""
    own_job(service, caller, id)
    with thinking(request):
        return answer({**_EXPLAINED, **service.explain(id)})


@router.post("/{id}/{what}", response_model=Done)
def change(service: Service, caller: Who, id: JobPath,
           what: Literal["cancel", "hold", "release", "requeue"]) -> Response:  # fmt: skip
    """Cancel, hold, release, or stop and queue again."""
    own_job(service, caller, id)
    service.act(what, id, caller.name)
    return answer({"id": id, "done": what})


@router.get("/{id}/logs", response_class=Response,
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}},
                             "description": "Bytes as they were printed. Dally-Next-Offset: where to go on; "
                                            "Dally-Ended: whether the job has ended; "
                                            "Dally-Attempt: of which attempt they are."}})  # fmt: skip
def logs(service: Service, caller: Who, id: JobPath,
         attempt: Annotated[int | None, Query(ge=1, le=10**9)] = None,
         offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
         limit: Annotated[int, Query(ge=1, le=MOST_LOG)] = LOG_BYTES,
         tail: Annotated[int | None, Query(ge=0, le=100_000, description="Only the last so many lines.")] = None,
         ) -> Response:  # fmt: skip
    """What the job printed, from an offset, or its last lines; never more than `limit` bytes. Ask again from
    Dally-Next-Offset to follow it."""
    row = own_job(service, caller, id)
    ended = row["state"] in ENDED  # before reading: what is printed after this is read next time
    if attempt is None and row["history"]:
        attempt = row["history"][-1]["number"]
    if tail is not None:
        _, end = service.log(id, attempt, 2**62, 1)
        offset = max(offset, end - limit)
    text, following = service.log(id, attempt, offset, limit)
    if tail is not None:
        text = last_lines(text, tail)
    headers = {"Dally-Next-Offset": str(following), "Dally-Ended": "true" if ended else "false",
               "Dally-Attempt": str(attempt or 0),
               "X-Content-Type-Options": "nosniff"}  # fmt: skip
    return Response(text, 200, headers, media_type="text/plain")


def last_lines(text: bytes, count: int) -> bytes:
    if count == 0:
        return b""
    at = len(text) - 1 if text.endswith(b"\n") else len(text)
    for _ in range(count):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]
