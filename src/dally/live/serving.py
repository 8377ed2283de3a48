"""What the API asks of a service: one method per question. Every method may be called from any thread."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from dally.core.queues import Queue
from dally.live.attending import LiveRules
from dally.live.metrics import LiveMetrics
from dally.live.spec import JobSpec

Row = dict[str, Any]
Act = Literal["cancel", "hold", "release", "requeue"]
ENDED = ("finished", "failed", "cancelled", "rejected")
ACTIVE = ("held", "waiting", "starting", "running", "yielding", "lost")
STATES = (*ACTIVE, *ENDED)


class Serving(Protocol):
    """Errors are `UserError` (bad input) and those of `live.errors`; anything else is a fault of the service."""

    @property
    def metrics(self) -> LiveMetrics: ...

    def hand_in(self, specs: list[JobSpec], user: str, key: str | None = None) -> Future[list[str]]:
        """Ids, in order, arrays expanded; there once they are durable. The same key again: the same ids, nothing
        new."""
        ...

    def dry_run(self, spec: JobSpec, user: str) -> dict[str, Any]:
        """{"starts": "now" | "later" | "never", "machines", "why", "estimate", "alternatives"}; changes nothing."""
        ...

    def jobs(self, *, states: Collection[str] | None = None, user: str | None = None, queue: str | None = None,
             name: str | None = None, array: str | None = None, after: str | None = None,
             limit: int | None = None) -> list[Row]:  # fmt: skip
        """Rows, newest last; from the one after a job on, and so many, if that is asked for."""
        ...

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        ...

    def job(self, id: str) -> Row | None:
        """A row with `spec` and `history`: [{"number", "machines", "began", "ended", "how"}]."""
        ...

    def explain(self, id: str) -> dict[str, Any]: ...

    def act(self, what: Act, id: str, user: str) -> None:
        """`Conflict` where the job is in no state for it."""
        ...

    def nodes(self) -> list[dict[str, Any]]:
        """{"name", "state": "up" | "drained" | "down", "gpus", "free", "gpu_type", "jobs": [ids]}."""
        ...

    def drain(self, machine: str, user: str) -> None: ...

    def resume(self, machine: str, user: str) -> None: ...

    def topology(self) -> dict[str, Any]: ...

    def policy(self) -> dict[str, Any]:
        """{"policy": as it is written, …}."""
        ...

    def set_policy(self, written: str, user: str) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def health(self) -> dict[str, Any]:
        """{"status": "ok" | a sentence, "leader": bool, "url", "policy", "version", "instants": so many written}; never
        blocks."""
        ...

    def events_after(self, position: int, limit: int, wait: float) -> list[tuple[int, str]]:
        """Instants of the journal, as text, with their numbers, from number `position` on (the first is 0), at most so
        many; waits for so many seconds if there is none."""
        ...

    def log(self, id: str, attempt: int | None, offset: int, limit: int) -> tuple[bytes, int]:
        """What was printed, and the offset to go on from. Beyond the end: nothing, and the end. What was rotated away
        is skipped. No attempt: the newest one."""
        ...


class Server(Serving, Protocol):
    """What `dally serve` runs."""

    def run_forever(self) -> None:
        """Lead or stand by, until `stop`."""
        ...

    def stop(self) -> None:
        """End `run_forever` soon; jobs go on or are checkpointed, as configured."""
        ...

    def reload(self, *, policy: str | None = None, rules: LiveRules | None = None,
               stop_jobs: bool | None = None, queues: tuple[Queue, ...] | None = None) -> None:  # fmt: skip
        """Take over what may change while it runs (live.config.reloadable)."""
        ...

    def close(self) -> None: ...
