"""`dally sweep`: many scenarios under many policies, resumable, with intervals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.ending import INTERRUPTED, end
from dally.cli.inputs import force_option

if TYPE_CHECKING:
    from dally.experiments.sweeps.spec import SweepSpec


@click.command()
@click.argument("spec", type=click.Path(path_type=Path, dir_okay=False), metavar="SPEC.yaml")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), show_default="SPEC without its ending",
              help="Folder for the cells, results.parquet and report.html.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), help="Cells to run at a time; default: one per core.")
@click.option("--on", metavar="ray[=ADDRESS]", help="Run on a Ray cluster: one started here, or the one at ADDRESS.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def command(spec: Path, out: Path | None, workers: int | None, on: str | None, force: bool, as_json: bool,
            quiet: bool) -> None:  # fmt: skip
    """Run policies over traces, clusters, loads, seeds, knowledge and any other option (docs/sweep.md).

    \b
    dally sweep loads.yaml --out loads
    dally sweep loads.yaml --out loads --on ray=10.0.0.1:6379

    Cells that are finished in the folder are not run again: a sweep that was stopped goes on where it was. A folder
    that holds another sweep, or something else, is refused. A cell that
    fails is kept with its reason and costs the others nothing; the exit code is then 1. A run below the lower bound is
    said, and the exit code is 3.
    """
    from dally.experiments.sweeps.spec import SweepSpec

    run_and_print(SweepSpec.read(spec), out or spec.with_suffix(""), workers=workers, on=on, as_json=as_json,
                  quiet=quiet, force=force)  # fmt: skip


def run_and_print(spec: SweepSpec, out: Path, *, workers: int | None, on: str | None, as_json: bool,
                  quiet: bool, keep: bool = True, force: bool = False) -> None:  # fmt: skip
    """`keep`: the folder is there afterwards, and is worth a word."""
    from dally.cli.printing import console, print_notes, print_table
    from dally.experiments.sweeps.page import write_page
    from dally.experiments.sweeps.running import made_by, run_sweep
    from dally.experiments.sweeps.table import definitions, headlines, table_of

    result = run_sweep(spec, out, workers=workers, on=on, quiet=quiet, force=force)
    notes = [*result.notes, *made_by(spec)]
    write_page(result, out / "report.html", notes)
    if as_json:
        print(result.summary.write_json())
    else:
        print_table(*table_of(result))
        for figure in spec.figures[:1]:
            for line in headlines(result, figure):
                console().print(line, soft_wrap=True, markup=False)
        if keep and not quiet:
            print(f"report: {out / 'report.html'}, every cell: {out / 'results.parquet'}")
    if not quiet:
        print_notes([definitions(result), *result.notes])
    for cell, why in result.failures:
        print(f"dally: {cell}: {why}", file=sys.stderr)
    if result.missing:
        print(f"dally: {result.missing:,} of {len(spec):,} cells have not been run; the same command goes on with them",
              file=sys.stderr)  # fmt: skip
    if result.interrupted:
        sys.exit(INTERRUPTED)
    end((f"{cell}: {alarm}" for cell, alarm in result.alarms), failed=bool(result.failures))
