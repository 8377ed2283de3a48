"""What `simulate` and `compare` share: the options that make a scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dally.core.errors import UserError
from dally.core.units import seconds

if TYPE_CHECKING:
    from dally.simulator.scenario import Scenario

F = TypeVar("F", bound=Callable[..., Any])


class Time(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = seconds(value)
        if found < 0:
            raise UserError(f"{value!r} is not a time from now on: it is negative")
        return found


figures_option = click.option("--figures", type=click.Choice(["main", "all"]), default="main", show_default=True,
                              help="all: every figure, in a table of its own (docs/metrics.md).")  # fmt: skip


by_option = click.option("--by", multiple=True, type=click.Choice(["user", "tenant", "partition", "size", "hour"]),
                         help="Figures by user, tenant (account, virtual cluster), partition, size of the gang or hour "
                              "of submission as well; may be given several times.")  # fmt: skip
force_option = click.option("--force", is_flag=True, help="Replace what another run left in the folder of --out.")


def experiment_options(command: F) -> F:
    """Trace, cluster, network, costs, faults: everything but the policy. No option has a default of its own: what is
    not given is the scenario's business."""
    options = [
        click.option("--scenario", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                     help="A scenario in YAML or JSON (docs/scenario.md); options below win over it."),
        click.option("--trace", "-t", metavar="T",
                     help="A trace file, `-` for standard input, or synth:NAME (`dally trace synth --help`)."),
        click.option("--cluster", "-c", metavar="C",
                     help="4x8x8 (racks x machines x GPUs), v100=8,p100=16, a preset, a YAML, Tiresias or Slurm file."),
        click.option("--fabric", metavar="PRESET", help="Links of a cluster given by its shape."),
        click.option("--nodes", metavar="FILE", help="Node list that goes with a Slurm topology."),
        click.option("--network", "-n", default=None, show_default="analytic; ideal with --throughputs", metavar="N",
                     help="analytic, ideal, level-penalty[rack=1.2,cluster=2], astra, artist, astra-sim."),
        click.option("--throughputs", metavar="FILE",
                     help="Measured steps per second by GPU and job type (Gavel's throughputs.json), or `catalog`."),
        click.option("--no-contention", "contention", flag_value=False, default=None, type=bool,
                     help="Every job has its links to itself."),
        click.option("--model-mix", metavar="FILE",
                     help="Models for jobs that name none, by GPU demand and duration; default: the built-in mix."),
        click.option("--duration-means", type=click.Choice(["best-placement", "one-gpu", "as-placed"]),
                     help="What the trace's durations stand for; default: what its format says."),
        click.option("--traced-cluster", metavar="C", help="Where the trace was recorded, if not on --cluster."),
        click.option("--preemption-cost", show_default="model", metavar="X",
                     help="0, a time such as 30s, model[storage=5GB/s]: checkpoint bytes over bandwidth, original, "
                          "or gandiva[suspend=100ms]."),
        click.option("--seed", type=click.IntRange(min=0), show_default="0", help="Of all that is drawn by chance."),
        click.option("--jobs", type=click.IntRange(min=1),
                     help="Jobs to synthesise (default 1000) or to draw, or the first so many of a file."),
        click.option("--load", type=click.FloatRange(min=0, min_open=True),
                     help="Offered load against this cluster: arrivals of any trace are scaled to it, the stream's "
                          "past is there at the begin, and the middle of it is measured."),
        click.option("--resample", is_flag=True, default=None,
                     help="Draw the jobs of a file anew, with replacement, by seed."),
        click.option("--window", metavar="A..B",
                     help="Measure the jobs submitted then: 10%..90% (the default with --load), 1d..5d, or all."),
        click.option("--warm-start/--cold-start", default=None,
                     help="Whether earlier submissions of the stream are still running at its begin (default with "
                          "--load), or the cluster is empty."),
        click.option("--bound/--no-bound", default=None,
                     help="Whether the lower bound is computed (default: it is; some seconds for a million jobs)."),
        click.option("--knowledge", show_default="auto", metavar="K",
                     help="What is known of durations: none, limits (as users declare them), learned (from jobs that "
                          "have ended), and for studies noisy=0.7 (log-normal) and exact; auto: limits where the trace "
                          "has any, else none."),
        click.option("--slices", type=click.Choice(["fluid", "quanta"]), show_default="fluid",
                     help="Time slices of policies that share GPUs: as fluid shares, or quantum by quantum."),
        click.option("--interference", show_default="auto", metavar="I",
                     help="Between jobs packed on one GPU: auto (pairs of the table of throughputs, else the catalog), "
                          "catalog, none, or a file of measured pairs."),
        click.option("--measurement-noise", type=click.FloatRange(min=0, max=10, max_open=True),
                     show_default="0.02", help="Of mini-batch times policies measure: sigma of a log-normal factor."),
        click.option("--queues", metavar="FILE",
                     help="YAML of queues with weights and limits, which jobs pass by their tenant (virtual cluster)."),
        click.option("--outages", metavar="FILE", help="CSV machine,down,up, or sacctmgr -P show event."),
        click.option("--mtbf", type=Time(), help="Mean time between failures of one machine, e.g. 30d."),
        click.option("--mttr", type=Time(), show_default="4h", help="Mean time to repair one."),
        click.option("--job-mtbf", type=Time(), help="Mean running time between crashes of one job."),
        click.option("--retries", type=click.IntRange(min=0), show_default="3",
                     help="Crashes a job survives before it fails."),
        click.option("--start-latency", type=Time(), show_default="0s",
                     help="Mean time until a job that is told to start is heard of."),
        click.option("--start-failures", type=click.FloatRange(min=0, max=1, max_open=True), show_default="0",
                     help="Share of starts that are refused; the job waits again."),
        click.option("--checkpoint-interval", type=Time(), show_default="30m",
                     help="A fault takes the work since the last one; 0: none."),
        click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False),
                     help="Folder for summary.json, jobs.csv, the journal, report.html and how it was made."),
        click.option("--json", "as_json", is_flag=True, help="Print figures as JSON (times in seconds)."),
        click.option("--quiet", "-q", is_flag=True, help="No progress, no notes."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def read_scenario(scenario: Path | None, **options: Any) -> Scenario:
    """The scenario that the options, and the file they may name, describe."""
    from dally.simulator.threads import import_numpy

    import_numpy()
    from dally.simulator.scenario import Scenario

    if options.get("trace") == "-":  # read once and kept: what came through a pipe does not come again
        from dally.traces import load_trace

        options["trace"] = load_trace("-")
    if scenario is not None:
        return Scenario.read(scenario, **options)
    for needed in ("trace", "cluster"):
        if options.get(needed) is None:
            raise UserError(f"no {needed} is given: write --{needed}, or --scenario with a file that names it")
    return Scenario.of(options)
