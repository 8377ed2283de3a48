"""The best placement that durations and the lower bound refer to is not beaten by any other."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Timed, cluster, job, play, trace
from dally.catalog.clusters import load_cluster
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.placement import Placement
from dally.network.model import Floor, Step, Uncontended
from dally.network.registry import make_network
from dally.simulator.best import BestPlacement
from dally.simulator.workload import prepare
from random_worlds import a_placement

FABRICS = ("dally", "ethernet-10g", "ethernet-100g-4to1", "infiniband-hdr", "infiniband-ndr")
CLUSTERS = [("2x3x8", fabric) for fabric in FABRICS] + [("v100=12@4", None), ("k80=16", None)]
MODELS = ("vgg16", "resnet50", "bert-large", "mobilenet-v3-small", "llama-7b", "dlrm", "gpt2-xl")


@lru_cache
def best_on(cluster: str, fabric: str | None) -> BestPlacement:
    topology = load_cluster(cluster, fabric=fabric)
    return BestPlacement(topology, make_network("analytic", topology))


@settings(max_examples=300)
@given(where=st.sampled_from(CLUSTERS), model=st.sampled_from(MODELS), data=st.data())
def test_no_placement_is_faster_than_the_best_one(where: tuple[str, str | None], model: str, data: st.DataObject) -> None:
    best = best_on(*where)
    topology = best.topology
    every = [(machine.index, bit) for machine in topology.machines for bit in range(machine.gpus)]
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=20, unique=True))
    masks: dict[int, int] = {}
    for machine, bit in chosen:
        masks[machine] = masks.get(machine, 0) | 1 << bit
    job = Job("a", 0.0, len(chosen), model=model)
    step = best.step(job)
    assert step is not None
    there = best.network.step_time(job, Placement.of(masks.items()), 0.0)
    assert there.seconds >= step.seconds * (1 - 1e-9), (there, step)


# Shapes on which a family of even splits does not hold the best placement.
@pytest.mark.parametrize(("shape", "fabric", "network", "model", "gpus"), [
    ("3x4x4", None, "astra", "bert-large", 18), ("6x8", None, "astra", "vgg16", 18),
    ("2x3x8", None, "astra", "dlrm", 10), ("4x8x8", "ethernet-100g-4to1", "analytic", "dlrm", 16),
])  # fmt: skip
def test_a_job_takes_its_traced_duration_at_the_best_placement_there_is(
    shape: str, fabric: str | None, network: str, model: str, gpus: int
) -> None:
    topology = load_cluster(shape, fabric=fabric)
    model_of = make_network(network, topology)
    spec = job("a", gpus, 36_000, model=model)
    found = BestPlacement(topology, model_of).shortest(spec.job)
    assert found is not None
    played = play([spec], topology, Timed({0.0: [pl.Start("a", found.placement)]}), network=network)
    assert played.end("a") == pytest.approx(36_000)
    assert played.workload.least_run_time["a"] <= 36_000 * (1 + 1e-9)
    chance = random.Random(f"{shape}/{model}")
    for _ in range(100):
        there = model_of.step_time(spec.job, a_placement(chance, topology, spec.job), 0.0)
        assert there.seconds >= found.step.seconds * (1 - 1e-9)


def test_of_a_job_whose_best_placement_is_not_known_the_workload_says_how_far_it_may_be() -> None:
    topology = cluster(2, 4)
    load = prepare(trace([job("a", 4, 100)]), topology, Guessing())
    assert load.best_run_time["a"] == 100 and load.least_run_time["a"] == pytest.approx(75)
    assert any("1 jobs" in note and "1.33 times" in note for note in load.notes)


class Guessing(Uncontended):
    """A model that proves less than it could."""

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        return Step(2.0, 1.0, 1.0, 2.0)

    def fastest_step(self, job: Job, gpus: int) -> Floor:
        return Floor(1.5)
