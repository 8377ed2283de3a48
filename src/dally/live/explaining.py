"""Why a job waits and what becomes of it, as plain data and as lines for people: asked of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dally.core.active import ActiveJob
from dally.core.policy import View
from dally.core.reasons import Reason
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.core.units import show_time
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
    if standing is not State.WAITING and standing is not State.YIELDING:
        return found  # held: nobody knows for how long
    if standing is State.WAITING:
        found["ahead"] = ahead_of(scheduler, job, futures.now)
        found["free"] = free_now(scheduler, job, found["ahead"]["jobs"])
    more: dict[str, Any] = {"samples": samples, "seed": seed, "durations": durations, "now": now}
    estimate = estimate_start(state, job_id, policy, known, budget=budget * 0.5, **more)
    found["estimate"] = estimate.plain()
    if standing is State.WAITING and estimate.high != 0.0:
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
    """Jobs that the policy's order puts before it: how many, with how many GPUs, and the first of them."""
    before: list[ActiveJob] = []
    for other in scheduler.view.waiting.ordered(now):
        if other.id == job.id:
            break
        before.append(other)
    first = [{"id": other.id, "user": other.job.user, "gpus": other.gpus} for other in before[:_NAMED]]
    return {"jobs": len(before), "gpus": sum(other.gpus for other in before), "of": len(scheduler.view.waiting),
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
    broken = f"; {down} machine{'s are' if down > 1 else ' is'} down" if down else ""
    if total == 0:
        return f"no GPU is free{broken}"
    if usable < job.gpus:
        if kind is not None and total > usable:
            others = f"; {total - usable} of other types are"
            return f"{_count(usable)} free of type {kind}, it asks for {job.gpus}{others}{broken}"
        mixed = " of one type" if len(view.free.pools) > 1 else ""
        return f"{_count(usable)} free{mixed}, it asks for {job.gpus}{broken}"
    within = getattr(job.job, "within", None)
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


# --- for people -----------------------------------------------------------------------------------------------------


def explain_text(found: dict[str, Any]) -> str:
    """What `explain` found, as somebody would say it."""
    return "\n".join(_lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield _headline(found)
    if found["machines"]:
        speed = f", at {found['speed']:.0%} of its reference speed" if found["speed"] not in (None, 1.0) else ""
        yield _line("Where", f"{_machines(found['machines'])}, within one {found['level']}{speed}")
    if found["why"] is not None:
        yield _line("Why", f"{found['why']} [{found['reason']}]")
    if found["until_in"] is not None:
        yield _line("Until", f"this reason ends by itself in {show_time(found['until_in'])}")
    if found["ahead"] is not None:
        yield _line("Ahead", _ahead(found["ahead"]))
    if found["free"] is not None:
        yield _line("Free", found["free"]["why"])
    if found["estimate"] is not None:
        yield _line("Start", estimate_text(found["estimate"]))
        yield _line("", f"({found['estimate']['basis']})")
    for number, other in enumerate(found["alternatives"]):
        yield _line("Sooner" if number == 0 else "", f"{other['change']}: {estimate_text(other['estimate'])}")
    if found["estimate"] is not None and found["estimate"]["median"] and not found["alternatives"]:
        yield _line("Sooner", "nothing that was tried would start it sooner: submitted anew it begins at the end again")


def _line(label: str, text: str) -> str:
    return f"  {label:<7} {text}"


def _headline(found: dict[str, Any]) -> str:
    who = ", ".join(str(part) for part in (found["name"], found["user"]) if part)
    kind = f" {found['gpu_type']}" if found["gpu_type"] else ""
    gpus = f"{found['gpus']}{kind} GPU{'s' if found['gpus'] != 1 else ''}"
    said = {"waiting": f"waits for {gpus}", "running": f"runs on {gpus}", "starting": f"starts on {gpus}",
            "yielding": f"was preempted, saves its checkpoint and wants {gpus} again",
            "lost": f"is out of contact on {gpus}", "held": f"is held and wants {gpus}"}  # fmt: skip
    state = said.get(found["state"], f"is {found['state']}")
    lasts = "" if found["lasts"] is None else f", for {show_time(found['lasts'])} so far"
    often = found["preemptions"]
    before = f"; preempted {often} time{'s' if often > 1 else ''}" if often else ""
    return f"Job {found['id']}{f' ({who})' if who else ''} {state}{lasts}{before}."


def _machines(machines: dict[str, list[int]]) -> str:
    names = [f"{name} ({len(gpus)} GPU{'s' if len(gpus) > 1 else ''})" for name, gpus in machines.items()]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more machines" if len(names) > 4 else "")


def _ahead(ahead: dict[str, Any]) -> str:
    if not ahead["jobs"]:
        return "nobody: it is the first in the queue" + (f" of {ahead['of']:,}" if ahead["of"] > 1 else "")
    named = ", ".join(f"{job['id']} ({', '.join(str(part) for part in (job['user'], job['gpus']) if part)})"
                      for job in ahead["first"])  # fmt: skip
    more = ahead["jobs"] - len(ahead["first"])
    jobs = "1 job comes" if ahead["jobs"] == 1 else f"{ahead['jobs']:,} jobs come"
    return f"{jobs} first and want {ahead['gpus']:,} GPUs: {named}" + (f" and {more:,} more" if more else "")


def estimate_text(estimate: dict[str, Any]) -> str:
    """A range for people; or what can be said where there is none."""
    low, median, high = estimate["low"], estimate["median"], estimate["high"]
    if high == 0.0:
        return "at once"
    if median is None:
        return "nobody can say" if low is None else f"not in the next {show_time(low)}; further was not looked"
    if low == high:
        return f"in about {show_time(median)}" + ("" if estimate["samples"] > 1 else ", in the one future looked at")
    first = "at once" if low == 0.0 else f"in {show_time(low or 0.0)}"
    last = "much later" if high is None else show_time(high)
    return f"{first} to {last}, about {show_time(median)}"
