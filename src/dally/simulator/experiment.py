"""An experiment: a workload, a cluster and the rules of the world, to be run under one or several policies."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dally import __version__
from dally.catalog.throughputs import Throughputs
from dally.core.errors import UserError
from dally.core.job import DurationMeans
from dally.core.journal import Sink
from dally.core.topology import Topology
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import make_cost
from dally.simulator.faults import Faults, Outages, StartRules
from dally.simulator.interference import DEFAULT, make_interference
from dally.store.journal_file import JournalFile
from dally.simulator.knowledge import Profiles, make_estimates, tell
from dally.simulator.meter import NOISE, NoisyMeter
from dally.simulator.run import Progress, Run, simulate
from dally.simulator.tabled import Tabled
from dally.simulator.workload import TracedCluster, Workload, prepare
from dally.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class FaultRules:
    """What may break; turned into `Faults` anew for each run, so that every policy meets the same ones."""

    outages: Outages = field(default_factory=dict)
    mtbf: float | None = None
    mttr: float = 4 * 3600.0
    job_mtbf: float | None = None
    retries: int = 3
    checkpoint_interval: float = 1800.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything but the policy. Plain data, so that a worker process can be handed one."""

    trace: Trace
    topology: Topology
    network: str = "ideal"
    preemption_cost: str = "model"
    seed: int = 0
    knowledge: str = "declared"  # what jobs say of themselves: declared, none, noisy=σ
    faults: FaultRules = FaultRules()
    means: DurationMeans | None = None  # what durations stand for, where the trace's own word is overridden
    traced_on: Topology | None = None  # the cluster the durations were measured on, if it is another
    slices: str = "fluid"  # how time slices are run: as fluid shares, or quantum by quantum ("quanta")
    interference: str = DEFAULT  # between packed jobs: auto, catalog, none, or a file of measured pairs
    measurement_noise: float = NOISE  # of a mini-batch's time as policies read it: sigma of a log-normal factor
    throughputs: Throughputs | None = None  # measured speeds per GPU type; None: those of the network model
    starts: StartRules = StartRules()  # how soon, and whether, starts are answered

    def make_network(self, topology: Topology) -> NetworkModel:
        """The network model, under the table of throughputs where there is one."""
        network = make_network(self.network, topology)
        return network if self.throughputs is None else Tabled(network, self.throughputs, topology)

    def workload(self, network: NetworkModel, *, any_type: bool = True) -> Workload:
        """`any_type`: the policy knows on which GPU types a job runs; for others a job that does not run on every
        type is tied to its fastest one."""
        traced = TracedCluster(self.traced_on, self.make_network(self.traced_on)) if self.traced_on else None
        trace = self.trace
        if isinstance(network, Tabled):
            network.check(trace.jobs, trace.name)
            if not any_type:
                trace = replace(trace, jobs=network.pinned(trace.jobs))
        real_steps = self.throughputs is not None or self.network.partition("[")[0] not in ("ideal", "level-penalty")
        return prepare(trace, self.topology, network, means=self.means, traced=traced, in_seconds=real_steps)

    def check(self) -> Workload:
        """Fail early, in the parent, where an error can be said in one line."""
        make_cost(self.preemption_cost)
        make_estimates(self.knowledge, {})
        make_interference(self.interference, self.throughputs)
        NoisyMeter(self.measurement_noise)
        if self.slices not in ("fluid", "quanta"):
            raise UserError(f"slices are run fluid or quanta, not {self.slices!r}")
        network = self.make_network(self.topology)
        workload = self.workload(network)
        workload.notes.extend(network.notes)
        return workload

    def run(self, policy: str, *, journal: str | None = None, progress: Progress | None = None,
            listeners: tuple[Sink, ...] = ()) -> Run:  # fmt: skip
        """One policy, from the first arrival to the last end. `journal`: the file to write; `listeners`: who else
        hears of every entry."""
        network = self.make_network(self.topology)
        made = make_policy(policy)
        workload = self.workload(network, any_type=made.chooses_gpu_type)
        rules = self.faults
        faults = Faults(len(self.topology.machines), rules.outages, rules.mtbf, rules.mttr, rules.job_mtbf,
                        rules.retries, rules.checkpoint_interval, self.seed)  # fmt: skip
        interference = make_interference(self.interference, self.throughputs)
        workload = tell(workload, self.knowledge, self.seed)
        estimates = Profiles(network, self.topology, interference)
        cost = make_cost(self.preemption_cost)
        with ExitStack() as files:
            sinks = listeners
            if journal is not None:
                about: dict[str, Any] = {
                    "policy": made.name, "trace": self.trace.name, "network": self.network,
                    "preemption_cost": self.preemption_cost, "seed": self.seed, "knowledge": self.knowledge,
                    "interference": self.interference, "measurement_noise": self.measurement_noise,
                    "slices": self.slices, "faults": asdict(rules), "starts": asdict(self.starts),
                    "throughputs": None if self.throughputs is None else self.throughputs.source,
                    "origin": None, "version": __version__}  # fmt: skip
                sinks = (files.enter_context(JournalFile(journal, self.topology, **about)), *listeners)
            return simulate(workload, self.topology, made, network, cost, faults=faults, estimates=estimates,
                            sinks=sinks, progress=progress, interference=interference,
                            meter=NoisyMeter(self.measurement_noise, self.seed),
                            quanta=self.slices == "quanta", starts=replace(self.starts, seed=self.seed))  # fmt: skip
