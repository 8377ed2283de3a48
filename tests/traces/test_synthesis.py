"""Synthetic workloads: deterministic, at the load asked for, and shaped like what they are named after."""

from __future__ import annotations

import numpy as np
import pytest

from dally.core.errors import UserError
from dally.core.job import DurationMeans
from dally.traces import Trace, offered_load, synthesise, workloads

NAMES = [name for name, _ in workloads()]
FLOWING = [name for name in NAMES if name != "dally-batch"]


def durations(trace: Trace) -> np.ndarray:
    return np.array([truth.duration for truth in trace.truths])


def demands(trace: Trace) -> np.ndarray:
    return np.array([job.gpus for job in trace.jobs])


def gaps(trace: Trace) -> np.ndarray:
    return np.diff([job.submit_time for job in trace.jobs])


def close(found: np.ndarray, points: dict[float, float], tolerance: float) -> None:
    for probability, wanted in points.items():
        assert np.quantile(found, probability) == pytest.approx(wanted, rel=tolerance), f"quantile {probability}"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(name: str) -> None:
    first, again, other = (synthesise(name, jobs=200, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first.jobs != other.jobs
    assert [job.submit_time for job in first.jobs] == sorted(job.submit_time for job in first.jobs)
    assert first.jobs[0].submit_time == 0.0
    assert len({job.id for job in first.jobs}) == 200


@pytest.mark.parametrize("name", NAMES)
def test_a_longer_trace_begins_with_the_shorter_one(name: str) -> None:
    short, long = synthesise(name, jobs=100, seed=3), synthesise(name, jobs=250, seed=3)
    assert long.jobs[:100] == short.jobs
    assert long.truths[:100] == short.truths


@pytest.mark.parametrize("name", FLOWING)
@pytest.mark.parametrize("load", [0.5, 1.2])
def test_the_offered_load_is_reached(name: str, load: float) -> None:
    trace = synthesise(name, jobs=3000, seed=11, load=load, capacity=256, max_gpus=64)
    assert offered_load(trace, 256) == pytest.approx(load, rel=0.02)
    assert demands(trace).max() <= 64


def test_a_cap_on_demand_is_counted() -> None:
    trace = synthesise("helios", jobs=2000, seed=1, max_gpus=8)
    assert demands(trace).max() == 8
    assert trace.repaired["asked for more than 8 GPUs: capped"] > 50


@pytest.mark.parametrize("name", ["helios-multi", "philly-multi", "dally-poisson"])
def test_multi_gpu_workloads_have_no_single_gpu_job(name: str) -> None:
    assert demands(synthesise(name, jobs=2000, seed=2)).min() >= 2


def test_philly_has_the_measured_quantiles() -> None:
    trace = synthesise("philly", jobs=60_000, seed=1)
    close(durations(trace), {0.1: 61, 0.25: 115, 0.5: 1144, 0.75: 2932, 0.9: 11264, 0.95: 43642}, 0.2)
    demand = demands(trace)
    assert (demand == 1).mean() == pytest.approx(0.932, abs=0.005)
    close(durations(trace)[demand > 1], {0.5: 4582, 0.75: 83260, 0.9: 208400}, 0.25)
    close(gaps(trace), {0.5: 8, 0.75: 44, 0.9: 361, 0.95: 599}, 0.25)


def test_helios_has_the_published_quantiles_and_means() -> None:
    trace = synthesise("helios", jobs=60_000, seed=1)
    found, demand = durations(trace), demands(trace)
    for limit, share in ((64, 0.2488), (256, 0.5657), (1024, 0.7525), (8192, 0.9075), (65536, 0.9777)):
        assert (found <= limit).mean() == pytest.approx(share, abs=0.01)
    assert np.median(found) == pytest.approx(206, rel=0.1)
    assert found.mean() == pytest.approx(6652, rel=0.15)
    assert demand.mean() == pytest.approx(3.716, rel=0.1)
    for gpus, share in ((1, 0.7219), (4, 0.8047), (8, 0.9469), (32, 0.9935)):
        assert (demand <= gpus).mean() == pytest.approx(share, abs=0.01)
    assert gaps(trace).mean() == pytest.approx(10.0, rel=0.1)


def test_helios_submits_most_in_the_afternoon_and_least_before_dawn() -> None:
    trace = synthesise("helios", jobs=60_000, seed=1)
    hours = np.array([int(job.submit_time // 3600) % 24 for job in trace.jobs])
    counts = np.bincount(hours, minlength=24)
    assert counts[16] > 5 * counts[6]


def test_pai_has_the_published_quantiles_and_shares_of_gpus() -> None:
    trace = synthesise("pai", jobs=60_000, seed=1)
    for limit, share in ((64, 0.2106), (512, 0.509), (4096, 0.7851), (32768, 0.9705)):
        assert (durations(trace) <= limit).mean() == pytest.approx(share, abs=0.01)
    assert (demands(trace) == 1).mean() == pytest.approx(0.9707, abs=0.005)
    share = np.array([job.gpu_fraction for job in trace.jobs])
    assert (share < 1).mean() == pytest.approx(0.546, abs=0.02)
    assert all(job.gpus == 1 for job in trace.jobs if job.gpu_fraction < 1)


def test_gavel_draws_durations_over_powers_of_ten() -> None:
    trace = synthesise("gavel", jobs=40_000, seed=1)
    minutes = durations(trace) / 60
    assert minutes.min() >= 10**1.5 - 0.02
    assert minutes.max() <= 10**4 + 0.02
    assert (minutes < 1000).mean() == pytest.approx(0.8, abs=0.01)
    assert np.quantile(minutes, 0.4) == pytest.approx(10**2.25, rel=0.05)
    demand = demands(trace)
    for gpus, share in ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)):
        assert (demand == gpus).mean() == pytest.approx(share, abs=0.01)
    assert not any(job.model == "A3C" for job in trace.jobs if job.gpus > 1)


def test_dallys_workloads_have_its_models_and_durations_on_one_gpu() -> None:
    batch, week = synthesise("dally-batch", jobs=20_000, seed=1), synthesise("dally-poisson", jobs=20_000, seed=1)
    assert all(job.submit_time == 0 for job in batch.jobs)
    assert {job.model for job in batch.jobs} == {"VGG11", "AlexNet", "MobileNetV3", "ResNet18", "ResNet50", "BERT"}
    assert all(truth.means is DurationMeans.ONE_GPU and truth.steps for truth in batch.truths)
    close(durations(batch), {0.1: 8403, 0.5: 55975, 0.75: 130500, 0.9: 203004, 0.95: 253176}, 0.1)
    close(durations(week), {0.1: 36538, 0.5: 70623, 0.75: 147300, 0.9: 229214, 0.95: 320135}, 0.1)
    assert not ((durations(week) > 11_000) & (durations(week) < 36_000)).any()
    assert gaps(week).mean() == pytest.approx(1453, rel=0.05)
    assert np.mean([job.model == "BERT" for job in week.jobs]) == pytest.approx(125 / 411, abs=0.02)


@pytest.mark.parametrize(("arguments", "says"), [
    ({"name": "google"}, "'google' is not a workload; known are philly"),
    ({"jobs": 0}, "at least one job"),
    ({"seed": -1}, "a seed is 0 or above"),
    ({"load": 0.8}, "give capacity"),
    ({"load": -1.0, "capacity": 8}, "above 0"),
    ({"load": 0.8, "capacity": 8, "jobs": 1}, "no span of submissions"),
    ({"name": "dally-batch", "load": 0.8, "capacity": 8}, "all its jobs at time 0"),
    ({"max_gpus": 0}, "max_gpus cannot be 0"),
])  # fmt: skip
def test_impossible_requests_are_refused(arguments: dict[str, object], says: str) -> None:
    name = str(arguments.pop("name", "philly"))
    with pytest.raises(UserError) as caught:
        synthesise(name, **({"jobs": 10, "seed": 1} | arguments))  # type: ignore[arg-type]
    assert says in str(caught.value)
