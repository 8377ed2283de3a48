"""`dally reproduce tiresias`."""

from __future__ import annotations

from pathlib import Path

import click

from dally.cli.inputs import force_option
from dally.cli.reproduce.folder import Reproduction, check_all_ran


@click.command()
@click.option("--quick", is_flag=True, help="One draw, one load, 400 GPUs instead of 2,000: seconds, not minutes.")
@click.option("--draws", type=click.IntRange(min=1), help="Workloads drawn per cluster and load; default: 3.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the first draw.")
@click.option("--load", "loads", type=click.FloatRange(min=0, min_open=True), multiple=True,
              help="Work asked for over what the cluster can do while jobs come; default: 1 and 2; 2 and 3 on 2,000.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), help="Folder for a report per cluster.")
@force_option
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def tiresias(quick: bool, draws: int | None, seed: int, loads: tuple[float, ...], workers: int | None,
             out: Path | None, force: bool, quiet: bool) -> None:  # fmt: skip
    """Tiresias (NSDI'19): FIFO, SRTF, Gandiva, Tiresias-L and Tiresias-G on 60 and on 2,000 GPUs.

    \b
    dally reproduce tiresias --quick
    dally reproduce tiresias --draws 5 --load 2.5 --out out
    """
    from dally.cli.printing import print_notes, print_table
    from dally.cli.progress import Progress
    from dally.simulator.reproduce import tiresias as paper

    made = Reproduction(out)
    count = draws or (1 if quick else 3)
    for setting in (paper.TESTBED, paper.QUICK) if quick else paper.SETTINGS:
        rows: list[list[str]] = []
        for load in loads or ((setting.loads[-1],) if quick else setting.loads):
            gains: list[list[paper.Gain]] = [[] for _ in setting.published]
            for draw in range(seed, seed + count):
                with Progress(quiet) as progress:
                    experiment, runs = paper.compare(setting, draw, load, workers=workers, report=progress)
                check_all_ran(runs, len(paper.POLICIES))
                figures = made.measured(f"{setting.name}, load {load:g}, draw {draw}", experiment, runs)
                by_name = dict(zip(paper.POLICIES, runs, strict=True))
                for said, found in zip(setting.published, gains, strict=True):
                    found.append(paper.gain(by_name[said.policy], by_name[said.against]))
            # of the highest load's last draw in the end
            title = f"Tiresias' comparison again: {setting.title}, load {load:g}"
            made.report(f"{setting.name}.html", title, experiment, runs, figures, paper.DIFFERENCES)
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
    made.end()
