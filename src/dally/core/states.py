"""The life of a job as one declared table; what is not in it cannot happen."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    WAITING = "waiting"  # in the queue, may be started
    HELD = "held"  # submitted, and kept out of the queue until somebody lets it in
    STARTING = "starting"  # was given GPUs, by a start or a move; the world has not said yet that it runs there
    RUNNING = "running"  # runs on its GPUs
    YIELDING = "yielding"  # preempted, saving its checkpoint; GPUs nobody else was promised come back after
    LOST = "lost"  # nobody knows what it does: contact is lost; it keeps its GPUs until the world says more
    FINISHED = "finished"
    FAILED = "failed"  # gave up after its retries
    CANCELLED = "cancelled"
    REJECTED = "rejected"  # can never run here: asks for more than the cluster has

    __hash__ = object.__hash__  # an enumeration's own is a Python call, and states are looked up at every change


_QUEUED = (State.WAITING, State.HELD)
_ACTIVE = (State.STARTING, State.RUNNING, State.YIELDING, State.LOST)

# what happens → from where → to where
TRANSITIONS: Final[dict[str, dict[State, State]]] = {
    "hold": {State.WAITING: State.HELD},
    "release": {State.HELD: State.WAITING},
    "start": {State.WAITING: State.STARTING},
    "begin": {State.STARTING: State.RUNNING},
    "refuse": {State.STARTING: State.WAITING, State.LOST: State.WAITING},
    "preempt": {State.RUNNING: State.YIELDING},
    "yield": {State.YIELDING: State.WAITING, State.LOST: State.WAITING},
    "migrate": {State.RUNNING: State.STARTING},
    "resize": {State.RUNNING: State.STARTING},
    "reshare": {State.RUNNING: State.RUNNING, State.STARTING: State.STARTING},
    "lose": {State.STARTING: State.LOST, State.RUNNING: State.LOST, State.YIELDING: State.LOST},
    "find": {State.LOST: State.RUNNING},
    "find-yielding": {State.LOST: State.YIELDING},
    "interrupt": dict.fromkeys(_ACTIVE, State.WAITING),
    # what was given up for lost may turn out to have ended; a job that never ran cannot (the scheduler looks)
    "finish": dict.fromkeys((*_ACTIVE, *_QUEUED), State.FINISHED),
    "fail": dict.fromkeys((*_ACTIVE, *_QUEUED), State.FAILED),
    "cancel": dict.fromkeys((*_ACTIVE, *_QUEUED), State.CANCELLED),
    "reject": {State.WAITING: State.REJECTED},
}

ENDED: Final = frozenset({State.FINISHED, State.FAILED, State.CANCELLED, State.REJECTED})


class IllegalTransition(Exception):  # noqa: N818 - it names what happened
    def __init__(self, job: str, state: State, what: str) -> None:
        super().__init__(f"job {job!r} is {state.value} and cannot {what}")


def after(job: str, state: State, what: str) -> State:
    """The state after `what` happened, or an error where the table has no such step."""
    try:
        return TRANSITIONS[what][state]
    except KeyError:
        raise IllegalTransition(job, state, what) from None


def possible(state: State, what: str) -> bool:
    return state in TRANSITIONS[what]
