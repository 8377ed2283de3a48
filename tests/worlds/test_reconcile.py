"""A service that comes back compares what it believes with what the engine really runs."""

from __future__ import annotations

from engines import ManualClock, PretendEngine

from builders import cluster, job
from dally.core import events as ev
from dally.core.journal import Instant, Journal
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, save
from dally.core.states import State
from dally.live.attempts import Terms
from dally.live.attending import LiveRules
from dally.live.engine import Order, Program
from dally.live.world import LiveWorld
from dally.policies.options import make_policy

TREE = cluster(2, 2, 4)


def test_what_runs_goes_on_what_is_gone_waits_again_and_strangers_are_stopped() -> None:
    clock = ManualClock()
    engine = PretendEngine(clock)
    world = LiveWorld(TREE, engine, clock, LiveRules(retries=5))
    specs = [job("goes-on", 2, 100), job("vanishes", 2, 100), job("waits", 16, 5)]
    for spec in specs:
        world.submit(spec.job, Program(("run", str(spec.truth.duration))))
    before = Scheduler(TREE, make_policy("fifo"), world, Journal())
    world.jobs = before.jobs
    for _ in range(2):
        happened = world.next_events()
        assert happened is not None
        before.step(*happened)
    assert before.jobs["goes-on"].state is before.jobs["vanishes"].state is State.RUNNING
    state = save(before)

    # the service is gone; meanwhile one attempt vanishes and somebody starts one by hand
    engine._gone(("vanishes", 1))
    engine._due = [entry for entry in engine._due if entry[3][0] != "vanishes"]
    engine.start(Order("stranger", 1, before.jobs["goes-on"].placement, ("rack0/m0",), Program(("run", "1000"))))  # type: ignore[arg-type]
    engine.observe(0.0)

    again = LiveWorld(TREE, engine, clock, LiveRules(retries=5))
    seen: list[Instant] = []
    after = Scheduler(TREE, make_policy("fifo"), again, Journal(seen.append))
    again.jobs = after.jobs
    load(after, state)
    after.resume_with(after.policy.new_memory())
    again.programs.update(world.programs)
    again.reconcile(after.jobs.values(), after.books.timer)
    again.close()
    after.run()
    assert {j.state for j in after.jobs.values()} == {State.FINISHED}
    first = seen[0].happened[0]
    assert isinstance(first, ev.Interrupted) and first.job == "vanishes" and first.work_done == 0
    assert "stranger" not in engine.running()
    assert after.jobs["goes-on"].attempts == 1


def test_a_job_that_asks_to_run_again_at_once_is_let_wait_longer_every_time() -> None:
    clock = ManualClock()
    engine = PretendEngine(clock)
    world = LiveWorld(TREE, engine, clock)
    world.submit(job("again", 2, 100).job, Program(("run", "0.0")), Terms(0, (75,)))
    world.close()
    scheduler = Scheduler(TREE, make_policy("fifo"), world, Journal())
    world.jobs = scheduler.jobs
    engine.code = 75
    scheduler.run(lambda now: now < 100.0)
    assert 8 <= scheduler.jobs["again"].attempts <= 12 and scheduler.jobs["again"].failures == 0
