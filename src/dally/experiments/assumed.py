"""What a result stands on, said once where it is read first: links, models, durations, what was left out.

Each was either given or is an assumption of the program's; a reader who only sees the table must be able to tell which.
"""

from __future__ import annotations

from pathlib import Path

from dally.core.topology import Topology
from dally.network.registry import looks_at_models
from dally.simulator.experiment import Experiment
from dally.simulator.knowledge import EXACT, LEARNED, LIMITS, NONE, settled
from dally.traces.reshape import BEFORE

TOLD = {
    EXACT: "policies that ask for durations are told them exactly, as no real cluster could",
    NONE: "no policy is told durations",
    LIMITS: "policies that ask for durations are told the time limits users declared",
    LEARNED: "policies that ask for durations are told what was learned from jobs that had ended",
}
_BRIEF = {EXACT: "told exactly, as no real cluster could", NONE: "told to nobody",
          LIMITS: "as users' time limits have them", LEARNED: "learned from jobs that have ended"}  # fmt: skip


def assumed(experiment: Experiment) -> list[str]:
    """A clause each: what the figures rest on, and whether somebody said so."""
    knowledge = settled(experiment.knowledge, experiment.trace.jobs)
    durations = _BRIEF.get(knowledge, f"told with an error ({knowledge})")
    return [_links(experiment), *_models(experiment), f"durations: {durations}", *_left_out(experiment)]


def assumed_text(experiment: Experiment) -> str:
    return f"Rests on: {'; '.join(assumed(experiment))}."


def _links(experiment: Experiment) -> str:
    network, scenario = experiment.network, experiment.scenario
    if network.partition("[")[0] == "ideal":
        return "links: none (network ideal, distance costs nothing)"
    if scenario is None or isinstance(scenario.cluster, Topology):
        return f"links: as given, model {network}"
    if scenario.fabric is not None:
        return f"links: {scenario.fabric} as given, model {network}"
    from dally.catalog.clusters.load import assumed_fabric

    fabric = assumed_fabric(scenario.cluster)
    if fabric is None:
        return f"links: as {Path(scenario.cluster).name} describes them, model {network}"
    return f"links: {fabric} ASSUMED (--fabric says otherwise), model {network}"


def _models(experiment: Experiment) -> list[str]:
    if not looks_at_models(experiment.network):
        return []
    drawn = next((note for note in experiment.trace.notes
                  if "from the model mix" in note or "drawn from the mix" in note), None)  # fmt: skip
    return ["models: as the trace names them" if drawn is None else f"models: ASSUMED, {drawn.replace('; ', ', ')}"]


def _left_out(experiment: Experiment) -> list[str]:
    trace, found = experiment.trace, []
    dropped, changed = sum(trace.dropped.values()), sum(trace.repaired.values())
    jobs = sum(BEFORE not in job.id for job in trace.jobs)
    if dropped:
        found.append(f"left out: {dropped:,} rows of the trace")
    if changed:
        found.append(f"changed: {changed:,} of its rows")
    binds = sum(job.nodes is not None or job.among is not None for job in trace.jobs)
    if binds:
        found.append(f"bound to nodes or partitions: {binds:,} of {jobs:,} jobs")
    return found
