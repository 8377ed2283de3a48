"""`dally compare`: one trace, one cluster, several policies side by side."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from dally.cli.inputs import experiment_options, figures_option, force_option, read_scenario
from dally.cli.running import execute
from dally.core.errors import UserError


@click.command()
@click.option("--policies", "-p", required=True, metavar="P1,P2,…", help="The first one is the baseline.")
@click.option("--workers", type=click.IntRange(min=1), help="Runs at a time; default: one per core.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N",
              help="Repeat over N seeds from --seed on, paired, with intervals: a small `dally sweep`.")  # fmt: skip
@click.option("--loads", metavar="L1,L2,…", help="Repeat at each of these loads.")
@figures_option
@force_option
@experiment_options
def command(policies: str, workers: int | None, seeds: int | None, loads: str | None, out: Path | None, as_json: bool,
            quiet: bool, figures: str, force: bool, **options: Any) -> None:  # fmt: skip
    """Replay a trace under several policies, side by side; the first is the baseline.

    \b
    dally compare --trace synth:philly --load 0.9 --cluster 4x8x8 --policies fifo,srtf,las --out out
    dally compare -t jobs.csv -c v100=8,p100=16 -p "fifo,fifo[backfill=true],srtf[placement=best-fit]"
    dally compare -t synth:helios --jobs 500 -c 2x4x8 -p fifo,las --seeds 5 --loads 0.7,0.9,1.1 --out out
    """
    from dally.policies.options import split_policies

    names = split_policies(policies)
    if loads is not None and options.get("load") is not None:
        raise UserError("--load and --loads are both given; give one of them")
    scenario = read_scenario(**options)
    if seeds is None and loads is None:
        execute(scenario, names, out=out, as_json=as_json, quiet=quiet, many=True, workers=workers,
                figures=figures, force=force)  # fmt: skip
        return
    if figures != "main":
        raise UserError("--figures all is about one run of each policy; with --seeds or --loads, write a spec of a "
                        "sweep with the figures you want (docs/sweep.md)")  # fmt: skip
    from dally.cli.sweep import run_and_print
    from dally.experiments.sweeps.spec import SweepSpec

    base = scenario.changed()
    base["trace"], base["cluster"] = scenario.trace, scenario.cluster
    if loads is not None:
        base.pop("load", None)
    spec = SweepSpec.of({"name": f"{options['trace'] or 'comparison'}", "scenario": base, "policies": names,
                         "vary": {"load": _loads(loads)} if loads else {}, "seeds": seeds or 1})  # fmt: skip
    if out is not None:
        run_and_print(spec, out, workers=workers, on=None, as_json=as_json, quiet=quiet, force=force)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run_and_print(spec, Path(scratch), workers=workers, on=None, as_json=as_json, quiet=quiet, keep=False)


def _loads(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--loads {text!r}: write loads with commas between them: 0.7,0.9,1.1") from None
