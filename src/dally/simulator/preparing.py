"""From a scenario to an experiment: the trace at its load, on its cluster, every job with GPU type and model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dally.core.collecting import uncollected
from dally.core.errors import UserError
from dally.core.job import DurationMeans
from dally.core.topology import Topology
from dally.network.registry import looks_at_models, without_contention
from dally.simulator.dependencies import linked
from dally.simulator.experiment import Experiment
from dally.simulator.faults import StartRules
from dally.simulator.queue_file import read_queues
from dally.simulator.shaping import shaped_for
from dally.simulator.window import ALL, STREAM, parse_window
from dally.traces.reshape import at_load, resampled, with_past
from dally.traces.trace import Trace

if TYPE_CHECKING:
    from dally.catalog.throughputs import Throughputs
    from dally.simulator.scenario import Scenario


def prepare_scenario(scenario: Scenario) -> Experiment:
    """Everything is read, scaled, drawn and checked here, before anything runs."""
    with uncollected():
        return _prepared(scenario)


def _prepared(scenario: Scenario) -> Experiment:
    topology = _cluster(scenario)
    network = _network(scenario)
    trace = _trace(scenario, topology)
    if looks_at_models(network) or scenario.throughputs == "catalog":
        trace = with_models(trace, Path(scenario.model_mix) if scenario.model_mix else None, scenario.seed)
    elif scenario.model_mix is not None:
        raise UserError(f"--model-mix does nothing here: network {network!r} does not look at models")
    warm = scenario.is_stream if scenario.warm_start is None else scenario.warm_start
    wanted = scenario.window or (STREAM if scenario.is_stream else ALL)
    window = parse_window(wanted, trace) if warm or wanted != ALL else None
    if warm:
        trace = with_past(trace)
    said: list[str] = []
    made = Experiment(
        trace, topology, network, scenario.preemption_cost, scenario.seed, scenario.knowledge,
        scenario.fault_rules(topology, trace.origin, said),
        DurationMeans(scenario.duration_means) if scenario.duration_means else None,
        _traced_cluster(scenario), scenario.slices, scenario.interference, scenario.measurement_noise,
        _throughputs(scenario, trace, topology), window, scenario,
        StartRules(scenario.start_latency, scenario.start_failures, scenario.seed),
        read_queues(scenario.queues) if scenario.queues else (),
    )  # fmt: skip
    notes = [*said, *made.check().notes]
    noted = replace(made, trace=replace(trace, notes=[*trace.notes, *notes]))
    noted.shortest.update(made.shortest)  # the same jobs on the same cluster
    return noted


def _cluster(scenario: Scenario) -> Topology:
    if isinstance(scenario.cluster, Topology):
        if scenario.fabric is not None or scenario.nodes is not None:
            raise UserError("a cluster in memory has its links already: give no fabric and no node list with it")
        return scenario.cluster
    from dally.catalog.clusters import load_cluster

    return load_cluster(scenario.cluster, fabric=scenario.fabric,
                        nodes=Path(scenario.nodes) if scenario.nodes else None)  # fmt: skip


def _traced_cluster(scenario: Scenario) -> Topology | None:
    if scenario.traced_cluster is None:
        return None
    from dally.catalog.clusters import load_cluster

    return load_cluster(scenario.traced_cluster, fabric=scenario.fabric)


def _network(scenario: Scenario) -> str:
    # what was measured is not slowed down by a model unless somebody asks for it
    network = scenario.network or ("ideal" if scenario.throughputs is not None else "analytic")
    return network if scenario.contention else without_contention(network)


def _throughputs(scenario: Scenario, trace: Trace, topology: Topology) -> Throughputs | None:
    if scenario.throughputs is None:
        return None
    if scenario.throughputs == "catalog":
        from dally.simulator.tabled import from_catalog

        return from_catalog(trace.jobs, topology)
    from dally.catalog.throughputs import read_throughputs

    return read_throughputs(scenario.throughputs)


def _trace(scenario: Scenario, topology: Topology) -> Trace:
    """Read or synthesised, drawn anew, cut and brought to its load."""
    from dally.traces import synthesise

    source, load = scenario.trace, scenario.load
    if isinstance(source, str) and source.startswith("synth:"):
        # what durations stand for decides how many GPU-seconds they are: then the load is met below
        own = load if scenario.duration_means is None else None
        trace = synthesise(source.removeprefix("synth:"), jobs=scenario.jobs or 1000, seed=scenario.seed, load=own,
                           capacity=topology.gpus, max_gpus=topology.capacity(None))  # fmt: skip
        return trace if own == load else at_load(_meaning(trace, scenario), load or 1.0, topology.gpus,
                                                 topology.capacity)  # fmt: skip
    trace = read(source) if isinstance(source, str) else source
    if scenario.resample:
        trace = resampled(trace, scenario.jobs or len(trace), scenario.seed)
    elif scenario.jobs is not None and scenario.jobs < len(trace):
        trace = replace(trace, jobs=trace.jobs[: scenario.jobs], truths=trace.truths[: scenario.jobs],
                        notes=[*trace.notes, f"only the first {scenario.jobs:,} of {len(trace):,} jobs"])  # fmt: skip
    trace = _meaning(shaped_for(_with_known_gpu_types(linked(trace), topology), topology), scenario)
    return trace if load is None else at_load(trace, load, topology.gpus, topology.capacity)


def _meaning(trace: Trace, scenario: Scenario) -> Trace:
    """The trace with its durations as the scenario understands them."""
    if scenario.duration_means is None:
        return trace
    means = DurationMeans(scenario.duration_means)
    return replace(trace, truths=[replace(truth, means=means) for truth in trace.truths])


def read(name: str) -> Trace:
    """A trace file, read once for all the scenarios of a process that name it; nobody changes what is kept."""
    from dally.traces import load_trace

    path = Path(name)
    try:
        state = path.stat() if name != "-" and path.is_file() else None
    except (OSError, ValueError):
        state = None
    if state is None:
        return load_trace(name)
    return _read(name, str(path.resolve()), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=2)
def _read(name: str, path: str, changed: int, size: int) -> Trace:
    from dally.traces import load_trace

    return load_trace(name)


def with_models(trace: Trace, mix: Path | None, seed: int) -> Trace:
    """Every job with a model of the catalog; who got one from the mix is said in a note."""
    from dally.network.mix import assign_models, read_mix

    durations = [truth.duration for truth in trace.truths]
    jobs, note = assign_models(trace.jobs, durations, seed, read_mix(mix))
    return replace(trace, jobs=jobs, notes=[*trace.notes, note]) if note else trace


def _with_known_gpu_types(trace: Trace, topology: Topology) -> Trace:
    """The trace's GPU types in the cluster's own words: `v100` and `Tesla V100-SXM2-16GB` are its `V100`."""
    from dally.catalog.clusters import match_gpu_type

    wished = {job.gpu_type for job in trace.jobs if job.gpu_type is not None}
    known = {wish: match_gpu_type(wish, topology) or wish for wish in wished}
    if all(wish == name for wish, name in known.items()):
        return trace
    jobs = [replace(job, gpu_type=known[job.gpu_type]) if job.gpu_type else job for job in trace.jobs]
    return replace(trace, jobs=jobs)
