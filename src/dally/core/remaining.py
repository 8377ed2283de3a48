"""What is left of a job, by what is said of it."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.estimates import Estimates


def remaining_time(estimates: Estimates, job: ActiveJob, now: float) -> float:
    """Seconds the job still needs at reference speed, whether it runs or waits.

    At its present speed a job that runs far apart would look longer than it does in the queue, lose its GPUs, look
    shorter again, and so on: two jobs would swap places until one of them ends.
    """
    total = estimates.work(job.job)
    if total is None:
        return float("inf")
    left = max(0.0, total - job.work_at(now))
    return left + max(0.0, job.progress_from - now) if job.placement is not None else left
