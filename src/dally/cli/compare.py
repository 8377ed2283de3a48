"""`dally compare`: one trace, one cluster, several policies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dally.cli.inputs import experiment_options, read_scenario
from dally.cli.running import execute


@click.command()
@click.option("--policies", "-p", required=True, metavar="P1,P2,…", help="The first one is the baseline.")
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@experiment_options
def command(policies: str, workers: int | None, out: Path | None, as_json: bool, quiet: bool, **options: Any) -> None:
    """Replay a trace under several policies, side by side; the first is the baseline.

    \b
    dally compare --trace synth:philly --load 0.9 --cluster 4x8x8 --policies fifo,srtf,las --out out
    dally compare -t jobs.csv -c v100=8,p100=16 -p "fifo,fifo[backfill=true],srtf[placement=best-fit]"
    """
    from dally.policies.options import split_policies

    names = split_policies(policies)
    execute(read_scenario(**options), names, out=out, as_json=as_json, quiet=quiet, many=True, workers=workers)
