"""The cluster as a tree."""

from __future__ import annotations

import pytest

from builders import BLOCKS, ISLANDS, RACKS, cluster, mixed_cluster
from dally.core.errors import UserError
from dally.core.topology import Level, MachineSpec, build_topology, regular


def test_a_domain_is_its_whole_path_where_rack_names_repeat_between_blocks() -> None:
    specs = [MachineSpec((block, "rack0", "m0"), 4) for block in ("b0", "b1")]
    topology = build_topology(BLOCKS, specs)
    racks = topology.domains[topology.level_index("rack")]
    assert [rack.name for rack in racks] == ["b0/rack0", "b1/rack0"]
    assert topology.domain_of(0, 1) is not topology.domain_of(1, 1)


def test_machines_named_out_of_order_still_form_contiguous_domains() -> None:
    paths = [("r0", "a"), ("r1", "b"), ("r0", "c"), ("r1", "d")]
    topology = build_topology(RACKS, [MachineSpec(path, 2) for path in paths])
    assert [machine.path for machine in topology] == [("r0", "a"), ("r0", "c"), ("r1", "b"), ("r1", "d")]
    assert [(rack.start, rack.stop, rack.gpus) for rack in topology.domains[1]] == [(0, 2, 4), (2, 4, 4)]
    assert [machine.first_gpu for machine in topology] == [0, 2, 4, 6]


def test_every_domain_holds_exactly_the_machines_whose_path_begins_with_its_own() -> None:
    topology = cluster(2, 3, 2, 4)
    for level in range(topology.machine_level, len(topology.levels)):
        covered = []
        for domain in topology.domains[level]:
            for index in domain.machines:
                assert topology.machines[index].path[: len(domain.path)] == domain.path
                assert topology.domain_of(index, level) == domain
                covered.append(index)
            assert domain.gpus == sum(topology.machines[i].gpus for i in domain.machines)
        assert covered == list(range(len(topology.machines)))


def test_a_bare_machine_name_is_known_only_where_it_is_unambiguous() -> None:
    topology = build_topology(RACKS, [MachineSpec(p, 1) for p in (("r0", "m0"), ("r1", "m0"), ("r1", "m9"))])
    assert "m0" not in topology.machine_by_name
    assert topology.machine_by_name["m9"] == topology.machine_by_name["r1/m9"] == 2


def test_islands_split_a_machines_gpus_in_order() -> None:
    topology = regular((1, 2, 8), ISLANDS, islands=(4, 4))
    assert topology.machines[1].islands == (0x0F, 0xF0)
    assert [(d.start, d.mask) for d in topology.domains[0]] == [(0, 0x0F), (0, 0xF0), (1, 0x0F), (1, 0xF0)]


def test_a_machine_without_named_islands_is_one_island() -> None:
    topology = build_topology(ISLANDS, [MachineSpec(("r", "m"), 6)])
    assert topology.machines[0].islands == (0b111111,)


def test_capacity_without_a_type_is_that_of_the_type_there_is_most_of() -> None:
    topology = mixed_cluster(v100=(4, 4), a100=(8, 8))
    assert (topology.capacity(None), topology.capacity("v100"), topology.capacity("h100")) == (16, 8, 0)


def test_a_cluster_of_one_machine_needs_no_level_above_it() -> None:
    topology = cluster(8)
    assert topology.gpus == 8
    assert topology.machine_level == 0 == len(topology.levels) - 1


@pytest.mark.parametrize(("specs", "says"), [
    ([], "no machines"),
    ([MachineSpec(("r", "m"), 4), MachineSpec(("m",), 4)], "not as deep"),
    ([MachineSpec(("r", "m"), 4), MachineSpec(("r", "m"), 4)], "there twice"),
    ([MachineSpec(("r", "m"), 0)], "has no GPUs"),
    ([MachineSpec(("b", "r", "x", "m"), 4)], "do not fit"),
])  # fmt: skip
def test_a_tree_that_cannot_be_is_refused_in_one_sentence(specs: list[MachineSpec], says: str) -> None:
    with pytest.raises(UserError, match=says):
        build_topology(RACKS, specs)


@pytest.mark.parametrize("islands", [(4, 3), (8, 0), (-1, 9)])
def test_islands_that_do_not_make_up_the_machine_are_refused(islands: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="do not add up"):
        build_topology(ISLANDS, [MachineSpec(("r", "m"), 8, islands=islands)])


def test_links_without_bandwidth_or_with_negative_latency_are_refused() -> None:
    with pytest.raises(UserError, match="bandwidth"):
        Level("rack", bandwidth=0)
    with pytest.raises(UserError, match="bandwidth"):
        Level("rack", bandwidth=float("nan"))
    with pytest.raises(UserError, match="latency"):
        Level("rack", latency=-1)


def test_an_unknown_level_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="machine, rack, cluster"):
        cluster(2, 2, 2).level_index("row")


def test_a_cluster_with_none_of_something_is_refused() -> None:
    with pytest.raises(UserError, match="2x0x4"):
        regular((2, 0, 4), RACKS)
