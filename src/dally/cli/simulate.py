"""`dally simulate`: one trace, one cluster, one policy; or today's queue of a service under other policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dally.cli.inputs import experiment_options, figures_option, force_option, read_scenario
from dally.cli.running import execute
from dally.core.errors import UserError


@click.command()
@click.option("--policy", "-p", metavar="P", help="name or name[option=value,…]; see `dally policies`.")
@click.option("--snapshot", metavar="FILE|URL",
              help="Not a trace but the queue of a service as it is now (docs/explain.md): its URL, or a file that "
                   "`dally journal snapshot` wrote or its /v1/snapshot gave.")  # fmt: skip
@click.option("--policies", metavar="P1,P2,…", help="With --snapshot: these, beside the one in charge.")
@click.option("--samples", type=click.IntRange(min=1, max=1000), show_default="10",
              help="With --snapshot: possible futures that each policy goes through.")  # fmt: skip
@figures_option
@force_option
@experiment_options
def command(policy: str | None, snapshot: str | None, policies: str | None, samples: int | None, out: Path | None,
            as_json: bool, quiet: bool, figures: str, force: bool, **options: Any) -> None:  # fmt: skip
    """Replay a trace on a cluster under one policy; or say what other policies would do with a service's queue.

    \b
    dally simulate --trace synth:philly --jobs 5000 --load 0.9 --cluster 4x8x8 --policy srtf
    dally simulate -t jobs.csv -c 30x10x8 -p "fifo[backfill=true]" --preemption-cost 0 --json
    dally simulate -t synth:helios -c 4x8x8 -p las --mtbf 30d --out out
    dally simulate --snapshot http://127.0.0.1:7433 --policies fifo,dally
    """
    if snapshot is not None:
        from dally.cli.whatif import go_on

        if out is not None or figures != "main":
            raise UserError(f"--{'out' if out is not None else 'figures'} goes with a trace, not with --snapshot")
        named = [each for each in (policy, policies) if each]
        go_on(snapshot, ",".join(named), samples or 10, as_json=as_json, quiet=quiet, **options)
        return
    for name, value in (("policies", policies), ("samples", samples)):
        if value is not None:
            instead = "; to compare policies on a trace, use `dally compare`" if name == "policies" else ""
            raise UserError(f"--{name} goes with --snapshot{instead}")
    if policy is None:
        raise UserError("no policy is given: write --policy, one of those `dally policies` lists")
    execute(read_scenario(**options), [policy], out=out, as_json=as_json, quiet=quiet, many=False,
            figures=figures, force=force)  # fmt: skip
