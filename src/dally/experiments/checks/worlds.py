"""Small worlds for checking a policy: a few jobs on a few GPUs, with faults, late starts and any state of knowledge."""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from dally.core.errors import UserError
from dally.core.estimates import Estimates
from dally.core.job import Job, Truth
from dally.core.journal import Entry, Instant, Journal, flat
from dally.core.placement import Placement
from dally.core.plan import demand_of_job
from dally.core.policy import Policy
from dally.core.queues import Queue
from dally.core.records import dataclass
from dally.core.scheduler import Scheduler
from dally.core.shape import fits_empty
from dally.core.topology import Level, MachineSpec, Topology, build_topology, regular, spec_of
from dally.experiments.checks.replay import PropertyError
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.policies.options import load_policy_class, make_policy
from dally.simulator.faults import Faults, StartRules
from dally.simulator.knowledge import tell
from dally.simulator.profiles import Profiles
from dally.simulator.run import Run, simulate
from dally.simulator.slices import SharingRules
from dally.simulator.workload import Workload, prepare
from dally.simulator.world import SimulatedWorld
from dally.simulator.world_rules import WorldRules
from dally.traces.trace import Trace

MOST_INSTANTS = 30_000  # of so few jobs: who is not through by then goes in circles
_RACKS = (Level("machine"), Level("rack"), Level("cluster"))


def _clusters() -> list[Topology]:
    machine, cluster = Level("machine"), Level("cluster")
    mixed = [MachineSpec((f"rack-{kind}", f"m{i}"), gpus, kind)
             for kind, sizes in (("v100", (4, 2)), ("a100", (4, 4))) for i, gpus in enumerate(sizes)]  # fmt: skip
    return [regular((4,), (machine,)), regular((2, 4), (machine, cluster)), regular((2, 2, 2), _RACKS),
            regular((1, 2, 4), (Level("island"), *_RACKS), islands=(2, 2)),
            build_topology(_RACKS, mixed, name="mixed")]  # fmt: skip


def variants(name: str) -> list[str]:
    """The policy as it is, every choice of every option that lists its choices, and times a hundredth as long; without
    those that the policy refuses."""
    maker = load_policy_class(name)
    hints = typing.get_type_hints(maker.Options)
    found = [name]
    for field in dataclasses.fields(maker.Options):
        hint, default = hints[field.name], field.default
        for kind in typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,):
            if kind is bool:
                found.append(f"{name}[{field.name}={'false' if default else 'true'}]")
            elif typing.get_origin(kind) is typing.Literal:
                found += [f"{name}[{field.name}={value}]" for value in typing.get_args(kind) if value != default]
        if isinstance(default, float) and field.metadata.get("unit") == "s":
            found += [f"{name}[{field.name}={default / 100!r}]"]
    return [text for text in found if text == name or _accepted(text)]


def _accepted(text: str) -> bool:
    try:
        make_policy(text)
    except UserError:
        return False
    return True


class FlatCost:
    """So many seconds to save, so many to restore, whatever the job."""

    def __init__(self, save: float, restore: float) -> None:
        self._save, self._restore = save, restore

    def save(self, job: Job) -> float:
        return self._save

    def restore(self, job: Job) -> float:
        return self._restore


class NoSpeeds:
    """The same estimates, without anything a profile would have told."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates

    def work(self, job: Job) -> float | None:
        return self._estimates.work(job)

    def speed(self, job: Job, placement: Placement) -> float | None:
        return None

    def throughput(self, job: Job, gpu_type: str, consolidated: bool = True) -> float | None:
        return None

    def together(self, job: Job, other: Job, gpu_type: str) -> tuple[float, float] | None:
        return None


@dataclass(frozen=True)
class SmallWorld:
    """Everything but the policy; the same seed draws the same one."""

    seed: int
    jobs: tuple[Job, ...]
    truths: tuple[Truth, ...]
    topology: Topology
    network_name: str
    cost: FlatCost
    faulty: bool
    starts: StartRules
    knowledge: str
    scale: float

    @classmethod
    def draw(cls, seed: int, *, faulty: bool | None = None, late: bool | None = None) -> SmallWorld:
        """`faulty`: whether things break; `late`: whether starts take time and may fail; None: now and then."""
        chance = random.Random(f"small world {seed}")
        topology = chance.choice(_clusters())
        scale = chance.choice((1.0, 60.0))
        jobs, truths = [], []
        drawn = sorted((chance.choice((0, chance.randint(0, 30), chance.uniform(0, 30))) * scale, number)
                       for number in range(chance.randint(1, 12)))  # fmt: skip
        for number, (submit, _) in enumerate(drawn):
            kind = chance.choice((None, None, *topology.gpu_types))
            jobs.append(Job(f"j{number}", float(submit), chance.choice((1, 1, 1, 2, 2, 3, 4, 8)), gpu_type=kind))
            truths.append(Truth(chance.choice((chance.randint(0, 40), chance.uniform(0.01, 40))) * scale))
        breaks = chance.random() < 0.4 if faulty is None else faulty
        slow = chance.random() < 0.3 if late is None else late
        return cls(seed, tuple(jobs), tuple(truths), topology, chance.choice(("ideal", "level-penalty")),
                   FlatCost(*chance.choice(((0.0, 0.0), (0.0, 2.0), (1.5, 2.5)))), breaks,
                   StartRules(3.0, 0.3, seed) if slow else StartRules(),
                   chance.choice(("declared", "declared", "none", "noisy=0.7")), scale)  # fmt: skip

    @cached_property
    def network(self) -> NetworkModel:
        return make_network(self.network_name, self.topology)

    @property
    def runnable(self) -> set[str]:
        """Jobs that the cluster can hold."""
        return {job.id for job in self.jobs if fits_empty(self.topology, demand_of_job(job))}

    def with_sets(self, names: Sequence[str]) -> SmallWorld:
        """The same on a cluster whose machines are dealt out to sets."""
        topology = self.topology
        specs = [replace(spec_of(machine, topology), sets=(names[machine.index % len(names)],))
                 for machine in topology.machines]  # fmt: skip
        return replace(self, topology=build_topology(topology.levels, specs, name=topology.name,
                                                     machine_level=topology.machine_level))  # fmt: skip

    def faults(self) -> Faults:
        if not self.faulty:
            return Faults()
        return Faults(len(self.topology.machines), mtbf=500 * self.scale, mttr=20 * self.scale,
                      job_mtbf=300 * self.scale, retries=10_000, checkpoint_interval=5 * self.scale,
                      seed=self.seed)  # fmt: skip

    def workload(self, knowledge: str | None = None) -> Workload:
        trace = Trace(f"small world {self.seed}", "made", list(self.jobs), list(self.truths))
        return tell(prepare(trace, self.topology, self.network), knowledge or self.knowledge, self.seed)

    def play(self, policy: Policy, *, knowledge: str | None = None, speeds: bool = True) -> Played:
        """To the end; `knowledge`, `speeds`: what the policy is told instead of what it would be told here."""
        workload = self.workload(knowledge)
        profiles = Profiles(self.network, self.topology)
        seen: list[Instant] = []
        calls = 0

        def limit(now: float, ended: int, jobs: int) -> bool:
            nonlocal calls
            calls += 256
            return calls < MOST_INSTANTS

        run = simulate(workload, self.topology, policy, self.network, self.cost, faults=self.faults(),
                       estimates=profiles if speeds else NoSpeeds(profiles), sinks=(seen.append,), progress=limit,
                       starts=self.starts)  # fmt: skip
        if not run.complete:
            raise PropertyError(f"{len(self.jobs)} jobs are not through after {MOST_INSTANTS:,} decisions")
        if run.stuck is not None:
            raise PropertyError(run.stuck)
        return Played(run, seen, workload)

    def begin(self, policy: Policy, journal: Journal,
              queues: tuple[Queue, ...] = ()) -> tuple[SimulatedWorld, Scheduler]:  # fmt: skip
        """A world and a scheduler that have seen nothing yet."""
        types = [machine.gpu_type for machine in self.topology.machines]
        rules = WorldRules(self.cost, self.faults(), SharingRules(gpu_types=types), starts=self.starts, queues=queues)
        world = SimulatedWorld(self.workload(), self.topology, self.network, rules)
        return world, Scheduler(self.topology, policy, world, journal, Profiles(self.network, self.topology))


@dataclass(frozen=True, slots=True)
class Played:
    """A finished run with its journal in memory."""

    run: Run
    instants: list[Instant]
    workload: Workload

    @property
    def entries(self) -> list[tuple[float, Entry]]:
        return list(flat(self.instants))


@contextmanager
def watched(check: typing.Callable[[Scheduler, float], None]) -> Iterator[None]:
    """Call `check` after every instant of every scheduler inside the block."""
    original = Scheduler.step

    def step(self: Scheduler, now: float, events: Sequence[typing.Any]) -> None:
        original(self, now, events)
        check(self, now)

    Scheduler.step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        Scheduler.step = original  # type: ignore[method-assign]
