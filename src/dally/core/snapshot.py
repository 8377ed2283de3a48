"""The whole state of a scheduler as plain data, and a scheduler that goes on from it as if nothing had been.

Orders are saved, not made anew: ranks as they were given, buckets, groups and tables in the order they have. A policy's
caches are not saved; it makes them again when it is attached.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.estimates import learning
from dally.core.journal_text import JournalText
from dally.core.memory import Memory
from dally.core.plan import Demand
from dally.core.policy import Policy
from dally.core.ranking import Rank, Ranking
from dally.core.scheduler import Scheduler
from dally.core.shares import Gate
from dally.core.sharing import Share
from dally.core.states import ENDED, State
from dally.core.topology_text import topology_to_plain

VERSION = 1

_NUMBERS = ("fraction", "serving", "executed", "attained", "work_done", "speed", "step_time", "watched_seconds",
            "watched_batches", "exposed", "neighbours", "since", "progress_from", "last_change", "first_start",
            "lease_until", "preemptions", "attempts", "failures")  # fmt: skip


def save(scheduler: Scheduler) -> dict[str, Any]:
    """As plain data that JSON can hold."""
    books, view, gate = scheduler.books, scheduler.books.view, scheduler.books.door.gate
    text = JournalText(view.topology)
    return {
        "snapshot": VERSION,
        "policy": scheduler.policy.name,
        "topology": topology_to_plain(view.topology),
        "time": scheduler.time,
        "events": scheduler.events,
        "jobs": [_job(job, at, text) for at, job in enumerate(books.jobs.values())],
        **({"arrivals": books.arrivals} if books.arrivals != len(books.jobs) else {}),
        **({"forget_at": scheduler.forget_at} if scheduler.remembers is not None else {}),
        "holding": list(books.holding),
        "down": [view.topology.machine_names[machine] for machine in sorted(books.fleet.down)],
        **({"drained": sorted(books.fleet.drained)} if books.fleet.drained else {}),
        **({"withheld": {name: [count, f"{books.fleet.masks.get(name, 0):x}"]
                         for name, count in sorted(books.fleet.withheld.items())}} if books.fleet.withheld else {}),
        "reasons": [[text.plain(who) if isinstance(who, Demand) else who, text.plain(reason)]
                    for who, reason in books.reasons.items()],
        "timer": _plain(books.timer),
        "waiting": _ranking(view.waiting),
        "preemptible": _ranking(view.preemptible),
        "groups": [[text.plain(group.placement), [list(turn) for turn in group.turns],
                    {job: text.plain(group.share(job)) for job in group.members}] for group in view.groups],
        "news": [text.plain(entry) for entry in scheduler.news],
        **({"answers": [text.plain(entry) for entry in books.answers]} if books.answers else {}),
        "memory": scheduler.memory.save(view.topology),
        **({} if (known := learning(view.estimates)) is None else {"learned": known.learned()}),
        **({"prices": paid} if (paid := view.prices.save()) else {}),
        **({} if gate is None else {"queues": text.plain(gate.queues), "kept": [*map(_ranking, gate.rankings())]}),
    }  # fmt: skip


def load(scheduler: Scheduler, state: dict[str, Any]) -> None:
    """Into a scheduler that was just made for the topology of the snapshot and has seen nothing yet."""
    if state.get("snapshot") != VERSION:
        raise UserError(f"a snapshot of version {state.get('snapshot')}; this program reads version {VERSION}")
    books, view = scheduler.books, scheduler.books.view
    assert not books.jobs, "a snapshot is loaded into a scheduler that has seen nothing"
    text = JournalText(view.topology)
    for number, plain in enumerate(state["jobs"]):
        job = _read_job(plain, plain.get("number", number), text)
        books.jobs[job.id] = job
        books.ended += job.state in ENDED
    books.arrivals = state.get("arrivals", len(books.jobs))
    scheduler.forget_at = state.get("forget_at", (scheduler.remembers or 0) + books.ended)
    books.holding.update((job_id, books.jobs[job_id]) for job_id in state["holding"])
    taken = set()
    for job in books.holding.values():
        for held in (job.placement, job.leaving):
            if held is not None and held not in taken:
                taken.add(held)
                view.free.take(held)
    for name, (count, mask) in state.get("withheld", {}).items():
        books.fleet.withheld[name], books.fleet.masks[name] = count, int(mask, 16)
        view.free.take_mask(view.topology.machine_by_name[name], books.fleet.masks[name])
    for name in state["down"]:
        machine = view.topology.machine_by_name[name]
        view.free.take_mask(machine, view.free.masks[machine])
        books.fleet.down.add(machine)
    books.fleet.drained.update(state.get("drained", ()))
    books.fleet.pin()
    books.unranked.clear()  # ranks are restored as they were
    for who, reason in state["reasons"]:
        books.reasons[text.rich("who", who)] = text.rich("reason", reason)
    books.timer = _rich(state["timer"])
    if books.residents.shares:
        for placement, turns, shares in state["groups"]:
            _regroup(scheduler, text, placement, turns, shares)
    _read_ranking(view.waiting, state["waiting"], books.jobs)
    _read_ranking(view.preemptible, state["preemptible"], books.jobs)
    known = learning(view.estimates)
    if known is not None:
        known.recall(state.get("learned", []))
    view.prices.load(state.get("prices", []))
    if "queues" in state:
        books.door.gate = Gate(text.rich("queues", state["queues"]), view)
        _reopen(books.door.gate, state["kept"], books.jobs)
    for job in books.jobs.values():  # whom the policy failed to rank it is asked about again
        if job.state is State.WAITING and job.id not in view.waiting:
            books.unranked[job.id] = job
    scheduler.time, scheduler.events = state["time"], state["events"]
    scheduler.news = [text.rich("event", entry) for entry in state["news"]]
    books.answers += [text.rich("event", entry) for entry in state.get("answers", ())]


def load_memory(policy: Policy, state: dict[str, Any], scheduler: Scheduler) -> Memory | None:
    """The policy's memory, where the snapshot was made by the same policy with a memory of this version."""
    blank = policy.new_memory()
    if state["policy"] != policy.name or state["memory"].get("version") != blank.version:
        return None
    return type(blank).load(state["memory"], scheduler.books.view.topology)


def _job(job: ActiveJob, at: int, text: JournalText) -> dict[str, Any]:
    """`number` is left out where it is the position among the jobs: nobody was forgotten before."""
    found: dict[str, Any] = {"job": text.plain(job.job), "state": job.state.value}
    if job.number != at:
        found["number"] = job.number
    if job.state in ENDED:
        return {**found, "job": {"id": job.id, "submit_time": job.job.submit_time, "gpus": job.gpus},
                "work_done": job.work_done}  # fmt: skip
    found.update((name, _plain(getattr(job, name))) for name in _NUMBERS)
    for name in ("placement", "leaving", "share"):
        value = getattr(job, name)
        if value is not None:
            found[name] = text.plain(value)
    if job.hold is not None:
        found["hold"] = job.hold
    return found


def _read_job(plain: dict[str, Any], number: int, text: JournalText) -> ActiveJob:
    job = ActiveJob(text.rich("job", plain["job"]), number, plain["job"]["submit_time"])
    job.state = State(plain["state"])
    for name in _NUMBERS:
        if name in plain:
            setattr(job, name, _rich(plain[name]))
    for name in ("placement", "leaving"):
        if name in plain:
            setattr(job, name, text.rich("placement", plain[name]))
    job.hold = plain.get("hold")
    job.share = Share(**plain["share"]) if "share" in plain else None
    return job


def _regroup(scheduler: Scheduler, text: JournalText, placement: Any, turns: list[list[str]],
             shares: dict[str, Any]) -> None:  # fmt: skip
    """Members in the order in which they came, then the turns in the order in which they are served."""
    groups, where = scheduler.books.view.groups, text.rich("placement", placement)
    for job_id, share in shares.items():
        groups.enter(job_id, where, Share(**share)._replace(beside=None))
    group = groups.of(next(iter(shares)))
    group.restore([list(turn) for turn in turns], {job: Share(**share) for job, share in shares.items()})


def _reopen(gate: Gate, kept: list[list[list[Any]]], jobs: dict[str, ActiveJob]) -> None:
    """Everybody who is not held has been let in; who is kept back and has no rank stands at the gate."""
    for job in jobs.values():
        if job.state not in ENDED and job.state is not State.HELD:
            gate.admit(job)
    for rows in kept:
        for job, rank in _read_ranks(rows, jobs):
            gate.keep(job, rank)
    ranked = {row[0] for rows in kept for row in rows}
    gate.newcomers = [job for job in jobs.values()
                      if job.state is State.HELD and job.hold is None and job.id not in ranked]  # fmt: skip


def _ranking(ranking: Ranking) -> list[list[Any]]:
    return [[job.id, _plain(base), bucket.slope, _plain(then), bucket.then_slope, [*map(_plain, tie)]]
            for bucket in ranking.buckets.values() for base, then, tie, _, job in bucket.entries]  # fmt: skip


def _read_ranking(ranking: Ranking, plain: list[list[Any]], jobs: dict[str, ActiveJob]) -> None:
    for job, rank in _read_ranks(plain, jobs):
        ranking.add(job, rank)


def _read_ranks(plain: list[list[Any]], jobs: dict[str, ActiveJob]) -> Iterator[tuple[ActiveJob, Rank]]:
    for job_id, base, slope, then, then_slope, tie in plain:
        yield jobs[job_id], Rank(_rich(base), slope, _rich(then), then_slope, tuple(map(_rich, tie)))


def _plain(value: Any) -> Any:
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _rich(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value
