"""Queues that jobs are submitted to (`Job.tenant`), with their weights and limits."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT = "default"  # whose job names no queue, or one that is not there, is in this one


class Queue(NamedTuple):
    """One queue; a limit of None is none. Jobs without a user count as one user's."""

    name: str
    weight: float = 1.0  # its part of the GPUs, where others want them too
    max_gpus: int | None = None
    max_gpus_per_user: int | None = None
    max_jobs_per_user: int | None = None


def by_name(queues: tuple[Queue, ...]) -> dict[str, Queue]:
    """With the default queue, of weight 1 and without limits where it is not among them."""
    found = {queue.name: queue for queue in queues}
    found.setdefault(DEFAULT, Queue(DEFAULT))
    return found
