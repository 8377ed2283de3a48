"""The lower bound where jobs are packed or resized: still below, and not more generous than need be."""

from __future__ import annotations

import pytest

from builders import Pairwise, Timed, at, cluster, job, play
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.sharing import NoInterference, Share
from dally.report.bound import bound_of
from dally.simulator.bounds import lower_bounds
from dally.simulator.packing_bound import packed_throughput

HERE = at((0, 0b1))


def test_two_packed_jobs_beat_the_bound_of_whole_gpus_and_not_their_own() -> None:
    topology = cluster(1, 1)
    plan = [pl.Start("a", HERE), pl.Start("b", HERE, None, Share(beside="a"))]
    played = play([job("a", 1, 100), job("b", 1, 100)], topology, Timed({0.0: plan}), interference=Pairwise(1.25))
    whole = lower_bounds([0, 0], [1, 1], [100, 100], 1)
    bound = bound_of(played.run, topology)
    assert played.run.packed_throughput == pytest.approx(1.6)
    assert played.end("a") == pytest.approx(125.0) and whole.makespan > 199
    assert bound.makespan == pytest.approx(125.0)  # and it is reached
    assert bound.avg_jct is not None and bound.avg_jct <= 125.0


def test_sliced_jobs_keep_the_bound_of_whole_gpus() -> None:
    topology = cluster(1, 1)
    plan = [pl.Start("a", HERE), pl.Start("b", HERE, None, Share())]
    played = play([job("a", 1, 100), job("b", 1, 100)], topology, Timed({0.0: plan}))
    assert bound_of(played.run, topology).makespan == pytest.approx(200.0)


def test_a_grown_job_beats_the_bound_of_its_gang_and_not_its_own() -> None:
    topology = cluster(1, 4)
    agenda = {0.0: [pl.Start("a", HERE)], 1.0: [pl.Resize("a", at((0, 0b1111)))]}
    played = play([job("a", 1, 101, limits=(1, 4))], topology, Timed(agenda))
    assert played.end("a") == pytest.approx(1 + 25)
    bound = bound_of(played.run, topology)
    assert bound.makespan == pytest.approx(101 / 4)


def test_an_elastic_job_nobody_resized_is_bounded_as_the_gang_it_is() -> None:
    topology = cluster(1, 4)
    played = play([job("a", 1, 101, limits=(1, 4))], topology, Timed({0.0: [pl.Start("a", HERE)]}))
    assert bound_of(played.run, topology).makespan == pytest.approx(101)


def test_what_a_gpu_can_do_at_a_time_is_the_best_pack_that_fits() -> None:
    jobs = [Job("a", 0, 1, model="x"), Job("b", 0, 1, model="y"), Job("c", 0, 2, model="x")]
    assert packed_throughput(jobs, ["gpu"], Pairwise(1.25), 1) == 1.0
    assert packed_throughput(jobs, ["gpu"], Pairwise(1.25), 2) == pytest.approx(1.6)
    assert packed_throughput(jobs, ["gpu"], Pairwise(1.25), 3) == pytest.approx(3 / 1.25**2)
    assert packed_throughput(jobs, ["gpu"], Pairwise(1.25, most=1), 3) == 1.0
    assert packed_throughput(jobs, ["gpu"], Pairwise(2.5), 2) == 1.0
    assert packed_throughput(jobs, ["gpu"], NoInterference(), 7) == 7.0
