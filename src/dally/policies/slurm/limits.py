"""Limits of QOS, accounts, users and arrays: what their jobs hold now, and whom that keeps from starting.

Slurm's order of precedence: the QOS of the partition, the QOS of the job, then the user's association and every account
above it. What one of the first sets, the later ones do not (resource_limits, "Hierarchy"). A limit that a job is larger
than by itself lets it start alone: in Slurm it would wait for ever, and a recorded job did not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dally.core.job import Job
from dally.core.reasons import Reason, Token
from dally.policies.slurm.accounts import ROOT, Accounts, Caps, Qos
from dally.policies.slurm.memory import NOTHING, Held, SlurmMemory


class Bound(NamedTuple):
    """Whose jobs are counted together under `key`, and the most they may have."""

    key: str
    who: str  # in words
    jobs: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    gpu_seconds: float | None = None
    gpu_type: str | None = None  # only jobs on GPUs of this type are counted


class Need(NamedTuple):
    """What a job would add."""

    gpus: int
    nodes: int
    limit: float  # seconds
    gpu_type: str | None


class Limiter:
    """The limits of one configuration; `accounts` without any, and arrays alone have them."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.any = bool(accounts.limits)
        self._known: dict[tuple[str | None, str | None, str | None, str | None], tuple[Bound, ...]] = {}

    def bounds(self, job: Job, account: str | None, qos: str | None, partition_qos: str | None) -> tuple[Bound, ...]:
        found: tuple[Bound, ...] = ()
        if self.any:
            key = (account, job.user, qos, partition_qos)
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = tuple(self._made(*key))
            found = known
        if job.throttle is not None:
            array = job.id.partition("_")[0]
            found = (*found, Bound(f"array {array}", f"array {array}", jobs=job.throttle))
        return found

    def _made(self, account: str | None, user: str | None, qos: str | None,
              partition_qos: str | None) -> Iterator[Bound]:  # fmt: skip
        known = self.accounts.qos
        levels = [known[name] for name in dict.fromkeys((partition_qos, qos)) if name is not None and name in known]
        if len(levels) == 2 and levels[1].over_partition:
            levels.reverse()
        set_already: dict[str, set[str]] = {"group": set(), "user": set()}
        for level in levels:
            yield from _bounds(f"qos {level.name}", f"QOS {level.name}", level.group, set_already["group"])
            yield from self._per(level, "user", user, level.per_user, set_already["user"])
            yield from self._per(level, "account", account, level.per_account, set())
        associations = self.accounts.associations
        mine = associations.get((account, user)) if account is not None and user is not None else None
        yield from self._of_user(account, user, set_already["user"])
        if mine is not None:
            yield from _bounds(f"user {account}/{user}", f"{user} in {account}", mine.group, set(set_already["group"]))
        above, seen = account, set[str]()
        while above and above not in seen:
            seen.add(above)
            of = associations.get((above, None))
            if of is not None:
                yield from _bounds(f"account {above}", f"account {above}", of.group, set(set_already["group"]))
            above = of.parent if of is not None else (ROOT if above != ROOT else None)

    def _per(self, qos: Qos, what: str, name: str | None, caps: Caps, done: set[str]) -> Iterator[Bound]:
        if name is not None:
            yield from _bounds(f"qos {qos.name} {what} {name}", f"{name} in QOS {qos.name}", caps, done)

    def _of_user(self, account: str | None, user: str | None, done: set[str]) -> Iterator[Bound]:
        """MaxJobs of the user's association, or of the nearest account above that has one: it is for each user."""
        above, seen = account, set[str]()
        of = self.accounts.associations.get((account, user)) if account is not None else None
        while above and (of is None or not of.each.any) and above not in seen:
            seen.add(above)
            of = self.accounts.associations.get((above, None))
            above = of.parent if of is not None else (ROOT if above != ROOT else None)
        if of is not None and of.each.any and user is not None:
            yield from _bounds(f"each {account}/{user}", f"{user} in {account}", of.each, done)


def _bounds(key: str, who: str, caps: Caps, done: set[str]) -> Iterator[Bound]:
    """What of the caps nobody before has set."""
    left = {name: getattr(caps, name) for name in ("jobs", "gpus", "nodes", "gpu_seconds")
            if name not in done and getattr(caps, name) is not None}  # fmt: skip
    if left:
        done.update(left)
        yield Bound(key, who, **left)
    for kind, most in caps.typed:
        if kind not in done:
            done.add(kind)
            yield Bound(f"{key} {kind}", who, gpus=most, gpu_type=kind)


def in_the_way(memory: SlurmMemory, bounds: tuple[Bound, ...], need: Need, now: float) -> Reason | None:
    """Why a job may not start now; None where no limit is in its way."""
    for bound in bounds:
        jobs, gpus, nodes, ends = memory.held.get(bound.key, NOTHING)
        if not jobs or bound.gpu_type not in (None, need.gpu_type):
            continue  # alone it may start, however large it is
        if bound.jobs is not None and jobs >= bound.jobs:
            return _reason(bound, f"{jobs} of {bound.jobs} jobs run")
        if bound.gpus is not None and gpus + need.gpus > bound.gpus:
            return _reason(bound, f"{gpus} of {bound.gpus} GPUs are in use, and it asks for {need.gpus}")
        if bound.nodes is not None and nodes + need.nodes > bound.nodes:
            return _reason(bound, f"{nodes} of {bound.nodes} nodes are in use, and it asks for {need.nodes}")
        if bound.gpu_seconds is not None:
            left = max(0.0, ends - gpus * now) + need.gpus * need.limit
            if left > bound.gpu_seconds:
                return _reason(bound, f"limits of running jobs and its own come to {left / 3600:.0f} GPU hours of "
                               f"{bound.gpu_seconds / 3600:.0f}")  # fmt: skip
    return None


def _reason(bound: Bound, what: str) -> Reason:
    return Reason(Token.WAITING_FOR_QUOTA, f"a limit of {bound.who}: {what}")


def book_held(memory: SlurmMemory, bounds: tuple[Bound, ...], need: Need, end: float, sign: int) -> None:
    """It has begun (1), or is gone (−1); `end`: of its time limit."""
    for bound in bounds:
        if bound.gpu_type not in (None, need.gpu_type):
            continue
        jobs, gpus, nodes, ends = memory.held.get(bound.key, NOTHING)
        moved: Held = (jobs + sign, gpus + sign * need.gpus, nodes + sign * need.nodes,
                       ends + sign * need.gpus * (end if math.isfinite(end) else 0.0))  # fmt: skip
        if moved[0] > 0:
            memory.held[bound.key] = moved
        else:
            memory.held.pop(bound.key, None)
