"""`dally reproduce gavel`."""

from __future__ import annotations

from pathlib import Path

import click

from dally.cli.inputs import force_option
from dally.cli.reproduce.folder import Reproduction, check_all_ran


@click.command()
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
@force_option
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def gavel(quick: bool, jobs: int | None, rates: tuple[float, ...], trace: Path | None, throughputs: Path | None,
          seed: int, workers: int | None, out: Path | None, force: bool, quiet: bool) -> None:  # fmt: skip
    """Gavel (OSDI'20): objectives that know GPU types against blind ones on 36 V100, 36 P100 and 36 K80.

    \b
    dally reproduce gavel --quick
    dally reproduce gavel --rate 1.8 --jobs 1000 --throughputs throughputs.json --out out
    """
    from dally.catalog.throughputs import read_throughputs
    from dally.cli.printing import print_notes, print_table
    from dally.cli.progress import Progress
    from dally.core.units import show_time
    from dally.simulator.reproduce import gavel as paper
    from dally.traces import load_trace

    made = Reproduction(out)
    setting = paper.Setting(jobs or (120 if quick else 240), seed, load_trace(str(trace)) if trace else None,
                            read_throughputs(throughputs) if throughputs else None)  # fmt: skip
    chosen: tuple[float, ...] = rates or ((2.0,) if quick or trace else paper.RATES)
    objectives = (paper.FAIR, paper.FIFO, paper.FTF)
    rows: list[list[str]] = []
    for rate in chosen:
        with Progress(quiet) as progress:
            experiment, runs = paper.against_load(setting, rate, objectives, workers=workers, report=progress)
        check_all_ran(runs, 2 * len(objectives))
        figures = made.measured(f"average JCT at {rate:g} jobs an hour", experiment, runs)
        for i, objective in enumerate(objectives):
            aware, blind = (paper.average_jct(run) for run in runs[2 * i : 2 * i + 2])
            rows.append([paper.TITLES[objective], "as traced" if trace else f"{rate:g}/h", show_time(aware),
                         show_time(blind), paper.UP_TO, f"{blind / aware:.2f} ×"])  # fmt: skip
        title = f"Gavel's comparison again: average JCT at {rate:g} jobs an hour"
        made.report("load.html", title, experiment, runs, figures, paper.DIFFERENCES)
    head = ["objective", "load", "aware", "blind", "published", "measured"]
    print_table(head, rows, f"Average JCT, {len(experiment.trace):,} jobs, the middle half measured")
    with Progress(quiet) as progress:
        experiment, runs = paper.all_at_once(setting, workers=workers, report=progress)
    check_all_ran(runs, 2)
    made.measured("makespan", experiment, runs)
    aware, blind = (paper.makespan(run) for run in runs)
    print_table(head, [[paper.TITLES["makespan"], "all at once", show_time(aware), show_time(blind), paper.UP_TO,
                        f"{blind / aware:.2f} ×"]], "Makespan")  # fmt: skip
    with Progress(quiet) as progress:
        experiment, runs = paper.money(setting, chosen[0], workers=workers, report=progress)
    check_all_ran(runs, len(paper.COST_POLICIES))
    money = made.measured("cost", experiment, runs)
    first = money[0].cost_dollars or 1.0
    print_table(["policy", "GPU time", "of the first", "deadlines missed", "average JCT"],
                [[paper.COST_POLICIES[s.policy], f"${s.cost_dollars or 0:,.0f}",
                  f"{(s.cost_dollars or 0) / first:.2f} ×", f"{s.deadlines_missed} of {s.deadlines}",
                  show_time(s.avg_jct or 0.0)] for s in money],
                "Cost, with SLOs of 1.2, 2 and 10 times the run time")  # fmt: skip
    made.report("cost.html", "Gavel's comparison again: cost", experiment, runs, money, paper.DIFFERENCES)
    with Progress(quiet) as progress:
        experiment, run = paper.hierarchy(setting, workers=workers, report=progress)
    made.measured("hierarchical fairness", experiment, [run])
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
    made.end()
