"""What Gavel believes about jobs: steps per second on each GPU type, and steps left; both from the view's
estimates."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.shape import fits_empty
from dally.core.topology import Topology
from dally.policies.gavel.allocation.problem import JobRow


class Known:
    """One job's rates, asked for once, and its work in steps where it declared how many there are.

    Rates and work count in the unit of the estimates (seconds at the job's best placement); `step` is what one
    training step is worth of it, and 1 where nobody said how many steps there are.
    """

    __slots__ = ("gpus", "id", "job", "place", "rates", "row", "step", "total")

    def __init__(self, view: View, job: ActiveJob, columns: tuple[tuple[str, bool], ...],
                 *, only_where_it_fits: bool = True) -> None:  # fmt: skip
        self.id, self.gpus, self.job = job.id, job.gpus, job
        self.place = -1  # in the standings
        self.row: JobRow | None = None  # as the objective last saw it
        total = view.estimates.work(job.job)
        steps = job.job.declared_steps
        self.step, self.total = 1.0, total
        if total is not None and steps is not None and steps > 0 and total > 0:
            self.step, self.total = total / steps, steps
        wanted = job.demand.gpu_type
        only_where_it_fits |= job.demand.bound
        self.rates = tuple(
            self._rate(view, job, kind, near)
            if wanted in (None, kind) and (not only_where_it_fits or _fits(view.topology, job.demand, kind))
            else 0.0
            for kind, near in columns
        )

    def _rate(self, view: View, job: ActiveJob, kind: str, near: bool) -> float:
        """Steps per second. Where nobody measured anything, all GPUs are alike."""
        found = view.estimates.throughput(job.job, kind, near)
        return (1.0 if found is None else found) / self.step

    def done(self, job: ActiveJob, now: float) -> float:
        """Steps done, as far as the scheduler has seen."""
        return job.work_at(now) / self.step

    def left(self, job: ActiveJob, now: float, at_least: float = 0.0) -> float:
        """Steps left; where nobody says how many there are, as many again as it has done, and a round's at least."""
        done = self.done(job, now)
        if self.total is None:
            return max(done, at_least, 1.0)
        return max(self.total - done, 0.0)


def _fits(topology: Topology, demand: Demand, kind: str) -> bool:
    if demand.shaped:
        return fits_empty(topology, demand._replace(gpu_type=kind))
    return topology.capacity(kind, demand.within) >= demand.gpus
