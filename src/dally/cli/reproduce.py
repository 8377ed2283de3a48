"""`dally reproduce`: published comparisons run again, the published figure beside the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.simulator.experiment import Experiment
    from dally.simulator.run import Run


@click.group()
def command() -> None:
    """Run a paper's comparison again and print its figures beside ours.

    \b
    dally reproduce tiresias --quick
    dally reproduce gavel --quick
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
@click.option("--quick", is_flag=True, help="One load and fewer jobs: a quarter of the time.")
@click.option("--jobs", type=click.IntRange(min=8), help="Jobs to draw; default: 240, quick: 120.")
@click.option("--rate", "rates", type=click.FloatRange(min=0, min_open=True), multiple=True,
              help="Jobs an hour; default: 1, 2 and 3.")
@click.option("--trace", type=click.Path(path_type=Path), help="A trace instead of drawn jobs; it keeps its arrivals.")
@click.option("--throughputs", type=click.Path(path_type=Path), metavar="FILE",
              help="Gavel's throughputs.json; default: speeds from the catalog.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the drawn jobs.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), help="Folder for reports.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def gavel(quick: bool, jobs: int | None, rates: tuple[float, ...], trace: Path | None, throughputs: Path | None,
          seed: int, workers: int | None, out: Path | None, quiet: bool) -> None:  # fmt: skip
    """Gavel (OSDI'20): objectives that know GPU types against blind ones on 36 V100, 36 P100 and 36 K80.

    \b
    dally reproduce gavel --quick
    dally reproduce gavel --rate 1.8 --jobs 1000 --throughputs throughputs.json --out out
    """
    from dally.catalog.throughputs import read_throughputs
    from dally.cli.printing import print_notes, print_table
    from dally.cli.progress import Progress
    from dally.core.units import show_time
    from dally.report.metrics import Bound, summarise
    from dally.simulator.reproduce import gavel as paper
    from dally.traces import load_trace

    _make(out)
    setting = paper.Setting(jobs or (120 if quick else 240), seed, load_trace(str(trace)) if trace else None,
                            read_throughputs(throughputs) if throughputs else None)  # fmt: skip
    chosen: tuple[float, ...] = rates or ((2.0,) if quick or trace else paper.RATES)
    objectives = (paper.FAIR, paper.FIFO, paper.FTF)
    rows: list[list[str]] = []
    for rate in chosen:
        with Progress(quiet) as progress:
            experiment, runs = paper.against_load(setting, rate, objectives, workers=workers, report=progress)
        _check(runs, 2 * len(objectives))
        for i, objective in enumerate(objectives):
            aware, blind = (paper.average_jct(run) for run in runs[2 * i : 2 * i + 2])
            rows.append([paper.TITLES[objective], "as traced" if trace else f"{rate:g}/h", show_time(aware),
                         show_time(blind), paper.UP_TO, f"{blind / aware:.2f} ×"])  # fmt: skip
        if out is not None:
            title = f"Gavel's comparison again: average JCT at {rate:g} jobs an hour"
            _write_report(title, experiment, runs, out / "load.html", paper.DIFFERENCES)
    head = ["objective", "load", "aware", "blind", "published", "measured"]
    print_table(head, rows, f"Average JCT, {len(experiment.trace):,} jobs, the middle half measured")
    with Progress(quiet) as progress:
        experiment, runs = paper.all_at_once(setting, workers=workers, report=progress)
    _check(runs, 2)
    aware, blind = (paper.makespan(run) for run in runs)
    print_table(head, [[paper.TITLES["makespan"], "all at once", show_time(aware), show_time(blind), paper.UP_TO,
                        f"{blind / aware:.2f} ×"]], "Makespan")  # fmt: skip
    with Progress(quiet) as progress:
        experiment, runs = paper.money(setting, chosen[0], workers=workers, report=progress)
    _check(runs, len(paper.COST_POLICIES))
    money = [summarise(run, experiment.topology, Bound(None, None)) for run in runs]
    first = money[0].cost_dollars or 1.0
    print_table(["policy", "GPU time", "of the first", "deadlines missed", "average JCT"],
                [[paper.COST_POLICIES[s.policy], f"${s.cost_dollars or 0:,.0f}",
                  f"{(s.cost_dollars or 0) / first:.2f} ×", f"{s.deadlines_missed} of {s.deadlines}",
                  show_time(s.avg_jct or 0.0)] for s in money],
                "Cost, with SLOs of 1.2, 2 and 10 times the run time")  # fmt: skip
    if out is not None:
        _write_report("Gavel's comparison again: cost", experiment, runs, out / "cost.html", paper.DIFFERENCES)
    with Progress(quiet) as progress:
        experiment, run = paper.hierarchy(setting, workers=workers, report=progress)
    shares = paper.shares_over_time(experiment, run)
    total, until = sum(paper.WEIGHTS.values()), show_time(paper.all_have_work(run))
    print_table(["entity", "weight", "due", *(f"{25 * i}–{25 * i + 25} %" for i in range(len(shares)))],
                [[who, f"{weight:g}", f"{weight / total:.0%}", *(f"{part[who]:.0%}" for part in shares)]
                 for who, weight in paper.WEIGHTS.items()],
                f"Hierarchical fairness: parts of the work in the first {until}, while all have jobs")  # fmt: skip
    if not quiet:
        print_notes(paper.DIFFERENCES)
        if out is not None:
            click.echo(f"reports: {out / 'load.html'}, {out / 'cost.html'}")


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
