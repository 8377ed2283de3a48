"""The anatomy of a step, against a plain simulation of it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from fabrics import cluster, place, placements
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.catalog import find_gpu, find_model, models
from dally.catalog.model import Parallelism
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.cuts import passes
from dally.network.envelope import Work, _unbeaten, _unbeaten_of_two, after, at, latest
from dally.network.nccl import choose, costs, rate_at
from dally.network.schedule import Moment
from dally.network.shape import Shapes
from dally.network.step import StepOptions, StepProfile, profile, step_alone

GPU = find_gpu("V100")


def step_of(name: str, placement: Placement, topology: Topology | None = None, **options) -> StepProfile:
    shapes = Shapes(topology or cluster())
    return profile(find_model(name), GPU, shapes.of(placement), shapes.wires, StepOptions(**options))


def simulated(
    name: str, placement: Placement, topology: Topology, bucket: float | None, slower: list[float]
) -> float:
    """Buckets walked in backward order, one collective at a time, algorithms chosen without neighbours."""
    model = find_model(name)
    shapes = Shapes(topology)
    found = costs(shapes.of(placement), shapes.wires, "all-reduce")
    forward, backward, update = passes(model, GPU, model.batch_size)
    now, end, pending = sum(forward), 0.0, 0.0
    for index in range(len(model.layers) - 1, -1, -1):
        now += backward[index]
        pending += model.layers[index].gradient_bytes
        if pending and (bucket is None or pending >= bucket or index == 0):
            cost = choose(found, pending)
            end = max(end, now) + cost.latency + pending * rate_at(cost.rate, slower)
            pending = 0.0
    return max(end, now) + update


@given(placements(least=2), st.sampled_from(["resnet50", "vgg16", "bert-base", "gpt2-xl"]),
       st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), st.lists(st.floats(1.0, 50.0), min_size=2, max_size=2))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_links_with_room_to_spare_cost_nothing_and_nobody_works_out_what_neighbours_would_cost(
    placement, name, parts, shared
) -> None:
    found = step_of(name, placement)
    within = [1.0 + part * (min(room, 100.0) - 1.0) for part, room in zip(parts, found.slack, strict=True)]
    if all(room >= 1.0 for room in found.slack):
        assert found.seconds(within) == found.alone
        assert found._worked_out is None
    slower = [1.0, *shared]
    lost = [rate_at(rate, slower) - alone for rate, alone in zip(found.rates.known, found.rates.alone, strict=True)]
    longest = max(value + sum(slope * more for slope, more in zip(slopes, lost, strict=True))
                  for value, slopes in found.lines)  # fmt: skip
    assert found.seconds(slower) == pytest.approx(max(found.alone, longest), rel=1e-12)
    assert found.alone == max(found.compute, max(value for value, _ in found.lines))


@given(
    placements(least=2), st.sampled_from(["resnet50", "vgg11", "mobilenetv3-small", "bert-base"]),
    st.sampled_from([None, 1e6, 25 * 2**20]), st.lists(st.floats(1.0, 50.0), min_size=2, max_size=2),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_envelope_is_the_recursion_for_every_slowness_of_the_links(placement, name, bucket, shared) -> None:
    slower = [1.0, *shared]
    found = step_of(name, placement, bucket=bucket)
    expected = simulated(name, placement, cluster(), bucket, slower)
    if len(found.rates.alone) == 1:
        assert found.seconds(slower) == pytest.approx(expected, rel=1e-9)
    else:  # with several rates a sample of the lines is kept, which is never above
        assert found.alone == pytest.approx(simulated(name, placement, cluster(), bucket, [1.0] * 3), rel=1e-9)
        assert expected * 0.95 <= found.seconds(slower) <= expected * (1 + 1e-9)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=12), st.floats(0, 50))
def test_a_hull_of_lines_keeps_the_highest_everywhere(pairs, extra) -> None:
    lines = [(v, (m,)) for v, m in pairs]
    kept = latest(lines[:1], lines[1:])
    assert max(v + m * extra for v, (m,) in kept) == pytest.approx(max(v + m * extra for v, (m,) in lines))


def test_lines_that_never_win_are_dropped() -> None:
    now = after(at(1.0, 1), Work(2.0, (5.0,)))
    assert latest(now, at(2.0, 1)) == now
    assert len(latest(now, at(4.0, 1))) == 2


@pytest.mark.parametrize("name", list(models()))
def test_every_model_has_a_finite_step_on_any_gang(name: str) -> None:
    model = find_model(name)
    for counts in ([(0, 1)], [(0, 3)], [(0, 3), (1, 5)], [(0, 8), (3, 8)], [(0, 7), (1, 6), (4, 1), (8, 2)]):
        found = step_of(name, place(*counts))
        assert 0 < found.compute <= found.alone < float("inf")
        assert found.seconds([1.0] * 3) == found.alone
        assert found.seconds([1.0, 2.0, 3.0]) >= found.alone
    if model.memory_bytes() > GPU.memory_bytes:
        assert any("offloaded" in note for note in step_of(name, place((0, 1))).notes)


@given(placements(least=2), st.sampled_from(["resnet50", "gpt2-xl", "dlrm", "llama-70b"]), st.integers(0, 2),
       st.floats(1.0, 20.0), st.floats(1.0, 20.0))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_more_bandwidth_or_less_latency_never_slows_a_lone_job(placement, name, which, more, less) -> None:
    bandwidths, latencies = [300e9, 3e9, 6e9], [1e-6, 5e-6, 2e-5]
    slow = step_of(name, placement, cluster(*bandwidths, latencies)).alone
    bandwidths[which] *= more
    latencies[which] /= less
    assert step_of(name, placement, cluster(*bandwidths, latencies)).alone <= slow * (1 + 1e-9)


@given(placements(least=1), st.sampled_from(["resnet50", "bert-base", "gpt2-xl", "dlrm", "llama-70b"]),
       st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.booleans(), st.sampled_from([None, 1e6, 25 * 2**20]),
       st.sampled_from([0.0, 0.7, 1.0]))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_plain_numbers_lines_and_the_timeline_end_at_the_same_time(
    placement, name, tensor, pipeline, sharded, bucket, overlap
) -> None:
    shapes = Shapes(cluster())
    model = replace(find_model(name), parallelism=Parallelism(tensor=tensor, pipeline=pipeline, sharded=sharded))
    timeline: list[Moment] = []
    given_ = (model, GPU, shapes.of(placement), shapes.wires, StepOptions("auto", bucket, overlap))
    found = profile(*given_, timeline=timeline)
    assert found.alone == max(found.compute, max(value for value, _ in found.lines))
    assert found.step == step_alone(*given_)[0]
    assert max(moment.end for moment in timeline) <= found.alone


def test_one_gpu_only_computes() -> None:
    found = step_of("resnet50", place((0, 1)))
    assert found.exposed == 0
    assert found.bytes_per_level == (0, 0, 0)
    assert found.algorithm == "none"


def test_buckets_close_at_the_layer_that_fills_them() -> None:
    timeline: list[Moment] = []
    shapes = Shapes(cluster())
    model = find_model("vgg11")
    found = profile(model, GPU, shapes.of(place((0, 8))), shapes.wires, timeline=timeline)
    sends = [moment for moment in timeline if moment.lane == "network"]
    assert sum(moment.size for moment in sends) == model.gradient_bytes
    assert all(moment.size >= 25 * 2**20 for moment in sends[:-1])
    assert all(a.end <= b.start for a, b in itertools.pairwise(sends))
    assert timeline[-1].end == pytest.approx(found.alone)


def test_traffic_of_a_data_parallel_step_is_that_of_its_gradients() -> None:
    for placement in (place((0, 8)), place((0, 3), (1, 5)), place((0, 8), (4, 8))):
        found = step_of("resnet50", placement)
        expected = 2 * (placement.gpus - 1) * find_model("resnet50").gradient_bytes
        assert sum(found.traffic_per_level) == pytest.approx(expected)


def test_a_sharded_model_gathers_its_weights_twice_and_scatters_its_gradients_once() -> None:
    model = find_model("llama-7b")
    shapes = Shapes(cluster())
    timeline: list[Moment] = []
    profile(model, GPU, shapes.of(place((0, 8))), shapes.wires, timeline=timeline)
    weights = sum(m.size for m in timeline if m.what.startswith("weights"))
    gradients = sum(m.size for m in timeline if m.what.startswith("gradients"))
    last = max((m for m in timeline if m.what.startswith("gradients")), key=lambda m: int(m.what.split()[1])).size
    assert gradients == pytest.approx(model.gradient_bytes)
    assert weights == pytest.approx(2 * model.gradient_bytes - last)  # the last unit is still there when it turns


def test_tensor_groups_that_leave_their_machine_cost_more() -> None:
    near = step_of("llama-70b", place((0, 8), (1, 8)))
    far = step_of("llama-70b", place((0, 4), (1, 4), (2, 4), (3, 4)))
    assert near.layout.text() == "tensor 8 × sharded data 2"
    assert near.compute == pytest.approx(far.compute)
    assert far.alone > near.alone


def test_a_gang_that_its_hint_does_not_divide_gets_a_smaller_degree_and_a_note() -> None:
    found = step_of("llama-70b", place((0, 6), (1, 6)))
    assert found.layout.tensor == 4
    assert any("normally spread over 8 GPUs" in note for note in found.notes)


def test_a_pipeline_pays_for_its_bubble() -> None:
    shapes = Shapes(cluster())
    model = replace(find_model("gpt2"), parallelism=Parallelism(pipeline=4))
    shape = shapes.of(place((0, 8)))
    piped = profile(model, GPU, shape, shapes.wires)
    plain = profile(find_model("gpt2"), GPU, shape, shapes.wires)
    forward, backward, _ = passes(model, GPU, model.batch_size)
    bubble = 1 + 3 / model.batch_size
    assert piped.layout.text() == "pipeline 4 × data 2"
    both = sum(forward) + sum(backward)
    assert piped.compute == pytest.approx(both / 4 * bubble + (plain.compute - both) / 4)


def test_parameter_servers_load_the_nics_more_than_a_ring() -> None:
    placement = place((0, 8), (1, 8), (2, 8))
    servers = step_of("vgg16", placement, algorithm="parameter-server")
    assert servers.bytes_per_level[1] > step_of("vgg16", placement, algorithm="ring").bytes_per_level[1]


def test_the_ranks_of_a_copy_share_the_nics_when_copies_exchange_gradients() -> None:
    shapes = Shapes(cluster())
    model = replace(find_model("llama-7b"), parallelism=Parallelism(tensor=4, sharded=True))
    timeline: list[Moment] = []
    shape = shapes.of(place((0, 8), (1, 8)))
    found = profile(model, GPU, shape, shapes.wires, StepOptions("ring"), timeline=timeline)
    sent = sum(m.size for m in timeline if m.what.startswith(("weights", "gradients")))
    # four groups of four GPUs, two on each machine: every group's ring leaves a machine once
    assert found.layout.text() == "tensor 4 × sharded data 4"
    assert found.bytes_per_level[1] == pytest.approx(4 * 3 / 4 * sent)


def test_pipeline_stages_on_different_machines_send_through_the_nics() -> None:
    shapes = Shapes(cluster())
    model = replace(find_model("gpt2"), parallelism=Parallelism(pipeline=2))
    near = profile(model, GPU, shapes.of(place((0, 2))), shapes.wires)
    far = profile(model, GPU, shapes.of(place((0, 1), (1, 1))), shapes.wires)
    slots = 2 * (model.batch_size + 1)
    sample = 1024 * 768 * model.precision.compute_width  # tokens × hidden × bytes of an activation
    assert near.bytes_per_level[1] == 0
    assert far.bytes_per_level[1] == pytest.approx(slots * sample)
    assert far.alone > near.alone


_LINES = st.lists(st.tuples(st.integers(0, 4).map(float), st.tuples(st.integers(0, 4).map(float), st.integers(0, 4).map(float))),
                  min_size=1, max_size=16)  # fmt: skip


@given(_LINES)
@settings(max_examples=200)
def test_lines_of_two_rates_are_dropped_as_the_plain_rule_drops_them(lines: list[tuple[float, tuple[float, float]]]) -> None:
    """Small numbers, so that there are ties of every kind."""
    ordered = sorted(lines, reverse=True)
    assert _unbeaten_of_two(ordered) == _unbeaten(ordered)
