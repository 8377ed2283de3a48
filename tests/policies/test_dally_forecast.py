"""What waiting by value believes: run times by tier, openings from the ends of running jobs, and how late."""

from __future__ import annotations

import math

import pytest

from builders import SilentWorld, at, cluster
from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.scheduler import Scheduler
from dally.network.registry import make_network
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.tiers import Tiers
from dally.policies.options import make_policy
from dally.simulator.knowledge import Nothing, Perfect, speeds

TREE = cluster(2, 2, 4)
SLOW = make_network("level-penalty[rack=2,cluster=4]", TREE)


def scene(known: bool = True) -> tuple[Forecast, Scheduler]:
    work = {"a": 100.0, "b": 200.0, "c": 400.0, "g": 60.0}
    speed = speeds(dict.fromkeys(work, 1.0), SLOW)
    estimates = Perfect(work, speed) if known else Nothing()
    scheduler = Scheduler(TREE, make_policy("fifo"), SilentWorld(), Journal(), estimates)
    return Forecast(Tiers(TREE, "best")), scheduler


def active(name: str, gpus: int, now: float = 0.0) -> ActiveJob:
    return ActiveJob(Job(name, now, gpus), 0, now)


def test_speeds_come_from_the_network_without_neighbours() -> None:
    known = speeds({"a": 1.0}, SLOW)
    job = Job("a", 0.0, 2)
    near, far = known(job, at((0, 0b11))), known(job, at((0, 1), (2, 1)))
    assert near is not None and far is not None and near == 4 * far
    assert known(Job("stranger", 0.0, 2), at((0, 0b11))) is None
    assert Perfect({}).speed(job, at((0, 0b11))) is None


@pytest.mark.parametrize(("gpus", "tier", "factor"), [(2, 0, 1), (2, 1, 2), (2, 2, 4), (6, 1, 2), (6, 2, 4),
                                                      (12, 2, 4)])  # fmt: skip
def test_a_tier_is_judged_by_gpus_that_really_span_it(gpus: int, tier: int, factor: float) -> None:
    forecast, scheduler = scene()
    assert forecast.run_time_at(scheduler.view, active("g", gpus), tier, 0.0) == 60.0 * factor


def test_openings_are_the_moments_at_which_running_jobs_make_room() -> None:
    forecast, scheduler = scene()
    view = scheduler.view
    for name, machine in (("a", 0), ("b", 1), ("c", 2)):
        job, where = active(name, 3), Placement.of([(machine, 0b0111)])
        view.free.take(where)
        forecast.got_gpus(view, job, where)
        job.speed = 1.0
    view.free.take(at((3, 0b1111)))
    forecast.begin(view, 0.0)
    assert [forecast.opening(view, Demand(2, None), 0, ahead) for ahead in range(4)] == [100, 200, 400, math.inf]
    assert forecast.opening(view, Demand(8, None), 1, 0) == 200  # a whole rack
    assert forecast.opening(view, Demand(2, None), 1, 0) == 0  # one GPU each of two machines: now


def test_openings_that_took_longer_than_expected_are_expected_later() -> None:
    forecast, scheduler = scene()
    view = scheduler.view
    first = active("a", 4)
    forecast.got_gpus(view, first, at((0, 0b1111)))
    for machine in range(4):
        view.free.take_mask(machine, 0b1111)
    forecast.begin(view, 0.0)
    waiting = active("g", 4)
    soon = forecast.opening(view, waiting.demand, 0, 0)
    forecast.expects(waiting, 0, soon)
    forecast.begin(view, 5 * soon)
    forecast.got_gpus(view, waiting, at((1, 0b1111)))
    forecast.left_gpus(waiting)
    forecast.begin(view, 0.0)
    forecast.got_gpus(view, first, at((0, 0b1111)))  # as at the beginning
    assert forecast.opening(view, waiting.demand, 0, 0) == pytest.approx(soon * 1.4)  # 0.9 · 1 + 0.1 · 5
    assert forecast.opening(view, Demand(3, None), 0, 0) == soon  # each demand learns for itself


def test_a_job_that_outlasts_its_declaration_is_expected_to_end_later_not_at_once() -> None:
    forecast, scheduler = scene()
    view = scheduler.view
    job = active("a", 4)
    forecast.begin(view, 0.0)
    view.free.take(at((0, 0b1111)))
    forecast.got_gpus(view, job, at((0, 0b1111)))
    job.work_done = 150.0  # it declared 100
    forecast.begin(view, 150.0)
    assert forecast.opening(view, Demand(16, None), 2, 0) > 150.0 + 1.0


def test_a_failed_machine_is_nobodys_opening() -> None:
    forecast, scheduler = scene()
    scheduler.step(0.0, [ev.MachineDown(m) for m in range(4)])
    forecast.begin(scheduler.view, 0.0)
    assert forecast.opening(scheduler.view, Demand(1, None), 0, 0) == math.inf
