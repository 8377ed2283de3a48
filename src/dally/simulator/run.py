"""One simulated run: a trace, a cluster and a policy in; the ledger of what happened out."""

from __future__ import annotations

import time

from dally.core.collecting import seldom_collected
from dally.core.estimates import Estimates
from dally.core.journal import Journal, Sink
from dally.core.ledger import Ledger
from dally.core.memory import Memory
from dally.core.policy import Meter, Policy
from dally.core.queues import Queue
from dally.core.records import dataclass
from dally.core.scheduler import Scheduler
from dally.core.sharing import Interference, NoInterference
from dally.core.topology import Topology
from dally.network.model import NetworkModel
from dally.simulator.circles import forgotten
from dally.simulator.costs import PreemptionCost, switch_cost
from dally.simulator.faults import Faults, StartRules
from dally.simulator.knowledge import tell, told
from dally.simulator.packing_bound import packed_throughput
from dally.simulator.predicting import Calibration, Predictor
from dally.simulator.profiles import Profiles
from dally.simulator.slices import SharingRules
from dally.simulator.watching import Progress, Watch
from dally.simulator.window import Window
from dally.simulator.workload import Workload
from dally.simulator.world import SimulatedWorld
from dally.simulator.world_rules import WorldRules

# Ended jobs: the ledger and the journal have their lives, and the books can do without them. Each is a kilobyte, and to
# forget them all jobs there are must be looked at.
_REMEMBERS = 16_384


@dataclass(slots=True)
class Run:
    """What a run left behind."""

    policy: str
    ledger: Ledger
    workload: Workload
    events: int
    cpu_seconds: float
    complete: bool  # False where it was stopped on the way
    lost_work_gpu_seconds: float
    packed_throughput: float = 1.0  # the most work a GPU can do at a time, packed as deeply as in this run
    notes: tuple[str, ...] = ()  # what the policy wants a reader to know
    memory: Memory | None = None  # what the policy remembered in the end
    window: Window | None = None  # whose jobs are measured; None: all
    told: str = ""  # what the policy was told of the future, in words
    queues: tuple[Queue, ...] = ()  # that jobs passed, where there were any
    stuck: str | None = None  # what is wrong where jobs that could run wait for ever
    calibration: Calibration | None = None  # of what was learned of durations, where that was told


def simulate(workload: Workload, topology: Topology, policy: Policy, network: NetworkModel, cost: PreemptionCost,
             *, faults: Faults | None = None, estimates: Estimates | None = None, sinks: tuple[Sink, ...] = (),
             progress: Progress | None = None, segments: bool = True, interference: Interference | None = None,
             meter: Meter | None = None, quanta: bool = False, starts: StartRules | None = None,
             queues: tuple[Queue, ...] = (), predictor: Predictor | None = None) -> Run:  # fmt: skip
    """Run the trace to its end, or until `progress` says stop. `quanta`: time slices are run one by one. Without
    `estimates` policies know what jobs say of themselves; who says nothing at all says the truth."""
    if estimates is None and all(job.work is None and job.reference is None for job in workload.trace.jobs):
        workload = tell(workload, "exact") if predictor is None else workload
    trace = workload.trace
    interference = interference or NoInterference()
    types = [machine.gpu_type for machine in topology.machines]
    sharing = SharingRules(interference, types, switch_cost(cost), quanta)
    world = SimulatedWorld(workload, topology, network,
                           WorldRules(cost, faults or Faults(), sharing, starts or StartRules(), queues,
                                      predictor))  # fmt: skip
    ledger = Ledger(topology, segments=segments)
    known = estimates or Profiles(network, topology, interference)
    scheduler = Scheduler(topology, policy, world, Journal(ledger, *sinks), known, interference, meter,
                          remembers=_REMEMBERS)  # fmt: skip
    watch = Watch(scheduler, world, len(trace.jobs), progress)
    started = time.process_time()
    try:
        with seldom_collected():
            scheduler.run(watch)
    except KeyboardInterrupt:
        watch.stopped = True
    ledger.close(world.now)
    cpu = time.process_time() - started
    throughput = packed_throughput(trace.jobs, topology.gpu_types, interference, ledger.deepest_pack)
    return Run(policy.name, ledger, workload, scheduler.events, cpu, not watch.stopped,
               ledger.lost_work_gpu_seconds, throughput, policy.notes(scheduler.memory), scheduler.memory,
               told=told(policy.uses, "exact", policy.name),
               queues=queues, stuck=None if watch.stopped else forgotten(scheduler),
               calibration=None if predictor is None else predictor.calibration)  # fmt: skip
