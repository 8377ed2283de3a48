"""Collectives over arbitrary placements."""

from __future__ import annotations

import pytest
from fabrics import MACHINES, RACKS, cluster, place, placements
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.core.placement import Placement
from dally.core.topology import LinkKind
from dally.network.group import Group
from dally.network.nccl import COLLECTIVES, LAUNCH, Cost, candidates, choose, costs, ordered_ring, ring
from dally.network.shape import HOST_LINK, Shapes, subset

TOTAL = {"all-reduce": 2.0, "reduce-scatter": 1.0, "all-gather": 1.0, "broadcast": 1.0}
sizes = st.floats(1.0, 1e10)


def by_name(topology, placement: Placement, op="all-reduce") -> dict[str, Cost]:
    shapes = Shapes(topology)
    return {cost.algorithm: cost for cost in costs(shapes.of(placement), shapes.wires, op, "any")}


@given(placements(least=2), st.booleans())
def test_every_algorithm_moves_each_byte_as_often_as_it_must(placement: Placement, islands: bool) -> None:
    n = placement.gpus
    for op, factor in TOTAL.items():
        for name, cost in by_name(cluster(islands=islands), placement, op).items():
            sent = sum(cost.traffic)
            assert sent == pytest.approx(factor * (n - 1)), (op, name)


@given(placements(least=2))
def test_an_all_to_all_sends_all_but_the_own_part(placement: Placement) -> None:
    n = placement.gpus
    assert sum(by_name(cluster(), placement, "all-to-all")["direct"].traffic) == pytest.approx(n - 1)


@given(placements(least=2))
def test_parameter_servers_see_every_gradient_and_every_weight_once(placement: Placement) -> None:
    shapes = Shapes(cluster())
    (cost,) = costs(shapes.of(placement), shapes.wires, "all-reduce", "parameter-server")
    assert sum(cost.traffic) == pytest.approx(2 * placement.gpus)


@given(placements(least=2), sizes, st.sampled_from(COLLECTIVES), st.sampled_from(["auto", "any"]))
def test_the_chooser_is_never_slower_than_the_best_algorithm_it_knows(placement, size, op, choice) -> None:
    shapes = Shapes(cluster())
    shape = shapes.of(placement)
    chosen = choose(costs(shape, shapes.wires, op, choice), size).seconds(size)
    for name in candidates(op, choice):
        (alone,) = costs(shape, shapes.wires, op, name)
        assert chosen <= alone.seconds(size)


@given(placements(least=2), sizes, st.floats(1.0, 10.0), st.floats(1.0, 10.0), st.integers(0, 2))
def test_more_bandwidth_or_less_latency_never_slows_a_collective(placement, size, more, less, which) -> None:
    bandwidths = [300e9, 12.5e9, 25e9]
    latencies = [1e-6, 5e-6, 2e-5]
    slow = by_name(cluster(*bandwidths, latencies), placement)
    bandwidths[which] *= more
    latencies[which] /= less
    fast = by_name(cluster(*bandwidths, latencies), placement)
    for name in slow:
        assert fast[name].seconds(size) <= slow[name].seconds(size) * (1 + 1e-12), name


@given(placements(least=2), st.permutations(range(MACHINES)), st.permutations(range(RACKS)))
def test_a_permutation_of_machines_and_racks_changes_nothing(placement, machines, racks) -> None:
    shapes = Shapes(cluster())
    moved = Placement.of(
        (racks[machine // MACHINES] * MACHINES + machines[machine % MACHINES], mask)
        for machine, mask in placement.slices
    )
    assert shapes.of(moved) == shapes.of(placement)


@given(placements())
def test_the_counts_of_a_group_add_up(placement: Placement) -> None:
    shapes = Shapes(cluster(islands=True))
    group = Group(shapes.of(placement), shapes.wires)
    assert group.n == placement.gpus
    assert sum(group.joins) == placement.gpus - 1
    assert [span[0] for span in group.spans[0]] == sorted(span[0] for span in group.spans[0])
    assert all(sum(stop - start for start, stop in spans) == group.n for spans in group.spans)


def test_eight_gpus_in_one_machine_ring_at_the_speed_of_their_ports() -> None:
    cost = by_name(cluster(), place((0, 8)))["ring"]
    assert cost.latency == pytest.approx(LAUNCH + 14 * 2e-6)  # 2(n−1) messages, two hops to a switch
    assert cost.alone == pytest.approx(2 * 7 / 8 / 300e9)
    assert cost.ports == pytest.approx((1.75, 0, 0))


def test_three_and_five_gpus_on_two_machines_share_one_nic_each() -> None:
    found = by_name(cluster(), place((0, 3), (1, 5)))
    assert found["ring"].alone == pytest.approx(1.75 / 12.5e9)
    assert found["tree"].alone == pytest.approx(1.0 / 12.5e9)
    # reduce-scatter among five, all-reduce of both machines, all-gather among five
    assert found["hierarchical"].alone == pytest.approx(2 * 0.8 / 300e9 + 1.0 / 12.5e9)
    assert found["direct"].alone == pytest.approx(2 * 3 * 5 / 8 / 12.5e9)


def test_a_machine_alone_in_its_rack_still_needs_its_nic() -> None:
    cost = by_name(cluster(), place((0, 8), (3, 8)))["ring"]
    assert cost.ports[1] == pytest.approx(2 * 15 / 16)
    assert cost.traffic[1] == 0


def test_one_gpu_cannot_fill_eight_nics() -> None:
    wide = cluster(nic=8 * 25e9, uplink=1e12)
    assert by_name(wide, place((0, 1), (1, 1)))["ring"].alone == pytest.approx(1 / HOST_LINK)
    assert by_name(wide, place((0, 8), (1, 8)))["tree"].alone == pytest.approx(2 / 300e9)


def test_hierarchical_uplinks_are_fed_by_all_machines_of_a_rack() -> None:
    found = by_name(cluster(nic=1e9, uplink=1e9), place((0, 8), (1, 8), (3, 8), (4, 8)))["hierarchical"]
    # in the machine, between two machines (half each way), and a half through each NIC for one through the uplink
    assert found.alone == pytest.approx(2 * 7 / 8 / 300e9 + 1 / 1e9 + 1 / 1e9)
    assert found.ports[1] == pytest.approx(1 + 0.5)


def test_a_ring_in_the_order_of_the_tree_is_the_ring() -> None:
    shapes = Shapes(cluster())
    group = Group(shapes.of(place((0, 3), (1, 5), (3, 4))), shapes.wires)
    given_order, own = ordered_ring(group, range(12), "all-reduce"), ring(group, "all-reduce")
    assert given_order.alone == pytest.approx(own.alone)
    assert given_order.latency == pytest.approx(own.latency)
    assert given_order.ports == pytest.approx(own.ports)


def test_a_ring_that_crosses_racks_twice_uses_their_uplinks_twice() -> None:
    shapes = Shapes(cluster(uplink=1e9))
    group = Group(shapes.of(place((0, 1), (1, 1), (3, 1), (4, 1))), shapes.wires)
    good = ordered_ring(group, [0, 1, 2, 3], "all-reduce")
    bad = ordered_ring(group, [0, 2, 1, 3], "all-reduce")
    assert bad.ports[2] == pytest.approx(2 * good.ports[2])
    assert bad.alone == pytest.approx(2 * good.alone)
    with pytest.raises(UserError, match="each of 0 … 3 once"):
        ordered_ring(group, [0, 0, 1, 2], "all-reduce")


def test_halving_doubling_on_a_switch_needs_log_n_messages_each_way() -> None:
    cost = by_name(cluster(), place((0, 8)))["halving-doubling"]
    assert cost.latency == pytest.approx(LAUNCH + 2 * 3 * 2e-6)
    assert cost.alone == pytest.approx(2 * 7 / 8 / 300e9)


def test_direct_on_a_ring_of_machines_hands_messages_on() -> None:
    placement = place((0, 2), (1, 2), (2, 2))
    switch = by_name(cluster(), placement)["direct"]
    around = by_name(cluster(kind=LinkKind.RING), placement)["direct"]
    assert around.alone >= switch.alone


def test_small_messages_take_the_tree_and_large_ones_the_ring() -> None:
    shapes = Shapes(cluster(nic=200e9, uplink=600e9))
    found = costs(shapes.of(place(*((m, 8) for m in range(9)))), shapes.wires, "all-reduce")
    assert choose(found, 1e3).algorithm in ("tree", "hierarchical")
    assert choose(found, 1e10).algorithm == "ring"


def test_one_gpu_has_nothing_to_send() -> None:
    shapes = Shapes(cluster())
    (cost,) = costs(shapes.of(place((0, 1))), shapes.wires, "all-reduce")
    assert cost.seconds(1e9) == 0


@given(placements(), st.data())
@settings(max_examples=50)
def test_a_part_of_a_gang_has_the_shape_of_its_own_gpus(placement: Placement, data: st.DataObject) -> None:
    shapes = Shapes(cluster())
    shape = shapes.of(placement)
    positions = sorted(data.draw(st.sets(st.integers(0, placement.gpus - 1), min_size=1)))
    assert Group(subset(shape, positions, 0), shapes.wires).n == len(positions)
    assert subset(shape, range(placement.gpus), 0) == shape


def test_unknown_names_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="there is no collective algorithm 'star'"):
        candidates("all-reduce", "star")
    with pytest.raises(UserError, match="there is no collective 'gather'"):
        candidates("gather", "auto")  # type: ignore[arg-type]
