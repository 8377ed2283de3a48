"""Run a scenario under its policies, print the table or JSON, and write the folder of results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dally.cli.ending import end
from dally.cli.printing import console, print_notes
from dally.cli.printing import print_table as print_figures
from dally.cli.progress import Progress
from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.simulator.scenario import Scenario


def execute(scenario: Scenario, policies: list[str], *, out: Path | None, as_json: bool, quiet: bool, many: bool,
            workers: int | None = None, figures: str = "main") -> None:  # fmt: skip
    """The trip: run, sum up, print, write. Interrupted runs are summed up as far as they got; a policy that fails
    costs the others nothing, and the exit code is 1."""
    from rich.text import Text

    from dally.experiments.assumed import assumed_text
    from dally.experiments.folder import write_folder
    from dally.experiments.results import run_policies
    from dally.report.more import figure_rows
    from dally.report.table import print_table

    with Progress(quiet) as progress:
        made = run_policies(scenario, policies, out=out, many=many, workers=workers, report=progress)
    if not made.results and len(made.failures) == 1:
        raise made.failures[0].error
    if not made.results and not made.failures:
        raise UserError("interrupted before any policy had run")
    if out is not None:
        write_folder(made.experiment, made.results, out, many=many, failures=made.failures, policies=policies)
    found = [each.figures for each in made.results]
    if as_json:
        json.dump(found if many else found[0], sys.stdout, indent=2)
        print()
    elif made.results:
        console().print(Text(assumed_text(made.experiment), style="bold"))
        print_table([each.measured.summary for each in made.results], console=console())
        if figures == "all":
            print_figures(*figure_rows([each.measured.summary for each in made.results]))
    if not quiet:
        print_notes(made.notes)
        if out is not None and not as_json and made.results:
            print(f"report: {out / 'report.html'}")
    for failure in made.failures:
        print(f"dally: {failure.error}", file=sys.stderr)
    end([each.measured.summary.alarm for each in made.results], failed=bool(made.failures))
