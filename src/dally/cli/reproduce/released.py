"""`dally reproduce released`: the authors' own program and ours on the same input, job by job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dally.experiments.released.comparing import Compared

MOST_OFF = 0.05  # of the average JCT, where ties are broken by a solver's last digits


@click.group()
def released() -> None:
    """Run the authors' own program and ours on the same jobs, and compare job by job.

    \b
    git clone https://github.com/SymbioticLab/Tiresias
    dally reproduce released tiresias --from Tiresias --python python2.7
    """


def _options(jobs: int) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in (
            click.option("--from", "repository", required=True, type=click.Path(path_type=Path, file_okay=False),
                         help="Where their repository is."),
            click.option("--python", metavar="PROGRAM", help="The Python that runs their program."),
            click.option("--jobs", default=jobs, show_default=True, type=click.IntRange(min=1), help="Jobs to draw."),
            click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Of the drawn jobs."),
            click.option("--only", metavar="P1,P2,…", help="Only these, by the names they have there."),
            click.option("--json", "as_json", is_flag=True, help="Print as JSON."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


@released.command()
@_options(300)
def tiresias(repository: Path, python: str | None, jobs: int, seed: int, only: str | None, as_json: bool) -> None:
    """The released Tiresias simulator: every job must end when it ends there, to the second.

    Their program needs Python 2.7 (--python). The exit code is 1 where a job ends at another time.
    """
    from dally.experiments.released.tiresias import against

    found = _shown(against(repository.resolve(), python, jobs=jobs, seed=seed, schedules=_names(only)), as_json)
    if not all(each.exact for each in found):
        sys.exit(1)


@released.command()
@_options(48)
@click.option("--solver", default="any", show_default=True, metavar="NAME",
              help="cvxpy solver for their side; any: ECOS if it is installed, as they had it.")  # fmt: skip
def gavel(repository: Path, python: str | None, jobs: int, seed: int, only: str | None, as_json: bool,
          solver: str) -> None:  # fmt: skip
    """The released Gavel simulator: FIFO job by job, the others within 5 % of the average JCT.

    Allocations are optima of linear programs; which of several, and who goes first at a tie, hangs on the solver's last
    digits, so single jobs differ where averages do not. Their program needs numpy, scipy and cvxpy.
    """
    from dally.experiments.released.gavel import against

    solvers: list[str] = []

    def rows() -> Iterable[Compared]:
        for each, used in against(repository.resolve(), python, jobs=jobs, seed=seed, policies=_names(only),
                                  solver=solver):  # fmt: skip
            solvers.append(used)
            yield each

    found = _shown(rows(), as_json)
    if not as_json:
        print(f"their solver: {solvers[0]}")
    if not all(each.exact if each.theirs == "fifo_perf" else each.average_error < MOST_OFF for each in found):
        sys.exit(1)


def _names(only: str | None) -> list[str]:
    return [name.strip() for name in only.split(",")] if only else []


def _shown(rows: Iterable[Compared], as_json: bool) -> list[Compared]:
    from dally.cli.printing import print_table
    from dally.core.units import show_time

    found = list(rows)
    if as_json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(each) | {"exact": each.exact} for each in found], indent=2))
        return found
    lines = [[each.theirs, each.ours, f"{each.same:,} of {each.jobs:,}", f"{each.within_a_second:,}",
              show_time(each.their_average), show_time(each.our_average), f"{each.average_error:.2%}",
              show_time(each.their_makespan), show_time(each.our_makespan)] for each in found]  # fmt: skip
    print_table(["theirs", "ours", "same JCT", "within 1 s", "avg JCT theirs", "ours", "off by", "makespan theirs",
                 "ours"], lines)  # fmt: skip
    return found
