"""No placement has a shorter step than the network model says there can be; over every model and odd clusters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import at, cluster
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Level, Topology, regular
from dally.network.astra import Dimension, Fabric, System
from dally.network.astra.collective import SlowestQueue
from dally.network.every import every_shape
from dally.network.model import Step, Uncontended
from dally.network.registry import make_network
from dally.network.shape import Shapes
from dally.simulator.best import BestPlacement
from dally.simulator.tabled import Tabled
from random_worlds import (
    FAST,
    NETWORKS,
    a_cluster,
    a_job,
    a_network,
    a_placement,
    a_step_from,
    a_table,
)

EDGE = 1 - 1e-9


@pytest.mark.parametrize("text", sorted(set(NETWORKS)))
@given(seed=st.integers(0, 2**48))
@settings(max_examples=15)
def test_no_placement_is_faster_than_the_floor(text: str, seed: int) -> None:
    chance = random.Random(seed)
    topology = a_cluster(chance)
    network = a_network(chance, text, topology)
    job = a_job(chance, topology)
    found = BestPlacement(topology, network).shortest(job)
    assert found is not None
    for _ in range(8):
        for placement in (a_placement(chance, topology, job), a_step_from(chance, topology, found.placement)):
            assert network.step_time(job, placement, 0.0).seconds >= found.floor * EDGE


@pytest.mark.parametrize("text", sorted(set(NETWORKS)))
@given(seed=st.integers(0, 2**48))
@settings(max_examples=8)
def test_on_a_small_cluster_the_best_placement_is_the_best_of_all_there_are(text: str, seed: int) -> None:
    chance = random.Random(seed)
    topology = a_cluster(chance, 3)
    while topology.gpus > 10:
        topology = a_cluster(chance, 3)
    network = a_network(chance, text, topology)
    job = a_job(chance, topology)
    found = BestPlacement(topology, network).shortest(job)
    assert found is not None
    least = min(network.step_time(job, placement, 0.0).seconds for placement in all_placements(topology, job))
    assert found.known and found.step.seconds == least


@given(seed=st.integers(0, 2**48))
@settings(max_examples=12)
def test_other_jobs_on_the_links_never_make_a_step_shorter_than_the_floor(seed: int) -> None:
    chance = random.Random(seed)
    topology = a_cluster(chance)
    network = make_network("analytic", topology)
    best = BestPlacement(topology, network)
    jobs = [a_job(chance, topology, FAST, f"j{number}") for number in range(4)]
    for now, job in enumerate(jobs):
        steps = network.moved([], [(job, a_placement(chance, topology, job))], float(now))
        for other in jobs:
            if other.id in steps:
                found = best.shortest(other)
                assert found is not None and steps[other.id].seconds >= found.floor * EDGE


@given(seed=st.integers(0, 2**48))
@settings(max_examples=15)
def test_an_elastic_job_has_a_floor_for_every_size(seed: int) -> None:
    chance = random.Random(seed)
    topology = a_cluster(chance)
    network = a_network(chance, chance.choice(["analytic", "astra", "tabled analytic"]), topology)
    job = a_job(chance, topology, FAST)
    size = chance.randint(1, topology.capacity(job.gpu_type))
    found = BestPlacement(topology, network).shortest(job, size)
    assert found is not None
    resized = Job(job.id, 0.0, size, gpu_type=job.gpu_type)
    for _ in range(5):
        placement = a_placement(chance, topology, resized)
        assert network.step_time(job, placement, 0.0).seconds >= found.floor * EDGE


@given(seed=st.integers(0, 2**48))
@settings(max_examples=30)
def test_every_shape_is_listed_once_and_has_a_placement(seed: int) -> None:
    chance = random.Random(seed)
    topology = a_cluster(chance, 3)
    while topology.gpus > 10:
        topology = a_cluster(chance, 3)
    shapes = Shapes(topology)
    job = a_job(chance, topology)
    kinds = [kind for kind in topology.gpu_types if job.gpu_type in (None, kind)]
    listed = {}
    for kind in kinds:
        found = every_shape(shapes, kind, job.gpus, 10_000)
        assert found is not None
        listed |= found
    assert all(shapes.of(placement) == shape for shape, placement in listed.items())
    assert set(listed) == {shapes.of(placement) for placement in all_placements(topology, job)}


def all_placements(topology: Topology, job: Job) -> Iterator[Placement]:
    for kind in topology.gpu_types:
        if job.gpu_type in (None, kind):
            gpus = [(m.index, bit) for m in topology.machines if m.gpu_type == kind for bit in range(m.gpus)]
            for chosen in combinations(gpus, job.gpus):
                masks: dict[int, int] = {}
                for machine, bit in chosen:
                    masks[machine] = masks.get(machine, 0) | 1 << bit
                yield Placement.of(masks.items())


def test_too_many_shapes_are_not_listed() -> None:
    assert every_shape(Shapes(cluster(4, 8, 8)), "gpu", 64, 300) is None


def test_a_gang_the_cluster_cannot_hold_has_no_step() -> None:
    topology = cluster(2, 4)
    for text in ("level-penalty", "analytic", "astra", "artist"):
        floor = make_network(text, topology).fastest_step(Job("a", 0, 9), 9)
        assert floor is not None and floor.seconds == float("inf")
        assert BestPlacement(topology, make_network(text, topology)).shortest(Job("a", 0, 9)) is None


@pytest.mark.parametrize("model", ["resnet50", "vgg16", "bert-large", "gpt2-xl", "llama-7b", "mobilenetv3-small"])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 12, 16, 64, 128])
def test_on_a_plain_cluster_floor_and_best_placement_meet(model: str, gpus: int) -> None:
    levels = [Level("machine", bandwidth=300e9, latency=1e-6), Level("rack", bandwidth=12.5e9, latency=5e-6),
              Level("cluster", bandwidth=25e9, latency=1e-5)]  # fmt: skip
    topology = regular((4, 8, 8), levels, gpu_type="V100")
    for text in ("analytic", "astra", "artist"):
        found = BestPlacement(topology, make_network(text, topology)).shortest(Job("a", 0, gpus, model=model))
        assert found is not None and found.known, text


class Silent(Uncontended):
    """A model that does not say how short a step can be: the second machine is fast, and nobody tries it."""

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        seconds = 3.0 if placement.slices[0][0] == 0 else 2.0
        return Step(seconds, 1.5, seconds - 1.5, seconds)


def test_of_a_model_that_says_nothing_computing_alone_is_the_floor() -> None:
    found = BestPlacement(cluster(2, 4), Silent()).shortest(Job("a", 0, 4))
    assert found is not None and found.floor == 1.5 and not found.known
    assert Silent().step_time(Job("a", 0, 4), at((1, 0b1111)), 0.0).seconds >= found.floor


def test_a_table_moves_the_floor_with_the_speed_of_the_type_and_size_that_were_declared() -> None:
    topology = regular((2, 4), [Level("machine"), Level("cluster", bandwidth=1e9)], gpu_type="V100")
    network = Tabled(make_network("analytic", topology), a_table(random.Random(0), topology), topology)
    job = Job("a", 0, 4, model="vgg16", min_gpus=1, max_gpus=8)
    best = BestPlacement(topology, network)
    rate = network.table.rate("vgg16", 4, "V100")
    assert rate is not None and (found := best.shortest(job)) is not None
    assert found.step.seconds == pytest.approx(1 / rate) and found.known
    one = best.shortest(job, 1)
    assert one is not None and one.floor <= network.step_time(job, at((0, 0b1)), 0.0).seconds * (1 + 1e-12)


@given(
    sizes=st.lists(st.integers(2, 4), min_size=3, max_size=4),
    bandwidths=st.lists(st.sampled_from([1e9, 5e9, 50e9, 300e9]), min_size=4, max_size=4),
    faster=st.lists(st.sampled_from([1.0, 1.5, 8.0]), min_size=4, max_size=4),
    size=st.integers(1, 2**28),
)
@settings(max_examples=60)
@example(sizes=[2, 2, 2], bandwidths=[1e9] * 4, faster=[1.0] * 4, size=2**20)
def test_the_slowest_queue_of_a_faster_fabric_is_below_every_slower_one(
    sizes: list[int], bandwidths: list[float], faster: list[float], size: int
) -> None:
    system = System(("ring",) * len(sizes))
    slow = [Dimension("ring", units, band, 500.0) for units, band in zip(sizes, bandwidths, strict=False)]
    fast = [Dimension("ring", units, band * more, 500.0)
            for units, band, more in zip(sizes, bandwidths, faster, strict=False)]  # fmt: skip
    below = SlowestQueue(fast, system).collective_ns("all-reduce", size)
    assert below <= Fabric(slow, system).collective_ns("all-reduce", size)
    assert below <= Fabric(fast, system).collective_ns("all-reduce", size)
