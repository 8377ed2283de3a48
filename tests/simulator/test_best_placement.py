"""The best placement that durations and the lower bound refer to is not beaten by any other."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st

from dally.catalog.clusters import load_cluster
from dally.core.job import Job
from dally.core.placement import Placement
from dally.network.registry import make_network
from dally.simulator.best import BestPlacement

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
