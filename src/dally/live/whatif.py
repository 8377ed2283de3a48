"""What would happen to today's queue under other policies: each goes from the same snapshot into the same futures."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.journal import Instant, Journal
from dally.core.snapshot import VERSION
from dally.core.states import ENDED, State
from dally.core.told import DURATIONS, KINDS, NOTHING, SPEEDS
from dally.live.durations import NOBODY_KNOWS, declarations
from dally.live.forecast import Futures, Known, Saved
from dally.policies.options import make_policy

_HORIZON = 366 * 86400.0  # seconds: what does not end in a year does not end
_FIRST = 3  # jobs that are named as those that start first
_PARTS = ("policy", "topology", "time", "jobs", "holding", "down", "reasons", "timer", "waiting", "preemptible",
          "groups", "news", "memory")  # fmt: skip
_TIMEOUT = 30.0  # seconds a service may take to hand over its snapshot
_LARGEST = 1 << 30  # bytes of a snapshot that are read


class Outcome(NamedTuple):
    """One future under one policy. Times are seconds from now."""

    remaining: float  # mean time until those end that have not yet
    last_end: float
    preemptions: int
    first: tuple[str, ...]  # who of those that wait now starts first
    unended: int  # jobs that did not end, as far as was looked


class Prospect(NamedTuple):
    """What a policy makes of the queue, future by future."""

    policy: str
    in_charge: bool
    told: str  # what it makes use of and is told here, in words
    outcomes: tuple[Outcome, ...]

    def mean(self, of: Callable[[Outcome], float]) -> float:
        return sum(map(of, self.outcomes)) / len(self.outcomes)

    def range(self, of: Callable[[Outcome], float]) -> tuple[float, float]:
        """Nine of ten futures: from the fifth to the ninety-fifth of a hundred."""
        ordered = sorted(map(of, self.outcomes))
        return ordered[round(0.05 * (len(ordered) - 1))], ordered[round(0.95 * (len(ordered) - 1))]

    @property
    def first(self) -> tuple[str, ...]:
        """Who starts first in most futures."""
        return Counter(outcome.first for outcome in self.outcomes).most_common(1)[0][0]


class WhatIf(NamedTuple):
    prospects: list[Prospect]  # the policy in charge is the first
    running: int
    waiting: int
    held: int
    basis: str


def compare(state: Saved, policies: Sequence[str], known: Known | None = None, *, samples: int = 10, seed: int = 0,
            report: Callable[[str, int], None] | None = None) -> WhatIf:  # fmt: skip
    """The policy in charge and these others, each through the same futures to their end."""
    in_charge = str(state["policy"])
    names = list(dict.fromkeys([in_charge, *(make_policy(each).name for each in policies)]))
    states = Counter(plain["state"] for plain in state["jobs"] if plain.get("hold") is None)
    held = sum(plain["state"] == State.HELD.value for plain in state["jobs"]) - states[State.HELD.value]
    if not any(State(name) not in ENDED for name in states):
        raise UserError("the snapshot holds no job that runs or waits: there is nothing to go on from")
    _must_end(Futures(state, in_charge, known, seed=seed))
    prospects, basis = [], ""
    for name in names:
        try:
            futures = Futures(state, name, known, seed=seed)
            outcomes = []
            for future in range(samples):
                outcomes.append(_outcome(futures, future))
                if report is not None:
                    report(name, future + 1)
        except UserError as error:
            raise UserError(f"policy {name!r} cannot take over this queue: {error}") from None
        basis = basis or futures.durations.basis
        prospects.append(Prospect(name, name == in_charge, _told(name, state, futures.known), tuple(outcomes)))
    waiting = sum(states[each.value] for each in (State.WAITING, State.YIELDING, State.HELD))  # some for their queue
    running = sum(states[each.value] for each in (State.RUNNING, State.STARTING, State.LOST))
    return WhatIf(prospects, running, waiting, held, basis)


def _must_end(futures: Futures) -> None:
    """Whether anybody knows when each job ends: one that never does would go on for ever under some policies."""
    scheduler, _ = futures.begin()
    unknown = [job.id for job in scheduler.jobs.values()
               if job.state not in ENDED and futures.durations.work(job, job.work_done, 0) is None]  # fmt: skip
    if unknown:
        named = ", ".join(unknown[:5]) + (" …" if len(unknown) > 5 else "")
        raise UserError(f"{NOBODY_KNOWS} (or not job {named}); nobody can say what another policy would do")


def _told(policy: str, state: Saved, known: Known) -> str:
    """Policies are compared with those told the same: durations where jobs declare any, speeds where profiles are."""
    there = {DURATIONS: bool(declarations(state)), SPEEDS: known.network is not None}
    uses = make_policy(policy).uses
    return " and ".join(kind for kind in KINDS if kind in uses and there.get(kind, True)) or NOTHING


def _outcome(futures: Futures, future: int) -> Outcome:
    scheduler, _ = futures.begin(future)
    ends: list[float] = []
    first: list[str] = []
    preemptions = 0

    def see(instant: Instant) -> None:
        nonlocal preemptions
        for entry in instant.entries():
            if isinstance(entry, ev.Finished):
                ends.append(instant.time)
            elif isinstance(entry, pl.Preempt):
                preemptions += 1
            elif isinstance(entry, pl.Start) and len(first) < _FIRST:
                first.append(entry.job)

    scheduler.journal = Journal(see)
    scheduler.run(lambda now: now - futures.now <= _HORIZON)
    unended = sum(job.state not in ENDED and job.hold is None for job in scheduler.jobs.values())
    times = [end - futures.now for end in ends]
    mean = sum(times) / len(times) if times else 0.0
    return Outcome(mean, max(times, default=0.0), preemptions, tuple(first), unended)


# --- where a snapshot comes from ------------------------------------------------------------------------------------


def read_snapshot(source: str) -> Saved:
    """From a file, or from a service by its URL."""
    text = _from_service(source) if source.startswith(("http://", "https://")) else _from_file(source)
    try:
        state = json.loads(text)
    except ValueError as error:
        raise UserError(f"{source}: not a snapshot: it is no JSON ({error})") from None
    if not isinstance(state, dict) or state.get("snapshot") != VERSION:
        said = state.get("snapshot") if isinstance(state, dict) else None
        other = "" if said is None else f", but of {said!r}"
        raise UserError(f"{source}: not a snapshot of version {VERSION}{other}")
    missing = [name for name in _PARTS if name not in state]
    if missing:
        raise UserError(f"{source}: not a whole snapshot: it lacks {missing[0]!r}")
    return state


def _from_file(source: str) -> bytes:
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the snapshot {source}: {error.strerror or error}") from None


def _from_service(source: str) -> bytes:
    url = source if urlsplit(source).path.strip("/") else source.rstrip("/") + "/v1/snapshot"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    token = os.environ.get("DALLY_API_TOKEN")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            text: bytes = answer.read(_LARGEST)
            return text
    except urllib.error.HTTPError as error:
        raise UserError(f"{url} answers {error.code} {error.reason}" + _hint(error.code)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise UserError(f"cannot reach {url}: {why}; is `dally serve` running there?") from None


def _hint(code: int) -> str:
    return ": set DALLY_API_TOKEN to a token that may see the whole queue" if code in (401, 403) else ""


def plain(found: WhatIf, against: Callable[[Prospect, Prospect], dict[str, Any] | None]) -> dict[str, Any]:
    """For JSON. `against`: how one compares with the policy in charge."""
    rows = []
    for prospect in found.prospects:
        low, high = prospect.range(lambda outcome: outcome.remaining)
        last_low, last_high = prospect.range(lambda outcome: outcome.last_end)
        rows.append({
            "policy": prospect.policy, "in_charge": prospect.in_charge, "told": prospect.told,
            "samples": len(prospect.outcomes),
            "avg_remaining_jct": {"mean": prospect.mean(lambda outcome: outcome.remaining), "low": low, "high": high},
            "last_end": {"mean": prospect.mean(lambda outcome: outcome.last_end), "low": last_low, "high": last_high},
            "preemptions": prospect.mean(lambda outcome: outcome.preemptions),
            "starts_first": list(prospect.first),
            "unended": max(outcome.unended for outcome in prospect.outcomes),
            "against_in_charge": against(prospect, found.prospects[0]),
        })  # fmt: skip
    return {"running": found.running, "waiting": found.waiting, "held": found.held, "basis": found.basis,
            "policies": rows}  # fmt: skip
