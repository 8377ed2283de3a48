"""What every world owes the scheduler, simulated or live, prompt or slow, obliging or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from engines import ManualClock, PretendEngine

from builders import Flat, Spec, cluster, job, trace
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Instant, Journal, Odd
from dally.core.scheduler import Scheduler, World
from dally.core.states import ENDED, State
from dally.core.topology import Topology
from dally.live.attending import LiveRules
from dally.live.engine import Program
from dally.live.world import LiveWorld
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.faults import Faults, StartRules
from dally.simulator.knowledge import tell
from dally.simulator.workload import prepare
from dally.simulator.world import SimulatedWorld, WorldRules

TREE = cluster(2, 2, 4)
Make = Callable[[list[Spec], int], World]


def simulated(starts: StartRules | None = None, cost: tuple[float, float] = (0.0, 0.0), mtbf: float | None = None) -> Make:
    def make(specs: list[Spec], seed: int) -> World:
        network = make_network("level-penalty", TREE)
        workload = tell(prepare(trace(specs), TREE, network), "declared")
        faults = Faults(len(TREE.machines), mtbf=mtbf, mttr=30.0, retries=1000, checkpoint_interval=20.0, seed=seed)
        return SimulatedWorld(workload, TREE, network, WorldRules(
            Flat(*cost), faults, starts=replace(starts, seed=seed) if starts else StartRules()))

    return make


def live(**engine: float) -> Make:
    def make(specs: list[Spec], seed: int) -> World:
        clock = ManualClock()
        world = LiveWorld(TREE, PretendEngine(clock, seed=seed, **engine), clock, LiveRules(retries=1000))  # type: ignore[arg-type]
        for spec in specs:
            said = replace(spec.job, declared_duration=spec.truth.duration)
            world.submit(said, Program(("run", str(spec.truth.duration))))
        world.close()
        return world

    return make


WORLDS: dict[str, Make] = {
    "simulated": simulated(),
    "simulated, with costs": simulated(cost=(1.5, 2.5)),
    "simulated, slow to start": simulated(StartRules(7.0)),
    "simulated, slow and refusing": simulated(StartRules(5.0, 0.3), (1.5, 2.5)),
    "simulated, slow, refusing and failing": simulated(StartRules(5.0, 0.3), (1.5, 2.5), 300.0),
    "live": live(),
    "live, slow": live(latency=3.0, leaving=2.0),
    "live, slow, refusing, repeating itself": live(latency=3.0, leaving=2.0, refusals=0.2, repeats=0.3),
    "live, where attempts vanish": live(latency=1.0, vanishes=0.2, leaving=1.0),
}


def some_jobs(seed: int, count: int = 14) -> list[Spec]:
    chance = random.Random(seed)
    return [job(f"j{i}", chance.choice((1, 1, 2, 4, 8)), chance.randint(1, 60), chance.randint(0, 80)) for i in range(count)]


def run(make: Make, policy: str, seed: int, topology: Topology = TREE) -> tuple[Scheduler, list[Instant], World]:
    seen: list[Instant] = []
    world = make(some_jobs(seed), seed)
    scheduler = Scheduler(topology, make_policy(policy), world, Journal(seen.append))
    if isinstance(world, LiveWorld):
        world.jobs = scheduler.jobs
    scheduler.run(lambda now: len(seen) < 20_000)
    return scheduler, seen, world


@pytest.mark.parametrize("policy", ["fifo[backfill=true]", "srtf", "las[quantum=10s]"])
@pytest.mark.parametrize("world", WORLDS)
def test_every_job_ends_every_start_is_answered_and_time_never_goes_back(world: str, policy: str) -> None:
    for seed in range(4):
        scheduler, seen, made = run(WORLDS[world], policy, seed)
        assert len(seen) < 20_000, "it goes on for ever"
        assert {job.state for job in scheduler.jobs.values()} == {State.FINISHED}
        times = [instant.time for instant in seen]
        assert times == sorted(times)
        assert scheduler.free.total == TREE.gpus - sum(TREE.machines[m].gpus for m in scheduler.books.fleet.down)
        if isinstance(made, LiveWorld) and isinstance(made.engine, PretendEngine):
            assert made.engine.most <= 1, "two attempts were on one GPU"


@pytest.mark.parametrize("world", WORLDS)
def test_a_start_is_answered_by_one_of_three(world: str) -> None:
    """Told to start, a job is heard of as running, as not started, or as gone; and never twice as started."""
    for seed in range(4):
        _, seen, _ = run(WORLDS[world], "srtf", seed)
        open_: dict[str, int] = {}
        for instant in seen:
            for entry in instant.happened:
                if isinstance(entry, (ev.Started, ev.Measured, ev.StartFailed, ev.Interrupted, ev.Failed, ev.Finished)):
                    open_.pop(entry.job, None)
            for action in instant.decided or ():
                if isinstance(action, (pl.Start, pl.Migrate)):
                    assert action.job not in open_, f"{action.job} was started twice without an answer"
                    open_[action.job] = 1
        assert not open_


@pytest.mark.parametrize("world", ["live, slow, refusing, repeating itself", "live, where attempts vanish"])
def test_reports_that_do_not_fit_are_odd_and_nothing_else(world: str) -> None:
    scheduler, seen, _ = run(WORLDS[world], "srtf", 1)
    odd = [entry for instant in seen for entry in instant.happened if isinstance(entry, Odd)]
    assert all(entry.why for entry in odd)
    assert all(job.state in ENDED for job in scheduler.jobs.values())


def test_a_start_of_which_nothing_is_heard_fails_after_a_while_and_is_tried_again() -> None:
    clock = ManualClock()

    class Deaf(PretendEngine):
        def start(self, order):  # type: ignore[no-untyped-def]
            if order.attempt > 1:
                super().start(order)

    world = LiveWorld(TREE, Deaf(clock), clock, LiveRules(retries=3, start_timeout=60.0))
    world.submit(job("a", 2, 10).job, Program(("run", "10")))
    world.close()
    seen: list[Instant] = []
    scheduler = Scheduler(TREE, make_policy("fifo"), world, Journal(seen.append))
    world.jobs = scheduler.jobs
    scheduler.run()
    assert [(i.time, type(e).__name__) for i in seen for e in i.happened] == [
        (0.0, "Arrived"), (60.0, "StartFailed"), (60.0, "Started"), (70.0, "Finished")]  # fmt: skip
