"""`dally reproduce gandiva`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.inputs import force_option
from dally.cli.reproduce.folder import Reproduction, check_all_ran

if TYPE_CHECKING:
    from dally.simulator.experiment import Experiment
    from dally.simulator.reproduce.gandiva import Outcome


@click.command()
@click.option("--jobs", default=1500, show_default=True, type=click.IntRange(min=20),
              help="Per draw and mix of models; few jobs are gone before the cluster is full.")
@click.option("--draws", default=2, show_default=True, type=click.IntRange(min=1), help="Workloads drawn per mix.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the first draw.")
@click.option("--load", default=2.0, show_default=True, type=click.FloatRange(min=0, min_open=True),
              help="Work asked for over what the cluster can do while jobs come; above 1 is overload.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), help="Folder for a report per mix.")
@force_option
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def gandiva(jobs: int, draws: int, seed: int, load: float, out: Path | None, force: bool, quiet: bool) -> None:
    """Gandiva (OSDI'18): throughput, early feedback, locality and a hyper-parameter search against exclusive GPUs.

    \b
    dally reproduce gandiva --jobs 800 --draws 1
    dally reproduce gandiva --draws 5 --load 1.5 --out out
    """
    from dally.cli.printing import print_notes, print_table
    from dally.core.units import show_time
    from dally.simulator.reproduce import gandiva as paper

    made = Reproduction(out)
    rows: list[list[str]] = []
    places: list[list[str]] = []
    for mix in paper.MIXES:
        gains: list[list[float]] = [[], [], []]
        apart: dict[str, list[list[float]]] = {paper.STILL: [], paper.GANDIVA: []}
        for draw in range(seed, seed + draws):
            experiment, (exclusive, shared, still) = _gandiva_runs(jobs, draw, load, mix, quiet)
            runs = [outcome.run for outcome in (exclusive, shared, still)]
            figures = made.measured(f"{mix} mix, draw {draw}", experiment, runs)
            gains[0].append(100 * (shared.seen.throughput() / exclusive.seen.throughput() - 1))
            gains[1].append(paper.feedback_gain(shared, exclusive))
            gains[2].append(exclusive.average_jct / shared.average_jct)
            for outcome in (still, shared):
                apart[outcome.policy].append([100 * share for share in paper.locality(outcome)])
        rows.append([f"{mix} mix", "cluster throughput", "+26 %", f"{paper.spread(gains[0], 1)} % more"])
        rows.append(["", "first 100 mini-batches", "4.5 × sooner", f"{paper.spread(gains[1])} × sooner"])
        rows.append(["", "average JCT", "not known to us", f"{paper.spread(gains[2])} × shorter"])
        for policy, found in apart.items():
            quarters = [paper.spread(each, 1) for each in zip(*found, strict=True)]
            places.append([f"{mix} mix", paper.TITLES[policy], *quarters])
        title = f"Gandiva's comparison again: {mix} mix, load {load:g}"
        made.report(f"gandiva-{mix}.html", title, experiment, runs, figures, paper.DIFFERENCES)
    title = f"180 GPUs: 45 servers of 4 {paper.GPU}; {jobs:,} jobs, load {load:g}, draws: {draws}"
    print_table(["", "Gandiva against exclusive GPUs", "published", "measured"], rows, title)
    print_table(["", "", "first quarter", "second", "third", "last"], places,
                "Gangs on more servers than they need, % of those that run, while jobs come")  # fmt: skip
    searches = [paper.search(per_gpu, seed) for per_gpu in paper.PER_GPU]
    print_table(["configurations", "exclusive", "with the same stops", "Gandiva", "gain", "published"],
                [[f"{each.configurations}", show_time(each.exclusive), show_time(each.exclusive_with_stops),
                  show_time(each.gandiva), f"{each.exclusive / each.gandiva:.1f} ×", "up to an order of magnitude"]
                 for each in searches],
                "Hyper-parameter search on 16 GPUs until the best configuration is known")  # fmt: skip
    if not quiet:
        print_notes(paper.DIFFERENCES)
        if out is not None:
            click.echo(f"reports: {', '.join(str(out / f'gandiva-{mix}.html') for mix in paper.MIXES)}")
    made.end()


def _gandiva_runs(jobs: int, seed: int, load: float, mix: str, quiet: bool) -> tuple[Experiment, list[Outcome]]:
    from dally.cli.progress import Progress
    from dally.simulator.reproduce import gandiva as paper

    with Progress(quiet) as progress:
        def say(policy: str) -> Callable[[float, int, int], bool]:
            def report(now: float, ended: int, of: int) -> bool:
                progress(f"{mix}: {paper.TITLES[policy]}", now, ended, of)
                return True

            return report

        reports = {policy: say(policy) for policy in paper.TITLES}
        made, outcomes = paper.compare(jobs, seed, load, mix, progress=reports)
    check_all_ran([outcome.run for outcome in outcomes], len(outcomes))
    return made, outcomes
