"""`dally reproduce`: published comparisons run again, the published figure beside the measured one."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def command() -> None:
    """Run a paper's comparison again and print its figures beside ours."""


@command.command()
@click.option("--quick", is_flag=True, help="A tenth of the jobs and one draw: half a minute instead of minutes.")
@click.option("--draws", type=click.IntRange(min=1), help="Workloads drawn per cluster; default: 3.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the first draw.")
@click.option("--load", type=click.FloatRange(min=0, min_open=True), help="Offered load; default: 0.9.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), help="Folder for a report per cluster.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def tiresias(quick: bool, draws: int | None, seed: int, load: float | None, workers: int | None, out: Path | None,
             quiet: bool) -> None:  # fmt: skip
    """Tiresias (NSDI'19): FIFO, SRTF, Tiresias-L and Tiresias-G on 60 and on 2,000 GPUs.

    \b
    dally reproduce tiresias --quick
    dally reproduce tiresias --draws 5 --load 1.1 --out out
    """
    from dally.cli.printing import print_notes, print_table
    from dally.cli.progress import Progress
    from dally.core.errors import UserError
    from dally.simulator.reproduce import tiresias as paper

    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: the folder cannot be made: {error.strerror}") from error
    for setting in paper.SETTINGS:
        jobs = max(60, setting.jobs // 10) if quick else None
        gains: dict[tuple[str, str], list[paper.Gain]] = {}
        count = draws or (1 if quick else 3)
        for draw in range(seed, seed + count):
            with Progress(quiet) as progress:
                experiment, runs = paper.compare(setting, draw, jobs=jobs, load=load, workers=workers,
                                                 report=progress)  # fmt: skip
            if len(runs) < len(paper.POLICIES) or not all(run.complete for run in runs):
                raise UserError("interrupted before every policy had run")
            by_name = dict(zip(paper.POLICIES, runs, strict=True))
            for said in setting.published:
                found = paper.gain(by_name[said.policy], by_name[said.against])
                gains.setdefault((said.policy, said.against), []).append(found)
            if out is not None and draw == seed:
                _write_report(setting, experiment, runs, out / f"{setting.name}.html")
        rows = []
        for said in setting.published:
            found_gains = gains[said.policy, said.against]
            columns = [[g.average for g in found_gains], [g.median for g in found_gains], [g.p95 for g in found_gains]]
            rows.append([paper.TITLES[said.policy], paper.TITLES[said.against], said.text,
                         *(paper.spread(values) for values in columns)])  # fmt: skip
        title = f"{setting.title}; {jobs or setting.jobs:,} jobs, {count} draw{'s' if count > 1 else ''}"
        print_table(["", "against", "published, average", "average JCT", "median", "p95"], rows, title)
    if not quiet:
        print_notes(paper.DIFFERENCES)
        if out is not None:
            click.echo(f"reports: {', '.join(str(out / f'{s.name}.html') for s in paper.SETTINGS)}")


def _write_report(setting: object, experiment: object, runs: object, path: Path) -> None:
    from dally.report.html import ReportRun, write_report
    from dally.report.metrics import summarise
    from dally.simulator.experiment import Experiment
    from dally.simulator.reproduce import tiresias as paper
    from dally.simulator.run import Run

    assert isinstance(setting, paper.Setting) and isinstance(experiment, Experiment) and isinstance(runs, list)
    parts = []
    for run in runs:
        assert isinstance(run, Run)
        parts.append(ReportRun(run.policy, summarise(run, experiment.topology), run.ledger, experiment.topology))
    write_report(parts, path, title=f"Tiresias' comparison again: {setting.title}", baseline=parts[0].name,
                 notes=paper.DIFFERENCES)  # fmt: skip
