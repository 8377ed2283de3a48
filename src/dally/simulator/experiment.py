"""An experiment: a workload, a cluster and the rules of the world, to be run under one or several policies."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dally.catalog.throughputs import Throughputs
from dally.core.errors import PlanError, RunError, UserError
from dally.core.job import DurationMeans
from dally.core.journal import Sink
from dally.core.policy import Policy
from dally.core.queues import Queue
from dally.core.records import dataclass
from dally.core.told import DURATIONS
from dally.core.topology import Topology
from dally.network.mix import assign_models
from dally.network.model import NetworkModel
from dally.network.registry import looks_at_models, make_network
from dally.policies.options import PolicyClass, make_policy, whole
from dally.simulator.best import Known
from dally.simulator.costs import make_cost
from dally.simulator.faults import Faults, Outages, StartRules
from dally.simulator.hopeless import refuse_hopeless
from dally.simulator.interference import DEFAULT, make_interference
from dally.simulator.knowledge import LEARNED, NONE, make_estimates, settled, tell, told
from dally.simulator.meter import NOISE, NoisyMeter
from dally.simulator.predicting import Predictor
from dally.simulator.profiles import Profiles
from dally.simulator.run import Run, simulate
from dally.simulator.tabled import Tabled
from dally.simulator.watching import Progress
from dally.simulator.window import Window
from dally.simulator.workload import TracedCluster, Workload, prepare
from dally.traces.trace import Trace
from dally.version import __version__

if TYPE_CHECKING:
    from dally.simulator.scenario import Scenario


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
    knowledge: str = "exact"  # what is known of durations: none, limits, learned, exact, noisy=σ, auto
    faults: FaultRules = FaultRules()
    means: DurationMeans | None = None  # what durations stand for, where the trace's own word is overridden
    traced_on: Topology | None = None  # the cluster the durations were measured on, if it is another
    slices: str = "fluid"  # how time slices are run: as fluid shares, or quantum by quantum ("quanta")
    interference: str = DEFAULT  # between packed jobs: auto, catalog, none, or a file of measured pairs
    measurement_noise: float = NOISE  # of a mini-batch's time as policies read it: sigma of a log-normal factor
    throughputs: Throughputs | None = None  # measured speeds per GPU type; None: those of the network model
    window: Window | None = None  # whose jobs are measured; None: all
    scenario: Scenario | None = None  # what it was prepared from
    starts: StartRules = StartRules()  # how soon, and whether, starts are answered
    queues: tuple[Queue, ...] = ()  # that jobs pass before a policy sees them
    # searched once for the check, every policy and every worker; an experiment that is made from this one starts anew
    shortest: Known = field(default_factory=dict, init=False, repr=False, compare=False)
    _described: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Where steps depend on the model, every job has one: whoever makes an experiment gets the same answer."""
        if looks_at_models(self.network) and any(job.model is None for job in self.trace.jobs):
            durations = [truth.duration for truth in self.trace.truths]
            jobs, note = assign_models(self.trace.jobs, durations, self.seed)
            notes = [*self.trace.notes, *([note] if note else ())]
            object.__setattr__(self, "trace", replace(self.trace, jobs=jobs, notes=notes))

    def described(self) -> dict[str, Any]:
        """`Scenario.describe` of what it was prepared from, once for all its runs: a million jobs take a while."""
        assert self.scenario is not None, "only a prepared scenario knows how it was made"
        if not self._described:
            self._described.update(self.scenario.describe(self.trace))
        return self._described

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
        real_steps = self.throughputs is not None or looks_at_models(self.network)
        return prepare(trace, self.topology, network, means=self.means, traced=traced, in_seconds=real_steps,
                       known=self.shortest)  # fmt: skip

    def _origin(self) -> str | None:
        """The wall-clock time of second 0; None where submissions were moved to meet a load or drawn anew."""
        moved = self.scenario is not None and (self.scenario.load is not None or self.scenario.resample)
        return None if moved else self.trace.origin

    def check(self) -> Workload:
        """Fail early, in the parent, where an error can be said in one line."""
        make_cost(self.preemption_cost)
        make_estimates(self.knowledge, {})
        make_interference(self.interference, self.throughputs)
        NoisyMeter(self.measurement_noise)
        if self.slices not in ("fluid", "quanta"):
            raise UserError(f"slices are run fluid or quanta, not {self.slices!r}")
        network = self.make_network(self.topology)
        self.shortest.clear()  # the network notes what it had to assume when it is asked
        workload = self.workload(network)
        refuse_hopeless(workload, self.topology, self.faults, self.starts)
        workload.notes.extend(network.notes)
        return workload

    def run(self, policy: str | Policy | PolicyClass, *, journal: str | None = None, progress: Progress | None = None,
            listeners: tuple[Sink, ...] = ()) -> Run:  # fmt: skip
        """One policy, from the first arrival to the last end. `journal`: the file to write; `listeners`: who else
        hears of every entry."""
        network = self.make_network(self.topology)
        made = as_policy(policy)
        knowledge = settled(self.knowledge, self.trace.jobs)
        known = told(made.uses, knowledge, made.name)
        workload = self.workload(network, any_type=made.chooses_gpu_type)
        rules = self.faults
        faults = Faults(len(self.topology.machines), rules.outages, rules.mtbf, rules.mttr, rules.job_mtbf,
                        rules.retries, rules.checkpoint_interval, self.seed)  # fmt: skip
        interference = make_interference(self.interference, self.throughputs)
        workload = tell(workload, knowledge, self.seed)
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
                    "origin": self._origin(), "version": __version__}  # fmt: skip
                if self.scenario is not None:
                    about["scenario"] = self.described()
                from dally.store.journal_file import JournalFile

                sinks = (files.enter_context(JournalFile(journal, self.topology, **about)), *listeners)
            with naming(made):
                run = simulate(workload, self.topology, made, network, cost, faults=faults, estimates=estimates,
                               sinks=sinks, progress=progress, interference=interference,
                               meter=NoisyMeter(self.measurement_noise, self.seed),
                               quanta=self.slices == "quanta", starts=replace(self.starts, seed=self.seed),
                               queues=self.queues, predictor=Predictor() if knowledge == LEARNED else None)  # fmt: skip
            if run.stuck is not None:
                raise RunError(made.name, run.stuck)
            run.window, run.told = self.window, known
            if knowledge == NONE and DURATIONS in made.uses:
                run.notes = (*run.notes, "it would use durations and is told none (--knowledge limits, learned, exact)")
            if run.calibration is not None and DURATIONS in made.uses:
                run.notes = (*run.notes, f"durations learned from ended jobs: {run.calibration.text}")
            return run


def as_policy(policy: str | Policy | PolicyClass) -> Policy:
    """A policy by its text, by its class, or by an instance, which is copied: a run starts from a fresh one."""
    if isinstance(policy, str):
        return make_policy(policy)
    if isinstance(policy, type):
        options = getattr(policy, "Options", None)
        make = cast(Callable[..., Policy], policy)
        return whole(make() if options is None else make(options()), policy.__name__)
    return whole(deepcopy(cast(Policy, policy)), type(policy).__name__)


@contextmanager
def naming(policy: Policy) -> Iterator[None]:
    """What breaks in a run breaks under the policy's name, with the place in its code."""
    try:
        yield
    except (UserError, PlanError, RunError, MemoryError):
        raise
    except Exception as error:
        import traceback

        frames = traceback.extract_tb(error.__traceback__)
        home = sys.modules.get(type(policy).__module__)
        own = {getattr(home, "__file__", None)}
        mine = [frame for frame in frames if frame.filename in own or f"{os.sep}policies{os.sep}" in frame.filename]
        frame = (mine or list(frames))[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
        what = "failed" if mine else "was running when the simulation failed"
        details = "".join(traceback.format_exception(error))
        raise RunError(policy.name, f"{what}: {type(error).__name__}: {error} ({where})", details) from error
