"""Run an experiment under its policies, print the table or JSON, and write the folder of results."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.inputs import notes_of
from dally.cli.printing import console, print_notes
from dally.cli.progress import Progress
from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.report.metrics import Summary
    from dally.simulator.experiment import Experiment
    from dally.simulator.run import Run

BELOW_BOUND = 3  # exit code of a run that is below what is proved impossible


def execute(experiment: Experiment, policies: list[str], *, out: Path | None, as_json: bool, quiet: bool, many: bool,
            workers: int | None = None) -> None:  # fmt: skip
    """The trip: run, sum up, print, write. Interrupted runs are summed up as far as they got."""
    from dally.policies.options import make_policy
    from dally.report.alarm import below_bound
    from dally.report.bound import bounds_of
    from dally.report.metrics import summarise
    from dally.report.table import print_table
    from dally.simulator.sweep import run_all

    names = [make_policy(policy).name for policy in policies]
    if len(set(names)) < len(names):
        raise UserError(f"a policy is named twice: {', '.join(names)}")
    folders = _folders(out, names, many)
    journals = [str(folder / "journal.jsonl.gz") if folder else None for folder in folders]
    with Progress(quiet) as progress:
        runs = run_all(experiment, policies, journals=journals, workers=workers, report=progress)
    if not runs:
        raise UserError("interrupted before any policy had run")
    bounds = bounds_of(runs, experiment.topology)
    summaries = [summarise(run, experiment.topology, bound) for run, bound in zip(runs, bounds, strict=True)]
    summaries = [replace(each, alarm=below_bound(run, each)) for run, each in zip(runs, summaries, strict=True)]
    notes = notes_of(experiment)
    notes += [f"{run.policy}: {note}" for run in runs for note in run.notes]
    notes += [f"{s.policy}: {s.deadlines_missed:,} of {s.deadlines:,} deadlines missed, ${s.cost_dollars or 0:,.0f} "
              "of GPU time" for s in summaries if s.deadlines]  # fmt: skip
    if out is not None:
        _write(experiment, runs, summaries, out, many, notes)
    if as_json:
        figures = [summary.as_dict() for summary in summaries]
        json.dump(figures if many else figures[0], sys.stdout, indent=2)
        print()
    else:
        print_table(summaries, console=console())
    if not quiet:
        print_notes(notes)
        if out is not None and not as_json:
            print(f"report: {out / 'report.html'}")
    if any(summary.alarm for summary in summaries):
        for summary in summaries:
            if summary.alarm:
                print(f"dally: {summary.alarm}", file=sys.stderr)
        raise click.exceptions.Exit(BELOW_BOUND)


def _folders(out: Path | None, names: list[str], many: bool) -> list[Path | None]:
    """Where each run leaves its files: the folder itself for one run, a folder per policy for several."""
    if out is None:
        return [None] * len(names)
    folders = [out / slug(name) if many else out for name in names]
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: the folder cannot be made: {error.strerror}") from error
    return list(folders)


def slug(name: str) -> str:
    """A policy's name as a folder name."""
    return re.sub(r"[^\w.=-]+", "_", name).strip("_")


def _write(experiment: Experiment, runs: list[Run], summaries: list[Summary], out: Path, many: bool,
           notes: list[str]) -> None:  # fmt: skip
    from dally.report.html import ReportRun, write_report
    from dally.report.metrics import write_jobs_csv, write_summary

    for run in runs:
        folder = out / slug(run.policy) if many else out
        write_jobs_csv(run, experiment.topology, folder / "jobs.csv")
    write_summary(summaries if many else summaries[0], out / "summary.json")
    title = f"{experiment.trace.name} on {experiment.topology.name}"
    parts = [ReportRun(run.policy, summary, run.ledger, experiment.topology)
             for run, summary in zip(runs, summaries, strict=True)]  # fmt: skip
    write_report(parts, out / "report.html", title=title, baseline=runs[0].policy if many else None, notes=notes)
