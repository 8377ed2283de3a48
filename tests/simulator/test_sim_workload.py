"""What the duration of a traced job means on the cluster it is simulated on; what policies may believe."""

from __future__ import annotations

import statistics

import pytest

from builders import cluster, job, mixed_cluster, play, trace
from dally.core.errors import UserError
from dally.core.job import DurationMeans, Job, Truth
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.model import Step, Uncontended
from dally.network.simple import Ideal, LevelPenalty
from dally.simulator.knowledge import Noisy, Nothing, Perfect
from dally.simulator.workload import prepare
from dally.traces.trace import Trace

TREE = cluster(2, 2, 4)


def test_a_duration_at_the_best_placement_is_the_run_time_there() -> None:
    load = prepare(trace([job("a", 8, 100), job("b", 1, 100)]), TREE, LevelPenalty(TREE))
    assert load.best_run_time == {"a": 100, "b": 100}
    assert load.reference == {"a": 1.25, "b": 1.0}


def test_a_job_at_its_best_placement_takes_its_duration_and_elsewhere_longer() -> None:
    jobs = [job("a", 4, 100), job("b", 4, 100)]
    assert play(jobs, TREE, "fifo", network="level-penalty").jcts() == {"a": 100, "b": 100}
    spread = play(jobs, TREE, "fifo[placement=spread]", network="level-penalty[rack=2,cluster=4]")
    assert spread.jcts() == {"a": 400, "b": 400}


def test_a_duration_on_one_gpu_is_shared_by_the_gang_and_communication_comes_on_top() -> None:
    jobs = [job("a", 8, 800, means=DurationMeans.ONE_GPU)]
    load = prepare(trace(jobs), TREE, LevelPenalty(TREE))
    assert (load.work["a"], load.best_run_time["a"]) == (100, 125)
    assert play(jobs, TREE, "fifo", network="level-penalty").end("a") == 125


class FasterA100(Uncontended):
    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        seconds = 1.0 if self.topology.machines[placement.slices[0][0]].gpu_type == "a100" else 3.0
        return Step(seconds, seconds, 0.0, seconds)


def test_the_best_placement_is_over_all_types_a_job_may_use() -> None:
    tree = mixed_cluster(v100=(8, 8), a100=(4,))
    load = prepare(trace([job("any", 4, 9), job("v", 4, 9, gpu_type="v100")]), tree, FasterA100(tree))
    assert load.reference == {"any": 1.0, "v": 3.0}


def test_a_job_too_large_for_the_cluster_has_no_work_here() -> None:
    load = prepare(trace([job("big", 17, 100), job("a", 1, 5)]), TREE, Ideal())
    assert set(load.work) == {"a"}


def test_a_job_that_only_counts_steps_is_refused_by_name() -> None:
    steps = Trace("t", "made", [Job("s", 0.0, 1)], [Truth(None, steps=1000.0)])
    with pytest.raises(UserError, match=r"trace t, job s.*steps"):
        prepare(steps, TREE, Ideal())


WORK = {f"j{i}": 100.0 for i in range(2000)}


def test_perfect_knowledge_is_the_truth_and_no_knowledge_is_none() -> None:
    assert Perfect(WORK).work(Job("j1", 0.0, 1)) == 100
    assert Perfect(WORK).work(Job("stranger", 0.0, 1)) is None
    assert Nothing().work(Job("j1", 0.0, 1)) is None


def test_noise_is_fixed_per_job_and_seed_and_as_wide_as_asked() -> None:
    noisy, again, other = Noisy(WORK, 0.5, 7), Noisy(WORK, 0.5, 7), Noisy(WORK, 0.5, 8)
    jobs = [Job(name, 0.0, 1) for name in WORK]
    said = [noisy.work(one) for one in jobs]
    assert said == [again.work(one) for one in reversed(jobs)][::-1]
    assert said != [other.work(one) for one in jobs]
    import math

    logs = [math.log((value or 0) / 100) for value in said]
    assert statistics.pstdev(logs) == pytest.approx(0.5, rel=0.1)
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.05)
    assert noisy.work(Job("stranger", 0.0, 1)) is None
