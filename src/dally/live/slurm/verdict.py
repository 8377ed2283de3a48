"""What became of an attempt, from two witnesses: the folder it writes into, and what Slurm says of its job.

Slurm knows who has GPUs and who is gone; the folder knows whether the attempt ever began and how it ended. An attempt
is over when both agree, or when Slurm says that its job is over and nothing of it can be alive any more.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from dally.live.engine import Exited, NotBegun, Vanished
from dally.live.local.folder import Look, Stage
from dally.live.slurm.batch import LOST
from dally.live.slurm.reading import SlurmJob

SAVED = 143
_TIME = {"TIMEOUT": "Slurm's time limit for it was over", "DEADLINE": "its deadline in Slurm was over"}
_MACHINES = ("NODE_FAIL", "BOOT_FAIL", "REVOKED")  # not the job's doing


class Told(NamedTuple):
    """What we have had to do with it."""

    asked: bool = False  # this engine wants it to leave, or never to begin
    cause: str = ""  # why this engine ended it, where nobody asked for that
    requeued: bool = False  # somebody put its job back into Slurm's queue
    given_up: bool = False  # it was made void before its job ended: by us, since nobody else does that
    complaint: str = ""  # what its batch process said last


def ended(key: tuple[str, int], job: SlurmJob | None, seen: Look, told: Told) -> NotBegun | Exited | Vanished:
    """How an attempt ended whose job in Slurm is over (None: is not known there any more)."""
    state = "" if job is None else job.state
    called = "its job in Slurm" if job is None else f"its Slurm job {job.id}"
    if seen.stage is Stage.VOID:
        behind = _cancelled(state, told) and not told.given_up
        return NotBegun(*key, told.cause or _never(called, state, told, behind), void=not behind)
    if seen.stage is Stage.REFUSED:
        return NotBegun(*key, seen.cause, void=seen.pid is None)  # nobody came to it: its node died before that, say
    if seen.stage is Stage.OVER:
        return _over(key, seen, state, called, told)
    asked = told.asked or seen.asked in ("leave", "out")  # by this engine, or one before it
    if _cancelled(state, told) and not asked:
        return Exited(*key, -9, f"{called} was cancelled behind our back (scancel)")
    if state in _TIME and not asked:
        return Exited(*key, -9, _TIME[state])
    said = "is not known there any more" if job is None else f"ended as {state}"
    return Vanished(*key, told.cause or f"{called} {said}, and how the attempt ended is not on record")


def _over(key: tuple[str, int], seen: Look, state: str, called: str, told: Told) -> Exited | Vanished:
    if seen.code == LOST:
        return Vanished(*key, seen.cause)
    before = seen.asked == "leave" and not told.asked  # by an engine before this one
    # Slurm may have ended a job that had ended already, where nobody could tell it: then the state says nothing.
    signalled = seen.asked == "term" or seen.code in (SAVED, -signal.SIGTERM, -signal.SIGKILL)
    if told.cause and not told.asked and seen.code != 0:  # it obeyed us before anybody else could end it
        return Vanished(*key, told.cause)
    if told.asked or before or seen.code == 0 or seen.asked == "out":
        return Exited(*key, seen.code, seen.cause, before)
    if not signalled:
        return Exited(*key, seen.code, seen.cause)
    if told.requeued or state == "PREEMPTED" or (state in _MACHINES and seen.code == SAVED):
        return Exited(*key, seen.code, seen.cause, asked=True)
    if state in _MACHINES:
        return Vanished(*key, f"{called} ended as {state}")
    if _cancelled(state, told):
        return Exited(*key, seen.code, f"{called} was cancelled behind our back (scancel)")
    return Exited(*key, seen.code, seen.cause or _TIME.get(state, ""))


def _cancelled(state: str, told: Told) -> bool:
    return state == "CANCELLED" and not (told.asked or told.cause or told.requeued)


def _never(called: str, state: str, told: Told, behind: bool) -> str:
    if behind:
        return f"{called} was cancelled behind our back (scancel) before it began"
    if state in ("FAILED", "OUT_OF_MEMORY") and told.complaint:
        return f"{called} could not start it: {told.complaint}"
    if told.requeued:
        return f"{called} was put back into Slurm's queue before it began"
    if told.asked or told.given_up or not state:
        return "it never began"
    return f"{called} ended as {state} before it began"


def elsewhere(job: SlurmJob, ordered: list[str]) -> str:
    """Why an attempt that runs is not the one that was decided, if somebody has edited its job; empty: it is."""
    if job.state != "RUNNING" or not ordered or set(job.nodes) == set(ordered):
        return ""
    return (f"its Slurm job {job.id} was edited behind our back: it runs on {', '.join(job.nodes)} and not on "
            f"{', '.join(ordered)}")  # fmt: skip
