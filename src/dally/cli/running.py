"""Run a scenario under its policies, print the table or JSON, and write the folder of results."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dally.cli.ending import INTERRUPTED, end
from dally.cli.printing import print_notes, print_summaries
from dally.cli.printing import print_table as print_figures
from dally.cli.progress import Progress

if TYPE_CHECKING:
    from dally.experiments.output import Output
    from dally.experiments.results import Comparison, Result
    from dally.report.by import Part
    from dally.simulator.scenario import Scenario


def execute(scenario: Scenario, policies: list[str], *, out: Path | None, as_json: bool, quiet: bool, many: bool,
            workers: int | None = None, figures: str = "main", force: bool = False,
            by: tuple[str, ...] = ()) -> None:  # fmt: skip
    """The trip: run, sum up, print, write. Interrupted runs are summed up as far as they got, and the exit code is 130;
    a policy that fails costs the others nothing, and the exit code is 1."""
    from dally.experiments.results import run_policies

    with _folder(out, scenario, policies, many=many, force=force) as output:
        part = None if output is None else output.part
        with Progress(quiet) as progress:
            made = run_policies(scenario, policies, out=part, many=many, workers=workers, report=progress,
                                resumable=True)  # fmt: skip
        if made.found and not quiet:
            print(f"{len(made.found)} of {len(policies)} policies were finished by an earlier run of the same that was "
                  f"interrupted, and are not run again: {', '.join(made.found)}", file=sys.stderr)  # fmt: skip
        if not made.results and len(made.failures) == 1:
            raise made.failures[0].error
        if not made.results and made.interrupted:
            raise KeyboardInterrupt
        if output is not None:
            from dally.experiments.folder import write_folder

            write_folder(made.experiment, made.results, output.part, many=many, failures=made.failures,
                         policies=policies)  # fmt: skip
            if not made.interrupted:
                output.swap_in()
        where = None if output is None else out if not made.interrupted else output.part
        _print(made, where, as_json=as_json, quiet=quiet, many=many, figures=figures, by=by)
    if made.interrupted:
        _say_interrupted(made, policies, where, quiet)
    end([each.measured.summary.alarm for each in made.results], failed=bool(made.failures))


def _folder(out: Path | None, scenario: Scenario, policies: list[str], *, many: bool,
            force: bool) -> AbstractContextManager[Output | None]:  # fmt: skip
    """Most small runs are only looked at, and need nothing of what writes folders."""
    if out is None:
        return nullcontext()
    from dally.experiments.folder import result_folder

    return result_folder(out, scenario, policies, many=many, force=force)


def _print(made: Comparison, where: Path | None, *, as_json: bool, quiet: bool, many: bool, figures: str,
           by: tuple[str, ...]) -> None:  # fmt: skip
    from dally.experiments.assumed import assumed_text

    parts: dict[str, list[list[Part]]] = {}
    if by:
        from dally.report.by import parts_by

        parts = {key: [parts_by(key, each.measured.run) for each in made.results] for key in dict.fromkeys(by)}
    found = [each.figures for each in made.results]
    if by:
        found = [{**each, "by": {key: [part.as_dict() for part in parts[key][row]] for key in parts}}
                 for row, each in enumerate(found)]  # fmt: skip
    if as_json:
        json.dump(found if many else found[0], sys.stdout, indent=2)
        print()
    elif made.results:
        print_summaries(assumed_text(made.experiment), [each.measured.summary for each in made.results])
        if figures == "all":
            from dally.report.more import figure_rows

            print_figures(*figure_rows([each.measured.summary for each in made.results]))
        for key, of_each in parts.items():
            _print_parts(key, [each.policy for each in made.results], of_each)
    if not quiet:
        print_notes(made.notes)
        bound = max((each.measured.bound_cpu_seconds for each in made.results), default=0.0)
        if bound >= 1.0:
            print_notes([f"the lower bound took {bound:.1f} s of processor time; --no-bound does without"])
        if where is not None and not as_json and made.results:
            print(f"report: {where / 'report.html'}")
    for failure in made.failures:
        print(f"dally: {failure.error}", file=sys.stderr)


def _print_parts(key: str, policies: list[str], parts: list[list[Part]]) -> None:
    """One line per user (tenant, …), average JCT and wait under each policy beside each other."""
    from dally.report.wording import time_text

    found = [{part.name: part for part in each} for each in parts]
    head = [key, "jobs", *(f"{policy}: {what}" for policy in policies for what in ("avg JCT", "avg wait", "GPU-hours"))]
    rows = []
    for name in dict.fromkeys(part.name for each in parts for part in each):
        row = [name, f"{max(each[name].jobs for each in found if name in each):,}"]
        for each in found:
            part = each.get(name)
            row += ["–"] * 3 if part is None else [time_text(part.avg_jct), time_text(part.avg_queueing),
                                                   f"{part.gpu_hours:,.1f}"]  # fmt: skip
        rows.append(row)
    print_figures(head, rows, f"by {key}")


def _say_interrupted(made: Comparison, policies: list[str], where: Path | None, quiet: bool) -> NoReturn:
    """Which figures are partial, what is kept, and how to go on."""
    partial = [each for each in made.results if not each.measured.run.complete]
    done = len(made.results) - len(partial)
    said = [f"interrupted: {done} of {len(policies)} policies finished"]
    said += [f"{each.policy} is partial, {_ended(each):,} of {len(each.experiment.trace):,} jobs had ended"
             for each in partial]  # fmt: skip
    kept = ""
    if where is not None:
        kept = f"; what there is is in {where}" + (", and the same command goes on from there" if done else "")
    print(f"dally: {'; '.join(said)}{kept}", file=sys.stderr)
    sys.exit(INTERRUPTED)


def _ended(result: Result) -> int:
    return sum(row.end is not None for row in result.measured.run.ledger.rows)
