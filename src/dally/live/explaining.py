"""Why a job waits and what becomes of it, as plain data: asked of a snapshot."""

from __future__ import annotations

from typing import Any

from dally.core.active import ActiveJob
from dally.core.policy import View
from dally.core.reasons import Reason
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.live.durations import Durations
from dally.live.forecast import (
    BUDGET,
    SAMPLES,
    Budget,
    Futures,
    Known,
    Saved,
    alternatives,
    estimate_start,
    where,
)

_NAMED = 5  # jobs ahead that are named


def explain(state: Saved, job_id: str, policy: str | None = None, known: Known | None = None, *,
            now: float | None = None, samples: int = SAMPLES, budget: float = BUDGET, seed: int = 0,
            durations: Durations | None = None) -> dict[str, Any]:  # fmt: skip
    """State, reason, evidence, who is ahead, what is free and why it does not do, when its timer ends, when it will
    start, what would make it start sooner. Times are seconds from now; `until` is also given as it is."""
    futures = Futures(state, policy, known, seed=seed, durations=durations, now=now)
    spent = Budget(budget)
    standing = futures.standing(job_id)
    scheduler, _ = futures.begin()
    job, reason, history = scheduler.jobs[job_id], scheduler.reason(job_id), futures.known.history
    found: dict[str, Any] = {
        "id": job_id, "name": None if history is None else history.names.get(job_id), "user": job.job.user,
        "state": standing.value, "gpus": job.gpus, "gpu_type": job.job.gpu_type, "policy": futures.policy,
        "now": futures.now, "lasts": None if standing in ENDED else futures.now - job.last_change,
        "preemptions": job.preemptions, **_why(reason, futures.now), "ahead": None, "free": None, "machines": None,
        "level": None, "speed": None, "estimate": None, "alternatives": [],
    }  # fmt: skip
    if standing in ENDED:
        return found
    if job.placement is not None and not job.placement.slices:
        return found  # its machines were taken out of the cluster
    if job.placement is not None:
        found.update(where(job, scheduler, futures.known.estimates))
        if job.speed > 0:
            found["speed"] = job.speed
        return found
    if job.hold is not None or standing not in (State.WAITING, State.YIELDING, State.HELD):
        return found  # held by its owner: nobody knows for how long
    if standing is not State.YIELDING:
        found["ahead"] = ahead_of(scheduler, job, futures.now)
        found["free"] = free_now(scheduler, job, found["ahead"]["jobs"])
    more: dict[str, Any] = {"samples": samples, "seed": seed, "durations": durations, "now": now}
    estimate = estimate_start(state, job_id, policy, known, budget=budget * 0.5, **more)
    found["estimate"] = estimate.plain()
    if standing is not State.YIELDING and estimate.high != 0.0:
        found["alternatives"] = alternatives(state, job_id, policy, known, instead_of=estimate,
                                             budget=max(0.0, spent.left), **more)  # fmt: skip
    return found


def _why(reason: Reason | None, now: float) -> dict[str, Any]:
    if reason is None:
        return {"reason": None, "why": None, "evidence": [], "until": None, "until_in": None}
    until = reason.until
    return {"reason": reason.token.label, "why": reason.sentence, "evidence": list(reason.evidence), "until": until,
            "until_in": None if until is None else max(0.0, until - now)}  # fmt: skip


def ahead_of(scheduler: Scheduler, job: ActiveJob, now: float) -> dict[str, Any]:
    """Jobs that the policy's order puts before it, in the queue or where its own queue keeps it back: how many, with
    how many GPUs, and the first of them."""
    before: list[ActiveJob] = []
    gate, queue = scheduler.books.door.gate, scheduler.view.waiting
    for ranking in gate.rankings() if gate is not None else ():
        queue = ranking if job.id in ranking else queue
    for other in queue.ordered(now):
        if other.id == job.id:
            break
        before.append(other)
    first = [{"id": other.id, "user": other.job.user, "gpus": other.gpus} for other in before[:_NAMED]]
    return {"jobs": len(before), "gpus": sum(other.gpus for other in before), "of": len(queue),
            "first": first}  # fmt: skip


def free_now(scheduler: Scheduler, job: ActiveJob, ahead: int) -> dict[str, Any]:
    """What is free, how much of it lies together, and why it does not do."""
    view = scheduler.view
    kinds = {kind: pool.total for kind, pool in view.free.pools.items()}
    usable = kinds.get(job.job.gpu_type, 0) if job.job.gpu_type is not None else max(kinds.values(), default=0)
    together = _together(view, job.job.gpu_type)
    return {"gpus": view.free.total, "by_type": kinds, "usable": usable, "together": together,
            "why": _not_enough(view, job, usable, together, ahead)}  # fmt: skip


def _together(view: View, gpu_type: str | None) -> dict[str, int]:
    """The most GPUs of one type that are free inside one domain, by level."""
    found: dict[str, int] = {}
    for pool in view.free.pools.values():
        if gpu_type in (None, pool.gpu_type):
            for level, counts in zip(view.topology.levels[:-1], pool.counts, strict=False):
                found[level.name] = max(found.get(level.name, 0), max(counts, default=0))
    return found


def _not_enough(view: View, job: ActiveJob, usable: int, together: dict[str, int], ahead: int) -> str:
    total, kind = view.free.total, job.job.gpu_type
    down = len(view.down)
    broken = f"; {down} machine{'s are' if down > 1 else ' is'} down or drained" if down else ""
    if theirs := sum(view.withheld.values()):
        broken += f"; others have {theirs} GPU{'s' if theirs > 1 else ''}"
    if total == 0:
        return f"no GPU is free{broken}"
    if usable < job.gpus:
        if kind is not None and total > usable:
            others = f"; {total - usable} of other types are"
            return f"{_count(usable)} free of type {kind}, it asks for {job.gpus}{others}{broken}"
        mixed = " of one type" if len(view.free.pools) > 1 else ""
        return f"{_count(usable)} free{mixed}, it asks for {job.gpus}{broken}"
    within = job.job.within
    if within is not None and together.get(within, job.gpus) < job.gpus:
        return f"{usable} are free, but at most {together[within]} of them in one {within}, where it must run{broken}"
    inner = next((name for name, most in together.items() if most >= job.gpus), None)
    spot = f" (a {inner} has room for it)" if inner is not None else " (not inside one domain)" if together else ""
    if ahead:
        one = "a job that comes" if ahead == 1 else f"{ahead:,} jobs that come"
        return f"{usable} are free, enough for it{spot}, and kept for {one} before it{broken}"
    return f"{usable} are free, enough for it{spot}; the policy waits for a better moment or place{broken}"


def _count(gpus: int) -> str:
    return "no GPU is" if gpus == 0 else "1 GPU is" if gpus == 1 else f"{gpus} GPUs are"
