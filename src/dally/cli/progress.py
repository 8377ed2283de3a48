"""Progress on standard error: a bar on a terminal, a line now and then elsewhere; nothing under two seconds."""

from __future__ import annotations

import sys
import time

from dally.core.units import show_time

WIDEST = 48  # characters of a policy's name: beside a longer one no bar would be seen
SILENT = 5.0  # seconds after which a run that says nothing is taken to have ended


class Progress:
    """`with Progress(quiet) as p: … p(policy, simulated time, jobs ended, jobs in all)`."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._started = time.monotonic()
        self._said: dict[str, float] = {}
        self._first: dict[str, float] = {}  # when each policy gave its first sign of life
        self._bar: object | None = None
        self._tasks: dict[str, object] = {}
        self._drawn: dict[str, float] = {}  # when each was last heard of

    def __call__(self, policy: str, now: float, ended: int, jobs: int) -> None:
        elapsed = time.monotonic() - self._started
        took = elapsed - self._first.setdefault(policy, max(0.0, elapsed - 0.2)) or 0.2
        speed = ended / took
        if self.quiet or elapsed < 2.0:
            return
        if sys.stderr.isatty():
            self._draw(policy, now, ended, jobs, speed)
        elif elapsed - self._said.get(policy, 0.0) > 10.0:
            self._said[policy] = elapsed
            share = f"{ended:,} of {jobs:,} jobs"
            print(f"{policy}: {share}, {speed:,.0f} jobs/s, simulated {show_time(now)}", file=sys.stderr)

    def _draw(self, policy: str, now: float, ended: int, jobs: int, speed: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            self._bar = Bar(TextColumn("{task.description}"), BarColumn(),
                            TextColumn("{task.completed:,.0f}/{task.total:,.0f} jobs, {task.fields[speed]:,.0f}/s, "
                                       "simulated {task.fields[clock]}"),
                            TimeRemainingColumn(), console=Console(stderr=True), transient=True)  # fmt: skip
            self._bar.start()
        bar = self._bar
        assert isinstance(bar, Bar)
        if policy not in self._tasks:
            short = policy if len(policy) <= WIDEST else f"{policy[: WIDEST - 1]}…"
            self._tasks[policy] = bar.add_task(short, total=jobs, speed=speed, clock=show_time(now))
        self._drawn[policy] = time.monotonic()
        for other, last in self._drawn.items():  # of many runs, those at work are shown
            shown = self._drawn[policy] - last < SILENT
            bar.update(self._tasks[other], visible=shown)  # type: ignore[arg-type]
        bar.update(self._tasks[policy], total=jobs, completed=ended, speed=speed,  # type: ignore[arg-type]
                   clock=show_time(now))  # fmt: skip

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()  # type: ignore[attr-defined]
