"""Small jobs, clusters, traces and runs for tests, built in one line each."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job, Truth
from dally.core.journal import Decided, Entry, Instant, Journal, flat
from dally.core.placement import Placement
from dally.core.policy import Meter, Policy, PolicyBase, View
from dally.core.queues import Queue
from dally.core.ranking import Rank
from dally.core.reasons import Reason, Token
from dally.core.scheduler import Scheduler
from dally.core.sharing import Interference
from dally.core.topology import Level, MachineSpec, Topology, build_topology, regular
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import PreemptionCost, make_cost
from dally.simulator.faults import Faults, StartRules
from dally.simulator.run import Run, simulate
from dally.simulator.workload import Workload, prepare
from dally.simulator.world import SimulatedWorld
from dally.traces.trace import Trace

MACHINES = (Level("machine"), Level("cluster"))
RACKS = (Level("machine"), Level("rack"), Level("cluster"))
BLOCKS = (Level("machine"), Level("rack"), Level("block"), Level("cluster"))
ISLANDS = (Level("island"), Level("machine"), Level("rack"), Level("cluster"))


def cluster(*counts: int, gpu_type: str = "gpu", islands: tuple[int, ...] = ()) -> Topology:
    """`cluster(2, 4)`: two machines of four GPUs; `cluster(2, 3, 4)`: two racks of three machines of four."""
    inner = (Level("island"),) if islands else ()
    outer = [Level(name) for name in ("machine", "rack", "block", "cluster")]
    names = (*outer[: len(counts) - 1], outer[-1]) if len(counts) > 1 else (outer[0],)
    return regular(counts, (*inner, *names), gpu_type=gpu_type, islands=islands)


def mixed_cluster(**gpus_by_type: Sequence[int]) -> Topology:
    """`mixed_cluster(v100=(4, 4), a100=(8,))`: one rack per GPU type with machines of so many GPUs."""
    specs = [MachineSpec((f"rack-{kind}", f"m{i}"), gpus, kind)
             for kind, sizes in gpus_by_type.items() for i, gpus in enumerate(sizes)]  # fmt: skip
    return build_topology(RACKS, specs, name="mixed")


@dataclass(frozen=True, slots=True)
class Spec:
    """A job and the truth about it."""

    job: Job
    truth: Truth


def job(id: str, gpus: int = 1, duration: float = 10.0, submit: float = 0.0, *, gpu_type: str | None = None,
        model: str | None = None, limits: tuple[int, int] | None = None, **truth: object) -> Spec:  # fmt: skip
    fewest, most = limits or (None, None)
    return Spec(Job(id, float(submit), gpus, gpu_type=gpu_type, model=model, min_gpus=fewest, max_gpus=most),
                Truth(float(duration), **truth))  # type: ignore[arg-type]  # fmt: skip


def trace(specs: Iterable[Spec], name: str = "made") -> Trace:
    """In order of submission; among equals in the order given."""
    ordered = sorted(specs, key=lambda spec: spec.job.submit_time)
    return Trace(name, "made", [spec.job for spec in ordered], [spec.truth for spec in ordered])


def seeded_trace(seed: int, jobs: int = 30, sizes: Sequence[int] = (1, 1, 1, 2, 2, 4, 8), span: int = 600,
                 longest: int = 300, types: Sequence[str | None] = (None,),
                 name: str = "seeded") -> Trace:  # fmt: skip
    """Jobs with whole-second times, the same for the same seed on every machine."""
    chance = random.Random(seed)
    specs = [job(f"j{i}", chance.choice(sizes), chance.randint(1, longest), chance.randint(0, span),
                 gpu_type=chance.choice(types)) for i in range(jobs)]  # fmt: skip
    return trace(specs, name)


@dataclass(slots=True)
class Played:
    """A finished run with its journal in memory."""

    run: Run
    instants: list[Instant]
    workload: Workload

    @property
    def entries(self) -> list[tuple[float, Entry]]:
        return list(flat(self.instants))

    def of(self, kind: type, job_id: str | None = None) -> list[tuple[float, Entry]]:
        """Entries of one kind, of one job where given."""
        return [(t, e) for t, e in self.entries
                if isinstance(e, kind) and (job_id is None or getattr(e, "job", None) == job_id)]  # fmt: skip

    def times(self, kind: type, job_id: str | None = None) -> list[float]:
        return [t for t, _ in self.of(kind, job_id)]

    def end(self, job_id: str) -> float | None:
        return self.run.ledger.row(job_id).end

    def outcome(self, job_id: str) -> str:
        return self.run.ledger.row(job_id).outcome

    def jcts(self) -> dict[str, float | None]:
        return {row.job_id: row.jct for row in self.run.ledger.rows}


class Flat:
    """A preemption cost of one's own: seconds to save, seconds to restore."""

    def __init__(self, save: float, restore: float) -> None:
        self._save, self._restore = float(save), float(restore)

    def save(self, job: Job) -> float:
        return self._save

    def restore(self, job: Job) -> float:
        return self._restore


def into(entries: list[tuple[float, Entry]]) -> Callable[[Instant], None]:
    """A sink that puts entries one by one into a list."""
    return lambda instant: entries.extend((instant.time, entry) for entry in instant.entries())


def play(specs: Iterable[Spec] | Trace, topology: Topology, policy: str | Policy, *,
         network: str | NetworkModel = "ideal", cost: str | PreemptionCost = "0",
         faults: Faults | None = None, estimates: object = None, instants: int = 50_000,
         interference: Interference | None = None, meter: Meter | None = None,
         quanta: bool = False, starts: StartRules | None = None, queues: tuple[Queue, ...] = ()) -> Played:  # fmt: skip
    """Run jobs to their end. A run that is not over after `instants` is a failure: somebody goes in circles."""
    made = specs if isinstance(specs, Trace) else trace(specs)
    chosen = make_network(network, topology) if isinstance(network, str) else network
    workload = prepare(made, topology, chosen)
    instants_seen: list[Instant] = []
    calls = 0

    def limit(now: float, ended: int, jobs: int) -> bool:
        nonlocal calls
        calls += 256
        return calls < instants

    run = simulate(workload, topology, make_policy(policy) if isinstance(policy, str) else policy, chosen,
                   make_cost(cost) if isinstance(cost, str) else cost, faults=faults,
                   estimates=estimates,  # type: ignore[arg-type]
                   sinks=(instants_seen.append,), progress=limit,
                   interference=interference, meter=meter, quanta=quanta, starts=starts, queues=queues)  # fmt: skip
    assert run.complete, f"{run.policy} is not through after {instants} instants"
    return Played(run, instants_seen, workload)


def outages(
    topology: Topology, spans: Mapping[int, Sequence[tuple[float, float | None]]], **more: object
) -> Faults:
    """`outages(cluster, {0: [(10, 20)]})`: machine 0 is down from 10 to 20 and nothing else breaks."""
    exact = {m: [(float(down), None if up is None else float(up)) for down, up in s] for m, s in spans.items()}
    return Faults(len(topology.machines), exact, **more)  # type: ignore[arg-type]


BUSY = Reason(Token.WAITING_FOR_GPUS, "as the test says")


class Scripted(PolicyBase):
    """A policy that hands in plans from a list, one per instant, then empty ones; reasons are given for all."""

    def __init__(self, *plans: Sequence[pl.Action], reasons: bool = True, name: str = "scripted") -> None:
        self.plans = list(plans)
        self.reasons = reasons
        self.name = name

    def rank(self, view: View, memory: object, job: object, now: float) -> Rank:
        return Rank(0.0)

    def plan(self, view: View, memory: object, now: float) -> pl.Plan:
        plan = list(self.plans.pop(0)) if self.plans else []
        if self.reasons:
            plan += [pl.Wait(demand, BUSY) for demand in view.waiting.buckets]
        return plan


class Timed(Scripted):
    """A policy that shares and hands in plans at given times: `{0.0: [Start(…)], 10.0: [Reshare(…)]}`. Its plan for a
    time may also be a function of the view."""

    shares = True
    preempts = True

    def __init__(self, plans: Mapping[float, Sequence[pl.Action]], look: Callable[[View, float], None] | None = None,
                 name: str = "timed") -> None:  # fmt: skip
        super().__init__(name=name)
        self.agenda = dict(sorted(plans.items()))
        self.look = look

    def plan(self, view: View, memory: object, now: float) -> pl.Plan:
        if self.look is not None:
            self.look(view, now)
        due = [time for time in self.agenda if time <= now]
        plan = [action for time in due for action in self.agenda.pop(time)]
        if self.agenda:
            plan.append(pl.WakeAt(min(self.agenda)))
        return plan + [pl.Wait(demand, BUSY) for demand in view.waiting.buckets]


class Pairwise:
    """An interference of one's own: everybody is slowed down by a factor per neighbour; so many jobs fit."""

    def __init__(self, factor: float = 1.0, most: int = 99) -> None:
        self.factor, self.most = factor, most

    def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        return float(self.factor ** len(others))

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        return None if len(jobs) <= self.most else f"only {self.most} fit on a {gpu_type}"


class SilentWorld:
    """A world in which nothing happens by itself: tests feed the scheduler by hand."""

    def __init__(self) -> None:
        self.done: list[Decided] = []

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        """Whoever is told to start runs at once, and makes no progress until a test says so."""
        self.done += decided
        return [ev.Measured(action.job, 0.0, 0.0, 0.0) for action in decided if isinstance(action, (pl.Start, pl.Migrate, pl.Resize))]


def desk(topology: Topology, *plans: Sequence[pl.Action], reasons: bool = True,
         sinks: Sequence[Callable[[Instant], None]] = ()) -> Scheduler:  # fmt: skip
    """A scheduler with a scripted policy and a silent world."""
    return Scheduler(topology, Scripted(*plans, reasons=reasons), SilentWorld(), Journal(*sinks))


def at(*slices: tuple[int, int]) -> Placement:
    """`at((0, 0b11), (1, 0b1))`: two GPUs of machine 0 and one of machine 1."""
    return Placement.of(slices)


@contextmanager
def watched_steps(check: Callable[[Scheduler, float], None]) -> Iterator[None]:
    """Call `check` after every instant of every scheduler inside the block."""
    original = Scheduler.step

    def step(self: Scheduler, now: float, events: Sequence[ev.Event]) -> None:
        original(self, now, events)
        check(self, now)

    Scheduler.step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        Scheduler.step = original  # type: ignore[method-assign]


__all__ = ["BLOCKS", "BUSY", "ISLANDS", "MACHINES", "RACKS", "Flat", "Pairwise", "Played", "Scripted", "SilentWorld",
           "SimulatedWorld", "Spec", "Timed", "at", "cluster", "desk", "into", "job", "mixed_cluster", "outages", "play",
           "seeded_trace", "trace", "watched_steps"]  # fmt: skip


def calls(action: Callable[[], None]) -> int:
    """Python and C functions called while the action runs."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(seen)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
