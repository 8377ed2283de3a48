"""`dally reproduce dally`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dally.cli.inputs import force_option
from dally.cli.reproduce.folder import Reproduction
from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.report.reproduced import Cell
    from dally.simulator.reproduce.dally import Contender, Setting
    from dally.simulator.reproduce.dally_network import PaperExperiment

T = TypeVar("T")


@click.command()
@click.option("--trace", "-t", "traces", multiple=True, metavar="FILE",
              help="The authors' job list, or another trace; twice for batch and week. Default: jobs are drawn.")
@click.option("--layers", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="The authors' layer tables; default: the catalog's layers at their step times.")
@click.option("--workloads", metavar="W1,W2", help="Of the drawn ones: batch, poisson; default: both.")
@click.option("--clusters", metavar="C1,C2,…", help="Racks x machines x GPUs; default: 4x8x8.")
@click.option("--fabrics", metavar="F1,F2", help="dally, dally-congested; default: both.")
@click.option("--policies", metavar="P1,P2,…", help="Default: the eleven of the comparison.")
@click.option("--full", is_flag=True, help="All three clusters: 2x4x8, 4x8x8, 8x8x8.")
@click.option("--network", default="paper", show_default=True, metavar="N",
              help="paper: the authors' rules, fabric and step times; or any of `dally simulate --network`.")
@click.option("--jobs", type=click.IntRange(min=1), help="Default: 500 (batch), 411 (week); all of a file.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the drawn jobs.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False),
              help="Folder for a report per cell, an overview and results.json.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON (times in seconds).")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def dally(traces: tuple[str, ...], layers: Path | None, workloads: str | None, clusters: str | None,
          fabrics: str | None, policies: str | None, full: bool, network: str, jobs: int | None, seed: int,
          workers: int | None, out: Path | None, force: bool, as_json: bool, quiet: bool) -> None:  # fmt: skip
    """Dally (arXiv 2401.16492): a batch of 500 jobs and a Poisson week, on near and on congested links.

    Compares auto-tuned Dally with FIFO, Tiresias and Gandiva (as its authors had them, and in full), no-wait, fully
    consolidated, manual timers, waiting by value, SRTF with perfect knowledge, and the lower bound.

    \b
    dally reproduce dally --out out
    dally reproduce dally --full --workloads batch --seed 1
    dally reproduce dally -t batch.json -t week.json --layers layers/ --clusters 4x8x8,8x8x8
    dally reproduce dally --jobs 60 --clusters 2x4x8 --fabrics dally --policies "fifo,dally[timers=auto]"
    """
    if clusters and full:
        raise UserError("--full and --clusters both say which clusters; give one of them")
    if traces and workloads:
        raise UserError("--workloads chooses among drawn jobs; with --trace the files are the workloads")
    if layers is not None and network != "paper":
        raise UserError(f"--layers does nothing with --network {network}")

    import json
    import sys

    from dally.cli.printing import print_notes, print_table
    from dally.experiments.measuring import notes_of
    from dally.report.reproduced import change_table, findings, measured_table
    from dally.simulator.reproduce import dally as paper

    kinds = _chosen("--workloads", workloads, {kind.name: kind for kind in paper.KINDS})
    chosen_fabrics = _chosen("--fabrics", fabrics, {name: name for name in paper.FABRICS})
    shapes = _listed(clusters) if clusters else paper.CLUSTERS if full else paper.DEFAULT_CLUSTERS
    entries = _contenders(policies)
    loads = paper.read(traces, jobs) if traces else paper.drawn(kinds, jobs)
    settings = [paper.Setting(load, shape, fabric, network, layers)
                for load in loads for shape in shapes for fabric in chosen_fabrics]  # fmt: skip
    record = Reproduction(out)
    made = [paper.experiment(setting, seed) for setting in settings]  # what is wrong is said before anything runs
    cells: list[Cell] = []
    notes = list(dict.fromkeys([*paper.DIFFERENCES, *(note for each in made for note in notes_of(each))]))
    for setting, experiment in zip(settings, made, strict=True):
        cell = _cell(setting, experiment, entries, workers, record, quiet)
        record.ran(setting.name, experiment, cell.summaries)
        cells.append(cell)
        if not as_json:
            print_table(*measured_table(cell), cell.title)
            print_table(*change_table(cell))
    said = [*record.alarms, *findings(cells)]
    if out is not None:
        _write_overview(cells, said, [*notes, *record.made_by()], record)
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
    record.end()


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
    from dally.policies.options import split_policies
    from dally.simulator.reproduce import dally as paper

    names = split_policies(policies) if policies else list(paper.POLICIES)
    return paper.contenders(names)


def _cell(setting: Setting, experiment: PaperExperiment, entries: tuple[Contender, ...], workers: int | None,
          record: Reproduction, quiet: bool) -> Cell:  # fmt: skip
    """Run one cell, and write its report while its ledgers are at hand."""
    from dally.cli.progress import Progress
    from dally.experiments.measuring import notes_of
    from dally.report.reproduced import Cell, write_cell
    from dally.simulator.reproduce import dally as paper

    if not quiet:
        click.echo(f"{setting.title}, {len(experiment.trace):,} jobs …", err=True)
    with Progress(quiet) as progress:
        runs = paper.compare(experiment, [each.policy for each in entries], workers=workers, report=progress)
    topology = experiment.topology
    cell = Cell.measured(setting, entries, runs, topology)
    if record.out is not None:
        write_cell(cell, runs, topology, record.page(f"{setting.name}.html"),
                   [*paper.DIFFERENCES, *notes_of(experiment), *record.made_by()])  # fmt: skip
    return cell


def _write_overview(cells: Sequence[Cell], said: Sequence[str], notes: Sequence[str],
                    record: Reproduction) -> None:  # fmt: skip
    from dally.experiments.folder import write_json
    from dally.experiments.measuring import TIMING
    from dally.report.reproduced import write_overview

    write_overview(cells, said, notes, record.page("index.html"))
    found = [cell.as_dict() for cell in cells]
    for cell in found:  # what is the same whenever it is run again
        cell["policies"] = [{name: value for name, value in each.items() if name not in TIMING}
                            for each in cell["policies"]]  # fmt: skip
    write_json({"findings": list(said), "cells": found}, record.page("results.json"))
