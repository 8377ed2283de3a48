"""What `simulate` and `compare` share: the options that make an experiment, and the loading behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dally.core.errors import UserError
from dally.core.job import DurationMeans
from dally.core.units import seconds

if TYPE_CHECKING:
    from dally.core.topology import Topology
    from dally.simulator.experiment import Experiment
    from dally.traces import Trace

F = TypeVar("F", bound=Callable[..., Any])


class Time(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = seconds(value)
        if found < 0:
            raise UserError(f"{value!r} is not a time from now on: it is negative")
        return found


def experiment_options(command: F) -> F:
    """Trace, cluster, network, costs, faults: everything but the policy."""
    options = [
        click.option("--trace", "-t", required=True, metavar="T",
                     help="A trace file, `-` for standard input, or synth:NAME (`dally trace synth --help`)."),
        click.option("--cluster", "-c", required=True, metavar="C",
                     help="4x8x8 (racks x machines x GPUs), v100=8,p100=16, a preset, a YAML, Tiresias or Slurm file."),
        click.option("--fabric", metavar="PRESET", help="Links of a cluster given by its shape."),
        click.option("--nodes", type=click.Path(path_type=Path), help="Node list that goes with a Slurm topology."),
        click.option("--network", "-n", default=None, show_default="analytic; ideal with --throughputs", metavar="N",
                     help="analytic, ideal, level-penalty[rack=1.2,cluster=2], astra, artist, astra-sim."),
        click.option("--throughputs", type=click.Path(path_type=Path), metavar="FILE",
                     help="Measured steps per second by GPU and job type (Gavel's throughputs.json), or `catalog`."),
        click.option("--no-contention", is_flag=True, help="Every job has its links to itself."),
        click.option("--model-mix", type=click.Path(path_type=Path), metavar="FILE",
                     help="Models for jobs that name none, by GPU demand and duration; default: the built-in mix."),
        click.option("--duration-means", type=click.Choice(["best-placement", "one-gpu", "as-placed"]),
                     help="What the trace's durations stand for; default: what its format says."),
        click.option("--traced-cluster", metavar="C", help="Where the trace was recorded, if not on --cluster."),
        click.option("--preemption-cost", default="model", show_default=True, metavar="X",
                     help="0, a time such as 30s, model[storage=5GB/s]: checkpoint bytes over bandwidth, original, "
                          "or gandiva[suspend=100ms]."),
        click.option("--seed", default=0, show_default=True, help="Of synthesis, faults and noise."),
        click.option("--jobs", type=click.IntRange(min=1),
                     help="Jobs to synthesise (default 1000), or the first so many of a file."),
        click.option("--load", type=click.FloatRange(min=0, min_open=True),
                     help="Offered load of a synthesised trace against this cluster."),
        click.option("--knowledge", default="declared", show_default=True, metavar="K",
                     help="What jobs say of their duration: declared (exactly), noisy=0.7 (log-normal), none."),
        click.option("--slices", type=click.Choice(["fluid", "quanta"]), default="fluid", show_default=True,
                     help="Time slices of policies that share GPUs: as fluid shares, or quantum by quantum."),
        click.option("--interference", default="auto", show_default=True, metavar="I",
                     help="Between jobs packed on one GPU: auto (pairs of the table of throughputs, else the catalog), "
                          "catalog, none, or a file of measured pairs."),
        click.option("--measurement-noise", type=click.FloatRange(min=0, max=10, max_open=True), default=0.02,
                     show_default=True, help="Of mini-batch times policies measure: sigma of a log-normal factor."),
        click.option("--outages", type=click.Path(path_type=Path), help="CSV machine,down,up of machine failures."),
        click.option("--mtbf", type=Time(), help="Mean time between failures of one machine, e.g. 30d."),
        click.option("--mttr", type=Time(), default="4h", show_default=True, help="Mean time to repair one."),
        click.option("--job-mtbf", type=Time(), help="Mean running time between crashes of one job."),
        click.option("--retries", default=3, show_default=True, help="Crashes a job survives before it fails."),
        click.option("--checkpoint-interval", type=Time(), default="30m", show_default=True,
                     help="A fault takes the work since the last one; 0: none."),
        click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False),
                     help="Folder for summary.json, jobs.csv, the journal and report.html."),
        click.option("--json", "as_json", is_flag=True, help="Print figures as JSON (times in seconds)."),
        click.option("--quiet", "-q", is_flag=True, help="No progress, no notes."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def build_experiment(*, trace: str, cluster: str, fabric: str | None, nodes: Path | None, network: str | None,
                     throughputs: Path | None, no_contention: bool, model_mix: Path | None, duration_means: str | None,
                     traced_cluster: str | None,
                     preemption_cost: str, seed: int, jobs: int | None, load: float | None, knowledge: str,
                     outages: Path | None, mtbf: float | None, mttr: float, job_mtbf: float | None, retries: int,
                     checkpoint_interval: float, slices: str = "fluid", interference: str = "auto",
                     measurement_noise: float = 0.02) -> Experiment:  # fmt: skip
    """Load what the options name and check that it fits together, before anything runs."""
    from dally.catalog.clusters import load_cluster
    from dally.catalog.throughputs import read_throughputs
    from dally.simulator.experiment import Experiment, FaultRules
    from dally.simulator.faults import read_outages
    from dally.simulator.tabled import from_catalog

    topology = load_cluster(cluster, fabric=fabric, nodes=nodes)
    tabled = throughputs is not None
    if network is None:  # what was measured is not slowed down by a model unless somebody asks for it
        network = "ideal" if tabled else "analytic"
    if outages is not None and mtbf is not None:
        raise UserError("--outages and --mtbf both say when machines fail; give one of them")
    if mtbf == 0 or job_mtbf == 0 or mttr == 0:
        raise UserError("--mtbf, --mttr and --job-mtbf are mean times and must be above 0")
    rules = FaultRules(read_outages(outages, topology) if outages else {}, mtbf, mttr, job_mtbf, retries,
                       checkpoint_interval)  # fmt: skip
    found = with_known_gpu_types(read_or_synthesise(trace, topology, jobs, load, seed), topology)
    if no_contention:
        network = without_contention(network)
    if network.partition("[")[0] not in ("ideal", "level-penalty") or str(throughputs) == "catalog":
        found = with_models(found, model_mix, seed)
    elif model_mix is not None:
        raise UserError(f"--model-mix does nothing here: network {network!r} does not look at models")
    table = None
    if throughputs is not None:
        table = from_catalog(found.jobs, topology) if str(throughputs) == "catalog" else read_throughputs(throughputs)
    means = DurationMeans(duration_means) if duration_means else None
    traced_on = load_cluster(traced_cluster, fabric=fabric) if traced_cluster else None
    experiment = Experiment(found, topology, network, preemption_cost, seed, knowledge, rules, means, traced_on,
                            slices, interference, measurement_noise, table)  # fmt: skip
    found.notes.extend(experiment.check().notes)
    return experiment


def read_or_synthesise(text: str, topology: Topology, jobs: int | None, load: float | None, seed: int) -> Trace:
    from dally.traces import load_trace, synthesise

    if text.startswith("synth:"):
        return synthesise(text.removeprefix("synth:"), jobs=jobs or 1000, seed=seed, load=load,
                          capacity=topology.gpus, max_gpus=topology.capacity(None))  # fmt: skip
    if load is not None:
        raise UserError("--load is for synthesised traces; a trace from a file arrives as it arrived")
    trace = load_trace(text)
    if jobs is not None and jobs < len(trace):
        trace = replace(trace, jobs=trace.jobs[:jobs], truths=trace.truths[:jobs],
                        notes=[*trace.notes, f"only the first {jobs:,} of {len(trace):,} jobs"])  # fmt: skip
    return trace


def without_contention(network: str) -> str:
    """The same network model with `contention=off` among its options."""
    name, _, inside = network.strip().partition("[")
    if name != "analytic":
        raise UserError(f"--no-contention does nothing here: network {network!r} has none")
    options = [part for part in inside.removesuffix("]").split(",") if part]
    return f"analytic[{','.join([*options, 'contention=off'])}]"


def with_models(trace: Trace, mix: Path | None, seed: int) -> Trace:
    """Every job with a model of the catalog; who got one from the mix is said in a note."""
    from dally.network.mix import assign_models, read_mix

    durations = [truth.duration for truth in trace.truths]
    jobs, note = assign_models(trace.jobs, durations, seed, read_mix(mix))
    return replace(trace, jobs=jobs, notes=[*trace.notes, note] if note else trace.notes)


def with_known_gpu_types(trace: Trace, topology: Topology) -> Trace:
    """The trace's GPU types in the cluster's own words: `v100` and `Tesla V100-SXM2-16GB` are its `V100`."""
    from dally.catalog.clusters import match_gpu_type

    wished = {job.gpu_type for job in trace.jobs if job.gpu_type is not None}
    known = {wish: match_gpu_type(wish, topology) or wish for wish in wished}
    if all(wish == name for wish, name in known.items()):
        return trace
    jobs = [replace(job, gpu_type=known[job.gpu_type]) if job.gpu_type else job for job in trace.jobs]
    return replace(trace, jobs=jobs)


def notes_of(experiment: Experiment) -> list[str]:
    """What a reader of the results should know about the input."""
    trace = experiment.trace
    notes = list(trace.notes)
    notes += [f"{count:,} rows left out: {why}" for why, count in trace.dropped.most_common()]
    notes += [f"{count:,} rows changed: {why}" for why, count in trace.repaired.most_common()]
    too_large = sum(job.gpus > experiment.topology.capacity(job.gpu_type) for job in trace.jobs)
    if too_large:
        notes.append(f"{too_large:,} jobs ask for more GPUs of one type than the cluster has and are turned away")
    told = {"declared": "policies that ask for durations are told them exactly", "none": "no policy is told durations"}
    knowledge = experiment.knowledge
    notes.append(f"{told.get(knowledge, 'the durations policies are told are off')} (--knowledge {knowledge})")
    return notes
