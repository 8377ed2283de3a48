"""`dally sensitivity`: how a comparison depends on the models of jobs and on the fabric."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dally.cli.ending import end
from dally.cli.inputs import experiment_options, read_scenario

if TYPE_CHECKING:
    from dally.report.metrics import Summary


@click.command()
@click.option("--policies", "-p", required=True, metavar="P1,P2,…", help="The first one is the baseline.")
@click.option("--models", metavar="M1,M2,…", help="Models to give to jobs that name none, one at a time; none: do not.")
@click.option("--fabrics", metavar="F1,F2,…", help="Fabrics to try, one at a time; none: do not.")
@click.option("--workers", type=click.IntRange(min=1), help="Runs at a time; default: one per core.")
@experiment_options
def command(policies: str, models: str | None, fabrics: str | None, workers: int | None, out: Path | None,
            as_json: bool, quiet: bool, **options: Any) -> None:  # fmt: skip
    """How a comparison depends on what is assumed: which models jobs train, and on which fabric.

    \b
    dally sensitivity --trace synth:philly --jobs 500 --load 1.0 --cluster 2x4x8 --policies fifo,las,srtf,dally

    Public traces name no models, so a mix is assumed; it decides how much jobs communicate, and with the fabric what
    distance costs. One thing is changed at a time, and everything is run again.
    """
    from dally.cli.printing import console, print_table
    from dally.core.errors import UserError
    from dally.experiments.sensitivity import FABRICS, MODELS, Setting, conclusion, settings
    from dally.policies.options import split_policies
    from dally.report.wording import share_text, time_text

    if out is not None:
        raise UserError("--out: a sensitivity is a table, not a folder of results; write it down with --json")
    names = split_policies(policies)

    def progress(found: Setting) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"done: {found.what} {found.value}", file=sys.stderr)

    found = settings(read_scenario(**options), names, models=_names(models, MODELS), fabrics=_names(fabrics, FABRICS),
                     workers=workers, report=progress)  # fmt: skip
    if as_json:
        import json

        print(json.dumps([{"what": each.what, "value": each.value, "first": each.first(), "failures": each.failures,
                           "summaries": [summary.as_dict() for summary in each.summaries]} for each in found],
                         indent=2))  # fmt: skip
    else:
        told = {summary.policy: summary.told for each in found for summary in each.summaries}
        head = ["changed", "to", *(f"{name}\n(told {told[name]})" for name in told), "comm share", "first"]
        rows = []
        for each in found:
            by_name = {summary.policy: summary for summary in each.summaries}
            first = each.first()
            rows.append([each.what, each.value, *(_cell(by_name.get(name), each.summaries, time_text) for name in told),
                         share_text(each.summaries[0].comm_share) if each.summaries else "–",
                         "; ".join(f"{what}: {who}" if len(first) > 1 else who for what, who in first.items())])
        print_table(head, rows, "Average JCT, and as a multiple of the first policy's")
        for line in conclusion(found):
            console().print(line, markup=False, soft_wrap=True)
    failures = [f"{each.what} {each.value}: {failure}" for each in found for failure in each.failures]
    for failure in failures:
        print(f"dally: {failure}", file=sys.stderr)
    end((f"{each.what} {each.value}: {summary.alarm}" for each in found for summary in each.summaries
         if summary.alarm), failed=bool(failures))  # fmt: skip


def _names(text: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return default
    return () if text == "none" else tuple(name.strip() for name in text.split(","))


def _cell(mine: Summary | None, summaries: tuple[Summary, ...], text: Any) -> str:
    if mine is None or mine.avg_jct is None:
        return "–"
    base = summaries[0].avg_jct
    return f"{text(mine.avg_jct)}  {mine.avg_jct / base:.2f}×" if base else str(text(mine.avg_jct))
