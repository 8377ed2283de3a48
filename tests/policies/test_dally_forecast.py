"""What waiting by value believes: run times by tier, openings from the ends of running jobs, and how late."""

from __future__ import annotations

import json
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
from dally.policies.dally.beliefs import Beliefs
from dally.policies.dally.ends import Ends
from dally.policies.dally.examples import Examples
from dally.policies.dally.forecast import Forecast, ValueMemory
from dally.policies.dally.tiers import Tiers
from dally.policies.options import make_policy
from dally.simulator.knowledge import Nothing, Perfect, speeds

TREE = cluster(2, 2, 4)
SLOW = make_network("level-penalty[rack=2,cluster=4]", TREE)


class Scene:
    """A cluster with jobs put on it by hand, and what is remembered of them."""

    def __init__(self, known: bool = True) -> None:
        work = {"a": 100.0, "b": 200.0, "c": 400.0, "g": 60.0}
        speed = speeds(dict.fromkeys(work, 1.0), SLOW)
        estimates = Perfect(work, speed) if known else Nothing()
        self.scheduler = Scheduler(TREE, make_policy("fifo"), SilentWorld(), Journal(), estimates)
        self.view, self.memory, self.tiers = self.scheduler.books.view, ValueMemory(), Tiers(TREE, "best")
        self.examples = Examples(TREE, self.tiers)

    def forecast(self, now: float = 0.0) -> Forecast:
        forecast = Forecast(self.tiers, self.examples, self.view, self.memory, now)
        forecast.begin()
        return forecast

    def job(self, name: str, gpus: int) -> ActiveJob:
        """A job the books know; nobody has been asked about it."""
        made = self.scheduler.books.jobs[name] = ActiveJob(Job(name, 0.0, gpus), len(self.scheduler.books.jobs), 0.0)
        return made

    def runs(self, name: str, where: Placement, now: float = 0.0) -> ActiveJob:
        job = self.job(name, where.gpus)
        self.view.free.take(where)
        self.forecast(now).got_gpus(job, where)
        job.placement, job.speed = where, 1.0
        return job


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
    scene = Scene()
    assert scene.forecast().run_time_at(scene.job("g", gpus), tier) == 60.0 * factor


def test_openings_are_the_moments_at_which_running_jobs_make_room() -> None:
    scene = Scene()
    for name, machine in (("a", 0), ("b", 1), ("c", 2)):
        scene.runs(name, at((machine, 0b0111)))
    scene.view.free.take(at((3, 0b1111)))
    forecast = scene.forecast()
    assert [forecast.opening(Demand(2, None), 0, ahead) for ahead in range(4)] == [100, 200, 400, math.inf]
    assert forecast.opening(Demand(8, None), 1, 0) == 200  # a whole rack
    assert forecast.opening(Demand(2, None), 1, 0) == 0  # one GPU each of two machines: now


def test_openings_that_took_longer_than_expected_are_expected_later() -> None:
    scene = Scene()
    first = scene.runs("a", at((0, 0b1111)))
    for machine in range(1, 4):
        scene.view.free.take_mask(machine, 0b1111)
    waiting = scene.job("g", 4)
    before = scene.forecast()
    before.queued(waiting)
    soon = before.opening(waiting.demand, 0, 0)
    before.expects(waiting, 0, soon)
    scene.forecast(2 * soon).expects(waiting, 0, 9 * soon)  # what it hoped for at first counts
    later = scene.forecast(5 * soon)
    later.got_gpus(waiting, at((1, 0b1111)))
    later.left_gpus(waiting)
    after = scene.forecast()
    after.got_gpus(first, at((0, 0b1111)))  # as at the beginning
    assert after.opening(waiting.demand, 0, 0) == pytest.approx(soon * 1.4)  # 0.9 · 1 + 0.1 · 5
    assert after.opening(Demand(3, None), 0, 0) == soon  # each demand learns for itself


def test_a_job_that_outlasts_its_declaration_is_expected_to_end_later_not_at_once() -> None:
    scene = Scene()
    job = scene.runs("a", at((0, 0b1111)))
    job.work_done = 150.0  # it declared 100
    job.since = job.progress_from = 150.0
    assert scene.forecast(150.0).opening(Demand(16, None), 2, 0) > 150.0 + 1.0


def test_a_failed_machine_is_nobodys_opening() -> None:
    scene = Scene()
    scene.scheduler.step(0.0, [ev.MachineDown(machine.name) for machine in TREE.machines])
    assert scene.forecast().opening(Demand(1, None), 0, 0) == math.inf


def test_what_is_remembered_is_plain_and_reads_back_the_same() -> None:
    scene = Scene()
    scene.runs("a", at((0, 0b11), (2, 0b11)))
    waiting = scene.job("g", 4)
    forecast = scene.forecast(3.0)
    forecast.queued(waiting)
    forecast.expects(waiting, 0, 50.0)
    forecast.ended(scene.job("b", 2), finished=True)
    Beliefs(scene.memory).learn(Demand(2, "gpu"), 100.0, 130.0)
    saved = scene.memory.save(TREE)
    again = ValueMemory.load(json.loads(json.dumps(saved, allow_nan=False)), TREE)
    assert again.save(TREE) == saved
    assert again.apart == {"a": True} and again.waits["g"] == scene.memory.waits["g"]
    assert list(Ends(again).latest()) == list(Ends(scene.memory).latest())


def test_a_gang_that_no_machine_holds_finds_room_where_as_few_machines_as_can_be_have_an_even_share() -> None:
    scene = Scene()
    scene.runs("a", at((0, 0b0011)))  # until 100 s
    scene.runs("b", at((1, 0b1000)))  # until 200 s
    scene.runs("c", at((2, 0b1111)))  # until 400 s
    forecast = scene.forecast()
    assert forecast.opening(Demand(5, None), 1, 0) == 0.0 + 100.0  # three of each of two: five GPUs are free before
    assert forecast.opening(Demand(8, None), 1, 0) == 200.0
    assert forecast.opening(Demand(8, None), 1, 1) == 400.0  # the other rack
    assert forecast.opening(Demand(4, None), 0, 0) == 0.0  # a machine holds it: as before
    assert scene.tiers.scattered(at((0, 0b1111), (1, 0b11), (2, 0b11)))
    assert not scene.tiers.scattered(at((0, 0b1111), (1, 0b1111)))
    assert not scene.tiers.scattered(at((0, 0b1), (1, 0b1), (2, 0b1)))  # a machine holds it: that is a matter of tiers


def test_gpus_that_the_cluster_does_not_have_have_no_place_in_it() -> None:
    scene = Scene()
    assert scene.tiers.smallest(Demand(1, "b200")) == scene.tiers.count - 1
    assert scene.examples.of(1, "b200", 0) is None
