"""Running a sweep: the cells that are not there yet, on the cores of this machine or on a Ray cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dally.core.errors import PlanError, RunError, UserError
from dally.core.units import show_time
from dally.experiments.folder import write_json
from dally.experiments.naming import make_folder
from dally.experiments.provenance import PROVENANCE, read_provenance
from dally.experiments.sweeps.cells import CellStore, run_cell
from dally.experiments.sweeps.results import SweepResult, collect
from dally.experiments.sweeps.spec import Cell, SweepSpec
from dally.simulator.digests import code_digest
from dally.simulator.pool import StoppedError, Task, portable, run_tasks
from dally.simulator.stopping import asked, heeded
from dally.version import __version__


def run_sweep(spec: SweepSpec, out: Path, *, workers: int | None = None, on: str | None = None,
              quiet: bool = False, force: bool = False) -> SweepResult:  # fmt: skip
    """Run what is missing, keep every result as it comes, and gather all of them into one table.

    Ctrl-C ends it with what is finished; the same call goes on from there. `on`: None for this machine, `ray` for a
    Ray cluster that is started here, `ray=ADDRESS` for one that is there. `force`: into a folder that holds the table
    of another sweep, or another run's results; cells are kept in any case.
    """
    if not force:
        _check_free(out, spec)
    make_folder(out, out)
    store = CellStore(out)
    write_json({"sweep": spec.as_dict(), "dally": __version__, "code": code_digest(), "folder": str(Path.cwd())},
               out / PROVENANCE)  # fmt: skip
    done = sum(store.find(cell) is not None for cell in spec.cells())
    progress = SweepProgress(len(spec), done, quiet)
    missing = (cell for cell in spec.cells() if store.find(cell) is None)
    interrupted = False
    try:
        with heeded():
            for cell, result in _run(missing, spec, workers, on):
                if result is None or isinstance(result, StoppedError):
                    continue
                if isinstance(result, Exception):
                    store.keep_failure(cell, result)
                else:
                    store.keep(cell, result)
                progress(failed=isinstance(result, Exception))
            interrupted = asked()
    except KeyboardInterrupt:
        interrupted = True
    progress.end()
    return collect(spec, store, out, interrupted=interrupted)


def _check_free(out: Path, spec: SweepSpec) -> None:
    """A sweep may grow in its folder: its table is replaced by one that holds all of it. Another run's is not."""
    if not (out / PROVENANCE).exists():
        return
    try:
        about = read_provenance(out)
        before = SweepSpec.of(about["sweep"], str(out)) if "sweep" in about else None
        grown = before is not None and {cell.key for cell in before.cells()} <= {cell.key for cell in spec.cells()}
    except UserError:  # damaged, or of files that are gone
        grown, before = False, None
    if not grown:
        what = "the table of another sweep, not all of which is in this one" if before is not None else \
            "another run's results"  # fmt: skip
        raise UserError(f"--out {out} holds {what}: take another folder, or --force to replace it")


def _run(cells: Iterable[Cell], spec: SweepSpec, workers: int | None, on: str | None) -> Iterator[tuple[Cell, Any]]:
    """Every cell with its result or its error, in the order they end; cells are taken as there is room for them."""
    waiting: dict[int, Cell] = {}

    def tasks() -> Iterator[Task]:
        for number, cell in enumerate(cells):
            waiting[number] = cell
            yield Task(cell.entrant.label, partial(run_cell, cell))

    if on is not None:
        from dally.experiments.sweeps.on_ray import run_on_ray

        results = run_on_ray(tasks(), on)
    else:
        count = min(workers or len(os.sched_getaffinity(0)), len(spec))
        alone = count <= 1 or not all(portable(each.policy) for each in spec.entrants) or not portable(dict(spec.base))
        results = _here(tasks()) if alone else run_tasks(tasks(), count)
    for number, result in results:
        yield waiting.pop(number), result


def _here(tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
    for number, task in enumerate(tasks):
        try:
            result = task.call(lambda now, ended, jobs: True)
        except (UserError, PlanError, RunError) as error:
            yield number, error
            continue
        except MemoryError:
            yield number, UserError("out of memory")
            continue
        yield number, result
        if result is None or asked():
            return


def made_by(spec: SweepSpec) -> list[str]:
    """How a sweep was made, for its page."""
    import json

    return [f"made by dally {__version__} (code {code_digest()[:12]}) from this spec, which `dally sweep` takes as a "
            f"file: {json.dumps(spec.as_dict())}"]  # fmt: skip


class SweepProgress:
    """Cells done and time left, on standard error: one line that changes on a terminal, a line now and then elsewhere.

    The time left is that of the cells so far: right on average where cells are alike.
    """

    EVERY = 10.0

    def __init__(self, cells: int, found: int, quiet: bool) -> None:
        self._cells, self._found, self._quiet = cells, found, quiet
        self._done = self._failed = 0
        self._began = self._said = time.monotonic()
        if found and not quiet:
            print(f"{found:,} of {cells:,} cells are there already", file=sys.stderr)

    def __call__(self, *, failed: bool) -> None:
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if self._quiet or (now - self._said < (0.2 if terminal else self.EVERY)):
            return
        self._said = now
        line = self.line(now - self._began)
        print(f"\r{line}\x1b[K" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    def line(self, elapsed: float) -> str:
        left = self._cells - self._found - self._done
        failures = f", {self._failed:,} failed" if self._failed else ""
        time_left = f", about {show_time(elapsed / self._done * left)} left" if self._done and left else ""
        return f"{self._found + self._done:,} of {self._cells:,} cells{failures}{time_left}"

    def end(self) -> None:
        if not self._quiet and sys.stderr.isatty() and self._done:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
