"""Cells of a sweep on disk: one small file each, written whole or not at all, found again by what it was made from."""

from __future__ import annotations

import json
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from dally.core.errors import PlanError, RunError, UserError
from dally.experiments.measuring import measure
from dally.experiments.naming import make_folder
from dally.experiments.results import flat
from dally.experiments.sweeps.spec import Cell
from dally.simulator.digests import code_digest
from dally.simulator.experiment import Experiment
from dally.simulator.pool import Sign
from dally.simulator.scenario import Scenario


def run_cell(cell: Cell, sign: Sign) -> dict[str, Any] | None:
    """One run, as the line of a table; None where Ctrl-C stopped it on the way. Called in a worker."""
    began = time.perf_counter()
    experiment = _prepared(cell.scenario)
    run = experiment.run(cell.entrant.policy, progress=sign)
    if not run.complete:
        return None
    found = measure(run, experiment)
    return {"figures": flat(found.lasting()), "timing": {**found.timing(), "seconds": time.perf_counter() - began},
            "code": code_digest()}  # fmt: skip


@lru_cache(maxsize=1)
def _kept(scenario: Scenario) -> Experiment:
    return scenario.prepare()


def _prepared(scenario: Scenario) -> Experiment:
    """Prepared once for the policies that follow each other on it."""
    try:
        hash(scenario)
    except TypeError:  # a trace in memory
        return scenario.prepare()
    return _kept(scenario)


class CellStore:
    """The folder `cells` of a sweep."""

    def __init__(self, out: Path) -> None:
        self.home = out / "cells"
        make_folder(self.home, out)

    def _path(self, cell: Cell, failed: bool = False) -> Path:
        return self.home / f"{cell.key}{'.error' if failed else ''}.json"

    def find(self, cell: Cell) -> dict[str, Any] | None:
        """What a finished cell left; None where it has not been run to its end."""
        return _read(self._path(cell))

    def find_failure(self, cell: Cell) -> dict[str, Any] | None:
        return _read(self._path(cell, failed=True))

    def keep(self, cell: Cell, result: dict[str, Any]) -> None:
        self._write(self._path(cell), {"cell": cell.label, "configuration": cell.configuration, **result})
        self._path(cell, failed=True).unlink(missing_ok=True)

    def keep_failure(self, cell: Cell, error: Exception) -> None:
        kind = {UserError: "bad input", PlanError: "refused plan", RunError: "failure"}.get(type(error), "failure")
        self._write(self._path(cell, failed=True), {
            "cell": cell.label, "configuration": cell.configuration, "error": str(error), "kind": kind,
            "details": getattr(error, "details", ""),
        })  # fmt: skip

    @staticmethod
    def _write(path: Path, content: dict[str, Any]) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return None  # damaged: it is run again
