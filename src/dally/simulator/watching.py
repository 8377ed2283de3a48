"""Between two instants of a run: whether it goes in circles, how far it is, and whether somebody wants it to stop."""

from __future__ import annotations

from collections.abc import Callable

from dally.core.scheduler import Scheduler
from dally.simulator.circles import Circles
from dally.simulator.stopping import HEARD
from dally.simulator.world import SimulatedWorld

Progress = Callable[[float, int, int], bool]  # simulated time, jobs ended, jobs in all → go on?


class Watch:
    """Called after every instant; most of them it only counts."""

    def __init__(self, scheduler: Scheduler, world: SimulatedWorld, jobs: int, progress: Progress | None) -> None:
        self.stopped = False
        self._circles, self._world, self._jobs, self._progress = Circles(scheduler), world, jobs, progress
        self._calls = 0
        self._heard = HEARD  # not through `asked`: a call after every instant

    def __call__(self, now: float) -> bool:
        """Whether to go on."""
        self._calls += 1
        if not self._calls & 255:
            self._circles.look(now, self._calls, self._world.ended)
            if self._progress is not None:
                self.stopped = not self._progress(now, self._world.ended, self._jobs)
        if self._heard[0]:
            self.stopped = True
        return not self.stopped
