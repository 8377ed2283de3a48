"""Where Slurm puts a job: leaf switches by best fit, nodes in their order, weights, partitions."""

from __future__ import annotations

import pytest

from builders import cluster, mixed_cluster
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import demand_of
from dally.core.topology import Topology
from dally.policies.slurm.asks import Shape
from dally.policies.slurm.nodes import Nodes
from dally.policies.slurm.room import Chosen, RoomLater, RoomNow
from dally.policies.slurm.settings import Partition, Settings

ALL = Partition("all")


def busy(topology: Topology, used: dict[int, int]) -> FreeGpus:
    """So many GPUs of these machines are taken."""
    free = FreeGpus(topology)
    for machine, gpus in used.items():
        free.take(Placement.of([(machine, (1 << gpus) - 1)]))
    return free


def find(topology: Topology, gpus: int, used: dict[int, int] | None = None, settings: Settings | None = None,
         partition: Partition = ALL, near: str | None = None, any_nodes: bool = False, **demand: str) -> Chosen | None:  # fmt: skip
    nodes = Nodes(topology, settings or Settings(), any_nodes=any_nodes)
    free = busy(topology, used or {})
    return nodes.find(RoomNow(free), demand_of(gpus, demand.get("gpu_type"), demand.get("within")), partition, nodes.all, near)


RACKS = cluster(2, 4, 2)


def test_the_leaf_with_the_fewest_nodes_that_are_enough_gives_them() -> None:
    assert find(RACKS, 4, {4: 2, 5: 2}) == ((6, 2), (7, 2))  # two are left in the second rack, four in the first


def test_inside_a_leaf_nodes_are_taken_in_order_not_by_how_full_they_are() -> None:
    assert find(RACKS, 1, {1: 1}) == ((0, 1),)  # a packing scheduler would have filled node 1


def test_a_leaf_is_judged_by_its_nodes_not_by_its_gpus() -> None:
    assert find(RACKS, 1, {0: 2, 4: 1, 5: 1, 6: 1, 7: 1}) == ((1, 1),)  # three nodes against four


def test_a_gang_that_no_leaf_holds_takes_the_larger_leaf_first() -> None:
    assert find(RACKS, 12, {0: 2}) == ((4, 2), (5, 2), (6, 2), (7, 2), (1, 2), (2, 2))


def test_of_leaves_that_are_too_small_those_under_the_switch_that_is_enough_come_first() -> None:
    blocks = cluster(2, 2, 2, 2)  # two blocks of two racks of two nodes
    # in block 0 three nodes are free, in block 1 four: the gang of three nodes goes where it just fits
    assert find(blocks, 6, {0: 2}) == ((2, 2), (3, 2), (1, 2))


def test_lighter_nodes_go_first() -> None:
    settings = Settings(weights={"m0": 10})  # of both racks
    assert find(RACKS, 2, settings=settings) == ((1, 2),)
    assert find(RACKS, 14, settings=settings) == tuple((m, 2) for m in (1, 2, 3, 5, 6, 7, 0))


def test_a_partition_has_its_own_nodes() -> None:
    topology = mixed_cluster(v100=(4, 4), a100=(4,))
    own = Partition("own", nodes=("m1",))  # that of rack-v100
    assert find(topology, 2, partition=own) == ((1, 2),)
    assert find(topology, 8, partition=own) is None


def test_without_topology_the_tightest_stretch_of_neighbours_is_filled() -> None:
    flat = Settings(topology="flat")
    assert find(RACKS, 4, {2: 2, 5: 2}, settings=flat) == ((0, 2), (1, 2))
    assert find(RACKS, 4, {3: 2}, settings=flat) == ((0, 2), (1, 2))
    assert find(RACKS, 4, {1: 2, 4: 2}, settings=flat) == ((2, 2), (3, 2))


def test_near_refuses_what_is_spread_over_leaves() -> None:
    used = {0: 2, 1: 2, 2: 2, 4: 2, 5: 2, 6: 2}
    assert find(RACKS, 4, used) == ((3, 2), (7, 2))
    assert find(RACKS, 4, used, near="rack") is None
    assert find(RACKS, 4, {0: 2}, near="rack") is not None


def test_within_keeps_a_gang_inside_one_domain() -> None:
    assert find(RACKS, 10, within="rack") is None
    assert find(RACKS, 6, {0: 2, 1: 2}, within="rack") == ((4, 2), (5, 2), (6, 2))
    islands = cluster(1, 2, 4, islands=(2, 2))
    free = FreeGpus(islands)
    free.take(Placement.of([(0, 0b0101)]))
    nodes = Nodes(islands, Settings(), any_nodes=False)
    demand = demand_of(2, None, "island")
    chosen = nodes.find(RoomNow(free), demand, ALL, nodes.all, None)
    assert chosen == ((1, 2),) and nodes.place(free, demand, chosen).slices == ((1, 0b0011),)


@pytest.mark.parametrize(("gpus", "shape"), [(1, Shape(1, 1)), (2, Shape(1, 2)), (4, Shape(2, 2)), (8, Shape(4, 2)),
                                             (5, Shape(0, 5)), (16, Shape(8, 2)), (17, None)])  # fmt: skip
def test_a_gang_asks_for_the_fewest_nodes_with_as_many_gpus_on_each(gpus: int, shape: Shape | None) -> None:
    asks = Nodes(RACKS, Settings(), any_nodes=False).asks(demand_of(gpus, None), ALL)
    assert [ask.shape for ask in asks] == ([] if shape is None else [shape])


def test_a_gang_that_no_equal_nodes_hold_takes_gpus_wherever_they_are() -> None:
    topology = mixed_cluster(v100=(4, 2))
    assert find(topology, 6) == ((0, 4), (1, 2))


def test_any_nodes_takes_what_is_left_of_them() -> None:
    assert find(RACKS, 4, {0: 1, 4: 1}, any_nodes=True) == ((0, 1), (1, 2), (2, 1))
    assert find(RACKS, 2, {0: 1}, any_nodes=True) == ((1, 2),)  # what one node holds is still one node's


def test_room_later_counts_what_has_been_given_back() -> None:
    room = RoomLater([0, 1, 2])
    assert room.at_least(2) == 0b100 and room.at_least(1) == 0b110
    room.give(((0, 1), (1, 1)))
    assert room.at_least(2) == 0b110 and room.at_least(1) == 0b111 and room.free_on(1) == 2
