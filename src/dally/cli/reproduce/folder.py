"""What every reproduction does with its results: a folder for them, whole or not at all, and a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.simulator.experiment import Experiment
    from dally.simulator.run import Run


def make_folder(out: Path | None) -> None:
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: the folder cannot be made: {error.strerror}") from error


def check_all_ran(runs: list[Run], wanted: int) -> None:
    if len(runs) < wanted or not all(run.complete for run in runs):
        raise UserError("interrupted before every policy had run")


def write_report(title: str, experiment: Experiment, runs: list[Run], path: Path, notes: Sequence[str]) -> None:
    from dally.report.bound import bounds_of
    from dally.report.html import ReportRun, write_report
    from dally.report.metrics import summarise

    topology = experiment.topology
    parts = [ReportRun(run.policy, summarise(run, topology, bound), run.ledger, topology)
             for run, bound in zip(runs, bounds_of(runs, topology), strict=True)]  # fmt: skip
    write_report(parts, path, title=title, baseline=parts[0].name, notes=notes)
