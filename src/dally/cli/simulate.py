"""`dally simulate`: one trace, one cluster, one policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dally.cli.inputs import experiment_options, figures_option, read_scenario
from dally.cli.running import execute


@click.command()
@click.option("--policy", "-p", required=True, metavar="P", help="name or name[option=value,…]; see `dally policies`.")
@figures_option
@experiment_options
def command(policy: str, out: Path | None, as_json: bool, quiet: bool, figures: str, **options: Any) -> None:
    """Replay a trace on a cluster under one policy.

    \b
    dally simulate --trace synth:philly --jobs 5000 --load 0.9 --cluster 4x8x8 --policy srtf
    dally simulate -t jobs.csv -c 30x10x8 -p "fifo[backfill=true]" --preemption-cost 0 --json
    dally simulate -t synth:helios -c 4x8x8 -p las --mtbf 30d --out out
    """
    execute(read_scenario(**options), [policy], out=out, as_json=as_json, quiet=quiet, many=False,
            figures=figures)  # fmt: skip
