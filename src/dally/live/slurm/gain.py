"""What another policy would have made of the jobs that a Slurm ran: the same jobs, simulated on the same machines.

Kept honest by leaving out what nobody knows. Jobs run as long as they did, wherever they are put: what a better
placement would have saved them is not counted, only how many would have been inside one rack. Nobody is preempted. The
policy is not told how long jobs take, but what their time limits say. Jobs that ran before the watch began hold their
GPUs until they end, and are compared no more than those that have not ended.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from dally.core.job import Job, Truth
from dally.core.placement import Placement
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.live.slurm.ordering import node_of
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import Constant
from dally.simulator.knowledge import tell
from dally.simulator.run import simulate
from dally.simulator.workload import prepare
from dally.traces.trace import Trace

_AT_ONCE = 1.0  # seconds Slurm takes to start a job on free GPUs: its times are whole seconds


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job of somebody's, as Slurm ran it. Times are unix seconds."""

    id: str
    user: str
    gpus: int
    submitted: float
    started: float
    ended: float | None = None  # None: it runs
    time_limit: float | None = None
    nodes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Figures:
    """Means are in seconds; `wide`: jobs on several machines, `apart`: those of them that no rack held."""

    wait: float
    wait_p95: float
    jct: float
    wide: int
    apart: int


@dataclass(frozen=True, slots=True)
class Gain:
    policy: str
    jobs: int  # compared
    running: int  # not compared: they have not ended
    before: int  # not compared: they ran before the watch began
    slurm: Figures
    other: Figures

    def lines(self) -> list[str]:
        if not self.jobs:
            return [f"no job has come and ended yet while we watched ({self.running} run, {self.before} ran before)"]
        rows = (("mean wait", "wait", "s"), ("p95 wait", "wait_p95", "s"), ("mean JCT", "jct", "s"),
                ("jobs on several machines", "wide", ""), ("… not in one rack", "apart", ""))  # fmt: skip
        found = [f"{self.jobs} jobs compared; not compared: {self.running} that run, {self.before} from before",
                 f"{'':26}{'slurm':>12}{self.policy:>22}"]  # fmt: skip
        for title, name, unit in rows:
            one, other = getattr(self.slurm, name), getattr(self.other, name)
            found.append(f"{title:26}{one:>10.0f} {unit:1}{other:>20.0f} {unit:1}")
        return [*found, "simulated, with run times as they were: what better places would have saved is not counted"]


def gain(seen: Iterable[SeenJob], topology: Topology, policy: str, since: float, now: float) -> Gain:
    """Of those who were submitted and ended between the two moments."""
    numbers = {node_of(name)[0]: index for index, name in enumerate(topology.machine_names)}
    known = [job for job in seen if job.gpus and job.nodes and all(node in numbers for node in job.nodes)]
    jobs: list[Job] = []
    truths: list[Truth] = []
    compared: dict[str, SeenJob] = {}
    for job in sorted(known, key=lambda job: (max(job.submitted, since), job.submitted, job.id)):
        begin, end = max(job.started, since), now if job.ended is None else job.ended
        if end <= since or job.started > now:
            continue
        jobs.append(Job(job.id, max(0.0, job.submitted - since), job.gpus, user=job.user, preemptible=False,
                        declared_duration=job.time_limit,
                        nodes=len(job.nodes) if job.gpus % len(job.nodes) == 0 else None))  # fmt: skip
        truths.append(Truth(max(1.0, end - begin)))
        if job.submitted >= since and job.ended is not None:
            compared[job.id] = job
    running = sum(job.ended is None for job in known)
    before = sum(job.ended is not None and job.submitted < since < job.ended for job in known)
    name = make_policy(policy).name
    if not compared:
        nothing = Figures(0.0, 0.0, 0.0, 0, 0)
        return Gain(name, 0, running, before, nothing, nothing)
    return Gain(name, len(compared), running, before, _really(compared.values(), topology, numbers),
                _simulated(Trace("watched", "slurm", jobs, truths), topology, policy, compared))  # fmt: skip


def _really(jobs: Iterable[SeenJob], topology: Topology, numbers: Mapping[str, int]) -> Figures:
    jobs = list(jobs)
    places = [Placement.of((numbers[node], 1) for node in job.nodes) for job in jobs]
    return _figures([max(0.0, job.started - job.submitted - _AT_ONCE) for job in jobs],
                    [(job.ended or 0.0) - job.submitted for job in jobs], places, topology)  # fmt: skip


def _simulated(trace: Trace, topology: Topology, policy: str, compared: Mapping[str, SeenJob]) -> Figures:
    network = make_network("ideal", topology)
    workload = tell(prepare(trace, topology, network), "none")
    run = simulate(workload, topology, make_policy(policy), network, Constant(0.0))
    rows = [row for row in run.ledger.rows if row.job_id in compared and row.end is not None]
    where = {run.ledger.rows[segment.row].job_id: segment.placement for segment in run.ledger.segments}
    return _figures([row.queueing or 0.0 for row in rows], [row.jct or 0.0 for row in rows],
                    [where[row.job_id] for row in rows if row.job_id in where], topology)  # fmt: skip


def _figures(waits: list[float], jcts: list[float], places: list[Placement], topology: Topology) -> Figures:
    wide = [place for place in places if len(place.slices) > 1]
    apart = [place for place in wide if len({topology.machines[m].path[:-1] for m, _ in place.slices}) > 1]
    ordered = sorted(waits)
    return Figures(statistics.fmean(waits), ordered[int(0.95 * (len(ordered) - 1))], statistics.fmean(jcts), len(wide),
                   len(apart))  # fmt: skip
