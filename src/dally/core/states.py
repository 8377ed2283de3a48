"""The life of a job as one declared table; what is not in it cannot happen."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    WAITING = "waiting"  # in the queue, may be started
    RUNNING = "running"  # holds its GPUs
    YIELDING = "yielding"  # preempted, saving its checkpoint; GPUs nobody else was promised come back after
    FINISHED = "finished"
    FAILED = "failed"  # gave up after its retries
    CANCELLED = "cancelled"
    REJECTED = "rejected"  # can never run here: asks for more than the cluster has


# what happens → from where → to where
TRANSITIONS: dict[str, dict[State, State]] = {
    "start": {State.WAITING: State.RUNNING},
    "preempt": {State.RUNNING: State.YIELDING},
    "yield": {State.YIELDING: State.WAITING},
    "migrate": {State.RUNNING: State.RUNNING},
    "resize": {State.RUNNING: State.RUNNING},
    "reshare": {State.RUNNING: State.RUNNING},
    "interrupt": {State.RUNNING: State.WAITING, State.YIELDING: State.WAITING},
    "finish": {State.RUNNING: State.FINISHED},
    "fail": {State.RUNNING: State.FAILED},
    "cancel": {
        State.WAITING: State.CANCELLED,
        State.RUNNING: State.CANCELLED,
        State.YIELDING: State.CANCELLED,
    },
    "reject": {State.WAITING: State.REJECTED},
}

ENDED = frozenset({State.FINISHED, State.FAILED, State.CANCELLED, State.REJECTED})


class IllegalTransition(Exception):  # noqa: N818 - it names what happened
    def __init__(self, job: str, state: State, what: str) -> None:
        super().__init__(f"job {job!r} is {state.value} and cannot {what}")


def after(job: str, state: State, what: str) -> State:
    """The state after `what` happened, or an error where the table has no such step."""
    try:
        return TRANSITIONS[what][state]
    except KeyError:
        raise IllegalTransition(job, state, what) from None
