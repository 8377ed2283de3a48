"""The shapes of answers, for OpenAPI. Answers are not checked against them: the service's rows have them already."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class Problem(BaseModel):
    error: str  # one sentence
    leader: str | None = None  # where the service in charge is, if this one only stands by


class JobRow(BaseModel):
    id: str
    name: str
    user: str | None
    queue: str | None
    state: str
    gpus: int
    priority: int
    attempts: int  # that really began
    restarts: int
    machines: dict[str, list[int]] | None
    submitted: float | None  # Unix seconds, as all times
    started: float | None
    ended: float | None
    exit_code: int | None
    reason: str | None
    why: str | None
    until: float | None


class StepRow(BaseModel):
    """Seconds of a step on the GPUs of an attempt, without neighbours; None where nothing is known."""

    predicted: float | None  # by the job's profile or model and the cluster's links
    compute: float | None  # of it
    exchange: float | None  # of it: communication that nothing hides
    data: float | None  # of it: waiting for batches to be prepared, where the profile saw that
    measured: float | None  # as the job last said, the median of its last steps
    error: float | None  # predicted / measured − 1


class AttemptRow(BaseModel):
    number: int
    machines: dict[str, list[int]] | None
    began: float | None
    ended: float | None
    how: str | None
    step: StepRow | None


class JobDetail(JobRow):
    step: StepRow | None  # of the newest attempt
    spec: dict[str, Any]
    history: list[AttemptRow]


class JobList(BaseModel):
    jobs: list[JobRow]
    next: str | None  # cursor of the next page
    others: dict[str, int] | None  # how many jobs others have, by state; None for those who see them


class Submitted(BaseModel):
    id: str  # of the first
    ids: list[str]


class Done(BaseModel):
    id: str
    done: str


class NodeRow(BaseModel):
    name: str
    state: str  # up, drained, down
    gpus: int
    free: int
    gpu_type: str
    jobs: list[str]  # as far as they are the caller's to see


class Health(BaseModel):
    status: str
    leader: bool
    version: str


class PolicyText(BaseModel):
    policy: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": about}
    for status, about in {
        400: "Bad input", 401: "No token, or none of this service's", 403: "Not the caller's to ask",
        404: "Not there, or not the caller's", 409: "Not in this state", 413: "Too large", 415: "Not JSON",
        422: "A field is wrong", 429: "Too many changes at once; Retry-After says when", 503: "Not now; Retry-After",
    }.items()
}  # fmt: skip
