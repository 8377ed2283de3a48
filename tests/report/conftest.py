"""Runs to report on: one small enough to compute by hand, and some of the real simulator."""

from __future__ import annotations

import random

import pytest

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job, Truth
from dally.core.journal import Instant, Leaving, Rejected
from dally.core.ledger import Ledger
from dally.core.placement import Placement
from dally.core.reasons import Reason, Token
from dally.core.topology import Level, Topology, regular
from dally.network.simple import LevelPenalty
from dally.policies.options import make_policy
from dally.report.compared import ReportRun
from dally.report.metrics import summarise
from dally.simulator.costs import make_cost
from dally.simulator.run import Run, simulate
from dally.simulator.workload import Workload, prepare
from dally.traces.trace import Trace

LEVELS = (Level("machine"), Level("rack"), Level("cluster"))


@pytest.fixture
def two_machines() -> Topology:
    """One rack of two machines of two GPUs."""
    return regular((1, 2, 2), LEVELS)


@pytest.fixture
def hand_run(two_machines: Topology) -> Run:
    """Job a runs at once; b waits, is preempted and comes back; c never fits; d gives up; e fails."""
    jobs = [Job("a", 0, 2), Job("b", 5, 4), Job("c", 12, 8), Job("d", 30, 1), Job("e", 34, 1)]
    a, b, c, d, e = jobs
    one, both = Placement.of([(0, 0b11)]), Placement.of([(0, 0b11), (1, 0b11)])
    ledger = Ledger(two_machines)
    for now, entry in (
        (0, ev.Arrived(a)), (0, pl.Start("a", one)), (0, ev.Measured("a", 1, 1, exposed=0.25, delay=2)),
        (5, ev.Arrived(b)),
        (10, ev.Finished("a")), (10, pl.Start("b", both)), (10, ev.Measured("b", 1, 1, exposed=0.5)),
        (12, ev.Arrived(c)), (12, Rejected("c", Reason(Token.EXCEEDS_CAPACITY, "8 GPUs of 4"))),
        (15, pl.Preempt("b")), (15, Leaving("b", 4)), (16, ev.Yielded("b")),
        (20, pl.Start("b", both)), (20, ev.Measured("b", 1, 1, exposed=0.5, delay=1)),
        (26, ev.Finished("b")),
        (30, ev.Arrived(d)), (33, ev.Cancelled("d")),
        (34, ev.Arrived(e)), (34, pl.Start("e", Placement.of([(1, 0b01)]))), (40, ev.Failed("e")),
    ):  # fmt: skip
        ledger(Instant(float(now), (entry,), None))
    ledger.close(40.0)
    trace = Trace("hand", "none", jobs, [Truth(1.0) for _ in jobs])
    least = {"a": 8.0, "b": 10.0, "d": 1.0, "e": 6.0}
    workload = Workload(trace, {}, {}, least, least)
    return Run("hand", ledger, workload, events=20, cpu_seconds=0.5, complete=True, lost_work_gpu_seconds=3.0)


def simulated(policies: tuple[str, ...], count: int, *, cost: str = "30s", seed: int = 7) -> list[ReportRun]:
    """Random jobs through the real simulator, on 2 racks of 4 machines of 4 GPUs."""
    chance = random.Random(seed)
    topology = regular((2, 4, 4), LEVELS)
    jobs, truths, now = [], [], 0.0
    for number in range(count):
        gpus = chance.choices((1, 2, 4, 8, 16), (50, 20, 15, 10, 5))[0]
        jobs.append(Job(f"job{number}", now, gpus))
        truths.append(Truth(chance.lognormvariate(6, 1.3)))
        now += chance.expovariate(1 / 60)
    network = LevelPenalty(topology, {"rack": 1.2, "cluster": 1.6})
    workload = prepare(Trace("random", "none", jobs, truths), topology, network)
    runs = []
    for policy in policies:
        run = simulate(workload, topology, make_policy(policy), network, make_cost(cost))
        runs.append(ReportRun(policy, summarise(run, topology), run.ledger, topology))
    return runs


@pytest.fixture(scope="session")
def few_runs() -> list[ReportRun]:
    """Few enough stretches of running to be drawn one by one."""
    return simulated(("fifo", "srtf", "las"), 150)


@pytest.fixture(scope="session")
def many_runs() -> list[ReportRun]:
    """Too many to be drawn one by one."""
    return simulated(("fifo", "fifo[backfill=true]", "srtf"), 1100)
