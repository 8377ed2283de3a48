"""What a service says of the future: it looks ahead from a snapshot of its scheduler, disturbing nothing."""

from __future__ import annotations

from typing import Any

from dally.core.errors import UserError
from dally.core.snapshot import save
from dally.live.driver import Driver
from dally.live.durations import History
from dally.live.explaining import explain
from dally.live.forecast import Known, dry_run
from dally.live.learned import Learned
from dally.live.spec import JobSpec

NEW = "new"  # the id of a job that is not submitted


def snapshot(driver: Driver) -> dict[str, Any]:
    """The whole state at this moment."""
    with driver.lock:
        scheduler = driver.scheduler
        before, scheduler.time = scheduler.time, max(scheduler.time, driver.clock.now())
        try:
            return save(scheduler)
        finally:
            scheduler.time = before


def handed_out(driver: Driver) -> dict[str, Any]:
    """The snapshot for somebody who goes on from it elsewhere, with what ended jobs showed."""
    return {**snapshot(driver), **_history(driver).plain()}


def explained(driver: Driver, job: str) -> dict[str, Any]:
    """Of a job the scheduler knows. Times are unix time, or seconds from now where the name says so."""
    found = explain(snapshot(driver), job, known=_known(driver))
    if found["until"] is not None:
        found["until"] = driver.clock.unix(found["until"])
    found["now"] = driver.clock.unix(found["now"])
    return found


def tried(driver: Driver, spec: JobSpec) -> dict[str, Any]:
    """What would become of a job if it were submitted now."""
    job = driver.known_as(spec, NEW, driver.clock.now())
    if job.elastic:
        raise UserError("this engine cannot change a job's number of GPUs while it runs")
    return dry_run(snapshot(driver), job, known=_known(driver))


def _known(driver: Driver) -> Known:
    """What ended jobs showed; what was learned is in the snapshot itself and is taught to a copy."""
    return Known(Learned(driver.scheduler.view.topology), _history(driver))


def _history(driver: Driver) -> History:
    return History(list(driver.past), {job: spec.title for job, spec in list(driver.specs.items())})
