"""`dally reproduce`: published comparisons run again, the published figure beside the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.report.reproduced import Cell
    from dally.simulator.experiment import Experiment
    from dally.simulator.reproduce.dally import Contender, Setting
    from dally.simulator.reproduce.dally_network import PaperExperiment
    from dally.simulator.run import Run

T = TypeVar("T")


@click.group()
def command() -> None:
    """Run a paper's comparison again and print its figures beside ours.

    \b
    dally reproduce tiresias --quick
    dally reproduce dally --out out
    """


@command.command()
@click.option("--quick", is_flag=True, help="One draw, one load, 400 GPUs instead of 2,000: seconds, not minutes.")
@click.option("--draws", type=click.IntRange(min=1), help="Workloads drawn per cluster and load; default: 3.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the first draw.")
@click.option("--load", "loads", type=click.FloatRange(min=0, min_open=True), multiple=True,
              help="Work asked for over what the cluster can do while jobs come; default: 1 and 2; 2 and 3 on 2,000.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), help="Folder for a report per cluster.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def tiresias(quick: bool, draws: int | None, seed: int, loads: tuple[float, ...], workers: int | None,
             out: Path | None, quiet: bool) -> None:  # fmt: skip
    """Tiresias (NSDI'19): FIFO, SRTF, Tiresias-L and Tiresias-G on 60 and on 2,000 GPUs.

    \b
    dally reproduce tiresias --quick
    dally reproduce tiresias --draws 5 --load 2.5 --out out
    """
    from dally.cli.printing import print_notes, print_table
    from dally.cli.progress import Progress
    from dally.simulator.reproduce import tiresias as paper

    _make(out)
    count = draws or (1 if quick else 3)
    for setting in (paper.TESTBED, paper.QUICK) if quick else paper.SETTINGS:
        rows: list[list[str]] = []
        for load in loads or ((setting.loads[-1],) if quick else setting.loads):
            gains: list[list[paper.Gain]] = [[] for _ in setting.published]
            for draw in range(seed, seed + count):
                with Progress(quiet) as progress:
                    experiment, runs = paper.compare(setting, draw, load, workers=workers, report=progress)
                _check(runs, len(paper.POLICIES))
                by_name = dict(zip(paper.POLICIES, runs, strict=True))
                for said, found in zip(setting.published, gains, strict=True):
                    found.append(paper.gain(by_name[said.policy], by_name[said.against]))
            if out is not None:  # of the highest load's last draw in the end
                title = f"Tiresias' comparison again: {setting.title}, load {load:g}"
                _write_report(title, experiment, runs, out / f"{setting.name}.html", paper.DIFFERENCES)
            for said, found in zip(setting.published, gains, strict=True):
                rows.append([paper.TITLES[said.policy], paper.TITLES[said.against], f"{load:g}", said.text,
                             paper.spread([each.average for each in found]),
                             paper.spread([each.median for each in found]),
                             paper.spread([each.p95 for each in found])])  # fmt: skip
        title = f"{setting.title}; {setting.jobs:,} jobs, {count} draw{'s' if count > 1 else ''}"
        print_table(["", "against", "load", "published, average JCT", "average JCT", "median", "p95"], rows, title)
    if not quiet:
        print_notes(paper.DIFFERENCES)
        if out is not None:
            click.echo(f"reports: {', '.join(str(out / f'{s.name}.html') for s in paper.SETTINGS)}")


@command.command()
@click.option("--trace", "-t", "traces", multiple=True, metavar="FILE",
              help="The authors' job list, or another trace; twice for batch and week. Default: jobs are drawn.")
@click.option("--layers", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="The authors' layer tables; default: the catalog's layers at their step times.")
@click.option("--workloads", metavar="W1,W2", help="Of the drawn ones: batch, poisson; default: both.")
@click.option("--clusters", metavar="C1,C2,…", help="Racks x machines x GPUs; default: 4x8x8.")
@click.option("--fabrics", metavar="F1,F2", help="dally, dally-congested; default: both.")
@click.option("--policies", metavar="P1,P2,…", help="Default: the nine of the comparison.")
@click.option("--full", is_flag=True, help="All three clusters: 2x4x8, 4x8x8, 8x8x8.")
@click.option("--network", default="paper", show_default=True, metavar="N",
              help="paper: the authors' rules, fabric and step times; or any of `dally simulate --network`.")
@click.option("--jobs", type=click.IntRange(min=1), help="Default: 500 (batch), 411 (week); all of a file.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the drawn jobs.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False),
              help="Folder for a report per cell, an overview and results.json.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON (times in seconds).")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def dally(traces: tuple[str, ...], layers: Path | None, workloads: str | None, clusters: str | None,
          fabrics: str | None, policies: str | None, full: bool, network: str, jobs: int | None, seed: int,
          workers: int | None, out: Path | None, as_json: bool, quiet: bool) -> None:  # fmt: skip
    """Dally (arXiv 2401.16492): a batch of 500 jobs and a Poisson week, on near and on congested links.

    Compares auto-tuned Dally with FIFO, Tiresias (as its authors had it, and in full), no-wait, fully consolidated,
    manual timers, waiting by value, SRTF with perfect knowledge, and the lower bound.

    \b
    dally reproduce dally --out out
    dally reproduce dally --full --workloads batch --seed 1
    dally reproduce dally -t batch.json -t week.json --layers layers/ --clusters 4x8x8,8x8x8
    dally reproduce dally --jobs 60 --clusters 2x4x8 --fabrics dally --policies fifo,dally
    """
    if clusters and full:
        raise UserError("--full and --clusters both say which clusters; give one of them")
    if traces and workloads:
        raise UserError("--workloads chooses among drawn jobs; with --trace the files are the workloads")
    if layers is not None and network != "paper":
        raise UserError(f"--layers does nothing with --network {network}")

    import json
    import sys

    from dally.cli.inputs import notes_of
    from dally.cli.printing import print_notes, print_table
    from dally.report.reproduced import change_table, findings, measured_table
    from dally.simulator.reproduce import dally as paper

    kinds = _chosen("--workloads", workloads, {kind.name: kind for kind in paper.KINDS})
    chosen_fabrics = _chosen("--fabrics", fabrics, {name: name for name in paper.FABRICS})
    shapes = _listed(clusters) if clusters else paper.CLUSTERS if full else paper.DEFAULT_CLUSTERS
    entries = _contenders(policies)
    loads = paper.read(traces, jobs) if traces else paper.drawn(kinds, jobs)
    settings = [paper.Setting(load, shape, fabric, network, layers)
                for load in loads for shape in shapes for fabric in chosen_fabrics]  # fmt: skip
    _make(out)
    made = [paper.experiment(setting, seed) for setting in settings]  # what is wrong is said before anything runs
    cells: list[Cell] = []
    notes = list(dict.fromkeys([*paper.DIFFERENCES, *(note for each in made for note in notes_of(each))]))
    for setting, experiment in zip(settings, made, strict=True):
        cell = _cell(setting, experiment, entries, workers, out, quiet)
        cells.append(cell)
        if not as_json:
            print_table(*measured_table(cell), cell.title)
            print_table(*change_table(cell))
    said = findings(cells)
    if out is not None:
        _write_overview(cells, said, notes, out)
    if as_json:
        json.dump({"findings": said, "cells": [cell.as_dict() for cell in cells]}, sys.stdout, indent=2)
        print()
    else:
        for line in said:
            click.echo(line)
    if not quiet:
        print_notes(notes)
        if out is not None and not as_json:
            click.echo(f"report: {out / 'index.html'}")


def _listed(text: str) -> list[str]:
    found = [part.strip() for part in text.split(",")]
    if len(set(found)) < len(found) or not all(found):
        raise UserError(f"{text!r} names something twice, or nothing between two commas")
    return found


def _chosen(option: str, text: str | None, known: dict[str, T]) -> list[T]:
    names = _listed(text) if text else list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{option}: there is no {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names]


def _contenders(policies: str | None) -> tuple[Contender, ...]:
    from dally.policies.options import make_policy, split_policies
    from dally.simulator.reproduce import dally as paper

    names = split_policies(policies) if policies else list(paper.POLICIES)
    for name in names:
        make_policy(name)
    return paper.contenders(names)


def _cell(setting: Setting, experiment: PaperExperiment, entries: tuple[Contender, ...], workers: int | None,
          out: Path | None, quiet: bool) -> Cell:  # fmt: skip
    """Run one cell, and write its report while its ledgers are at hand."""
    from dally.cli.inputs import notes_of
    from dally.cli.progress import Progress
    from dally.report.reproduced import Cell, write_cell
    from dally.simulator.reproduce import dally as paper

    if not quiet:
        click.echo(f"{setting.title}, {len(experiment.trace):,} jobs …", err=True)
    with Progress(quiet) as progress:
        runs = paper.compare(experiment, [each.policy for each in entries], workers=workers, report=progress)
    topology = experiment.topology
    cell = Cell.measured(setting, entries, runs, topology)
    if out is not None:
        write_cell(cell, runs, topology, out / f"{setting.name}.html", [*paper.DIFFERENCES, *notes_of(experiment)])
    return cell


def _write_overview(cells: Sequence[Cell], said: Sequence[str], notes: Sequence[str], out: Path) -> None:
    import json

    from dally.report.reproduced import write_overview

    write_overview(cells, said, notes, out / "index.html")
    figures = {"findings": list(said), "cells": [cell.as_dict() for cell in cells]}
    (out / "results.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _make(out: Path | None) -> None:
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: the folder cannot be made: {error.strerror}") from error


def _check(runs: list[Run], wanted: int) -> None:
    if len(runs) < wanted or not all(run.complete for run in runs):
        raise UserError("interrupted before every policy had run")


def _write_report(title: str, experiment: Experiment, runs: list[Run], path: Path, notes: Sequence[str]) -> None:
    from dally.report.html import ReportRun, write_report
    from dally.report.metrics import summarise

    topology = experiment.topology
    parts = [ReportRun(run.policy, summarise(run, topology), run.ledger, topology) for run in runs]
    write_report(parts, path, title=title, baseline=parts[0].name, notes=notes)
