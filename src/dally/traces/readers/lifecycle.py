"""From submission, start, end and state of a row to what a job did: the rules all logs with such columns share."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.job import Ending
from dally.traces.assembly import BEFORE_SUBMIT, NO_START, NO_SUBMIT, STILL_RUNNING, Assembly

STILL_WAITING = "still waiting when the trace ended"
UNKNOWN_STATE = "its state is none that is known: taken as completed"
START_TAKEN = "start missing: taken from the end and the run time"

# Slurm's job states, which Helios and Acme use as well. A job stopped at its limit or by its node did not get
# done: it failed. RUNNING and PENDING are jobs the log caught alive.
ENDINGS = {"COMPLETED": Ending.COMPLETED, "CANCELLED": Ending.CANCELLED, "FAILED": Ending.FAILED,
           "TIMEOUT": Ending.FAILED, "NODE_FAIL": Ending.FAILED, "OUT_OF_MEMORY": Ending.FAILED,
           "BOOT_FAIL": Ending.FAILED, "DEADLINE": Ending.FAILED, "LAUNCH_FAILED": Ending.FAILED,
           "RECONFIG_FAIL": Ending.FAILED, "PREEMPTED": Ending.CANCELLED, "REQUEUED": Ending.CANCELLED,
           "REVOKED": Ending.CANCELLED}  # fmt: skip
ALIVE = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT",
                   "EXPEDITING", "POWER_UP_NODE", "UPDATE_DB"})  # fmt: skip
WAITING = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


class Life(NamedTuple):
    """When a job came, how long it ran (None: cancelled before it started) and how it ended."""

    submit: float
    duration: float | None
    ending: Ending
    cancel_at: float | None


def life_of(assembly: Assembly, line: int | None, job: str, state: str, submit: float | None,
            start: float | None, end: float | None, stated: float | None) -> Life | None:  # fmt: skip
    """What became of a job, or None when its row had to be dropped; every change is counted."""
    if submit is None:
        assembly.drop(NO_SUBMIT, line, job)
        return None
    if state in WAITING:
        assembly.drop(STILL_WAITING, line, job)
        return None
    if state not in ENDINGS and state not in ALIVE:
        assembly.repair(UNKNOWN_STATE, line, job)
    ending = ENDINGS.get(state, Ending.COMPLETED)
    if start is None and end is not None and stated is not None and stated > 0:
        assembly.repair(START_TAKEN, line, job)
        start = end - stated
    # Slurm writes start = end for a job cancelled in the queue; older versions leave the start out.
    if ending is Ending.CANCELLED and end is not None and start in (None, end):
        return Life(submit, None, ending, max(submit, end))
    if start is None:
        assembly.drop(NO_START, line, job)
        return None
    ran = assembly.ran_for(start, end, stated, line, job)
    if ran is None:
        return None
    if state in ALIVE or (end is None and state not in ENDINGS):
        assembly.repair(STILL_RUNNING, line, job)
    if start < submit:
        assembly.repair(BEFORE_SUBMIT, line, job)
        submit = start
    return Life(submit, ran, ending, None)
