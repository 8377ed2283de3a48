"""Clusters written in one word, presets, and what the loader says about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.catalog import find_fabric, find_machine, wire
from dally.catalog.clusters import (
    describe_cluster,
    describe_clusters,
    describe_fabrics,
    load_cluster,
    match_gpu_type,
    read_cluster,
)
from dally.catalog.clusters.assembly import Planned, assemble
from dally.catalog.clusters.insides import inside_of
from dally.core.errors import UserError
from dally.core.topology import LinkKind, Topology


def check_tree(topology: Topology) -> None:
    """Every level covers all machines once, in contiguous ranges, and its GPUs add up."""
    for level in range(topology.machine_level, len(topology.levels)):
        domains = topology.domains[level]
        assert [domain.start for domain in domains] == [0, *(domain.stop for domain in domains[:-1])]
        assert domains[-1].stop == len(topology.machines)
        assert sum(domain.gpus for domain in domains) == topology.gpus
        assert len({domain.path for domain in domains}) == len(domains)
        for domain in domains:
            inside = [topology.machines[index] for index in domain.machines]
            assert domain.gpus == sum(machine.gpus for machine in inside)
            assert all(machine.path[: len(domain.path)] == domain.path for machine in inside)
    if topology.machine_level:
        for machine in topology.machines:
            assert sum(machine.islands) == machine.full_mask


@pytest.mark.parametrize(
    ("shape", "machines", "gpus", "levels"),
    [
        ("8", 1, 8, "island machine rack cluster"),
        ("4", 1, 4, "machine rack cluster"),
        ("1", 1, 1, "machine rack cluster"),
        ("4x8", 4, 32, "island machine rack cluster"),
        ("4x8x8", 32, 256, "island machine rack cluster"),
        ("4X8×8", 32, 256, "island machine rack cluster"),
        (" 1 x 32 x 4 ", 32, 128, "machine rack cluster"),
        ("2x4x8x8", 64, 512, "island machine rack block cluster"),
        ("2x2x4x8x8", 128, 1024, "island machine rack block zone cluster"),
    ],
)
def test_a_shape_is_racks_times_machines_times_gpus(shape: str, machines: int, gpus: int, levels: str) -> None:
    topology = load_cluster(shape)
    assert (len(topology.machines), topology.gpus) == (machines, gpus)
    assert [level.name for level in topology.levels] == levels.split()
    check_tree(topology)


def test_domains_of_a_shape_are_numbered_inside_the_one_above() -> None:
    topology = load_cluster("2x4x8x8")
    assert topology.machines[0].path == ("block0", "rack0", "m0")
    assert topology.machines[-1].path == ("block1", "rack3", "m7")
    assert len(topology.domains[topology.level_index("rack")]) == 8


def test_the_default_fabric_is_that_of_the_paper() -> None:
    island, machine, rack, cluster = load_cluster("4x8x8").levels
    assert (island.kind, island.bandwidth, island.latency) == (LinkKind.FULLY_CONNECTED, 600e9, 0)
    assert (machine.kind, machine.latency) == (LinkKind.RING, pytest.approx(500e-9))
    assert machine.bandwidth == 4 * 600e9  # the port of an island is that of its four GPUs
    assert (rack.kind, rack.bandwidth, rack.latency) == (LinkKind.RING, 8 * 200e9, pytest.approx(5e-6))
    assert (cluster.kind, cluster.bandwidth) == (LinkKind.SWITCH, 64 * 400e9)
    assert cluster.latency == pytest.approx(50e-6)


@pytest.mark.parametrize(("gpus", "islands"), [(8, [4, 4]), (6, [4, 2]), (16, [4, 4, 4, 4]), (5, [4, 1])])
def test_islands_go_as_far_as_they_go(gpus: int, islands: list[int]) -> None:
    machine = load_cluster(f"1x1x{gpus}").machines[0]
    assert [mask.bit_count() for mask in machine.islands] == islands


def test_a_machine_no_larger_than_an_island_has_no_level_of_islands() -> None:
    topology = load_cluster("2x2x4")
    assert topology.machine_level == 0
    assert topology.levels[0].kind is LinkKind.FULLY_CONNECTED


@pytest.mark.parametrize("fabric", ["dally", "ethernet-100g-4to1", "infiniband-hdr", "machine-nics"])
def test_a_regular_cluster_has_the_links_that_wiring_gives(fabric: str) -> None:
    machine = find_machine("dgx-a100")
    planned = [Planned((f"r{r}",), f"m{m}", inside_of(machine)) for r in range(3) for m in range(5)]
    levels = assemble("test", planned, find_fabric(fabric)).levels
    expected = wire(machine, find_fabric(fabric), [5, 3])
    for level, other in zip(levels, expected, strict=True):
        assert (level.kind, level.bandwidth, level.latency) == (other.kind, other.bandwidth, other.latency)


def test_a_level_beyond_the_fabric_repeats_its_outermost() -> None:
    levels = load_cluster("2x4x8x8", fabric="ethernet-100g-4to1").levels
    port = 100e9 / 8
    assert [level.bandwidth for level in levels[1:]] == [port, 8 * port / 4, 4 * (8 * port / 4) / 4]


def test_a_gpu_type_changes_the_gpus_of_a_shape() -> None:
    assert load_cluster("4x8x8").gpu_types == ("A100-40GB",)
    assert load_cluster("4x8x8", gpu_type="v100").gpu_types == ("V100",)
    plain = load_cluster("2x2x8", fabric="infiniband-hdr", gpu_type="v100")
    assert plain.levels[0].kind is LinkKind.RING  # the usual machine of a V100 on another fabric: a DGX-1
    assert plain.machine_level == 0


def test_pools_are_a_rack_per_gpu_type() -> None:
    topology = load_cluster("v100=8,p100=16,k80=24")
    assert topology.gpu_types == ("V100", "P100", "K80")
    assert [topology.capacity(kind) for kind in topology.gpu_types] == [8, 16, 24]
    assert [domain.name for domain in topology.domains[1]] == ["V100", "P100", "K80"]
    check_tree(topology)


def test_machines_of_a_pool_keep_the_links_of_their_own_type() -> None:
    links = {machine.gpu_type: machine.links[-1].bandwidth for machine in load_cluster("v100=8,k80=16")}
    assert links == {"V100": 150e9, "K80": 15.75e9}


def test_the_last_machine_of_a_pool_takes_what_is_left() -> None:
    assert [machine.gpus for machine in load_cluster("v100=20")] == [8, 8, 4]
    assert [machine.gpus for machine in load_cluster("v100=10@4")] == [4, 4, 2]
    assert [machine.gpus for machine in load_cluster("h100=3")] == [3]


def test_every_preset_builds_and_adds_up() -> None:
    sizes = {row.name: (row.gpus, row.machines) for row in describe_clusters()}
    assert sizes["dally-4x8x8"] == (256, 32)
    assert sizes["tiresias-60"] == (60, 15)
    assert sizes["gandiva-180"] == (180, 45)
    assert sizes["gavel-108"] == (108, 27)
    assert sizes["philly"] == (2490, 552)
    assert sizes["helios-venus"] == (1064, 133)
    for name in sizes:
        check_tree(load_cluster(name))
    assert all(row.source for row in describe_clusters())


def test_a_preset_takes_another_fabric_and_another_gpu_type() -> None:
    topology = load_cluster("dally-4x8x8", fabric="ethernet-10g", gpu_type="h100")
    assert topology.level_index("island") == 0  # machines stay as they are
    assert topology.levels[2].bandwidth == 10e9 / 8
    assert topology.gpu_types == ("H100",)


def test_a_preset_of_the_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text(
        "clusters:\n  lab: {shape: 2x3x4, machine: dgx-a100, fabric: ethernet-25g, source: the door}\n"
    )
    monkeypatch.setenv("DALLY_CATALOG", str(tmp_path))
    assert load_cluster("lab").gpus == 24


def test_where_machines_differ_a_level_has_the_port_of_those_with_most_gpus() -> None:
    mixed = load_cluster("v100=8,a100=64", fabric="infiniband-hdr")
    assert mixed.levels[1].bandwidth == 8 * 25e9  # DGX A100: eight 200 Gbit/s NICs; DGX-1: four of 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4x0x8", "every number of a shape must be at least 1"),
        ("1x2x3x4x5x6", "at most five numbers"),
        ("100000x100000x8", "more than 1000000 machines"),
        ("v100=8,w100=4", "no GPU 'w100'"),
        ("v100=8,V100=4", "two pools of V100"),
        ("v100=0", "at least one GPU"),
        ("v100=8@0", "at least one GPU"),
        ("v100=", "is not a pool"),
        ("v100=8,,k80=2", "is not a pool"),
        ("dally-4x8x9", "did you mean dally-4x8x8"),
        ("nowhere/at-all.yaml", "there is no cluster 'nowhere/at-all.yaml'; write"),
        ("", "there is no cluster"),
    ],
)
def test_a_mistake_in_the_word_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        load_cluster(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="names its GPU types"):
        load_cluster("v100=8", gpu_type="k80")
    with pytest.raises(UserError, match="another one cannot be given"):
        load_cluster("gavel-108", gpu_type="k80")
    with pytest.raises(UserError, match="node list goes with"):
        load_cluster("4x8x8", nodes=tmp_path / "nodes.txt")
    with pytest.raises(UserError, match="no fabric 'infinband'"):
        load_cluster("4x8x8", fabric="infinband")
    with pytest.raises(UserError, match="no GPU 'z9'"):
        load_cluster("4x8x8", gpu_type="z9")


def test_a_gpu_type_matches_however_it_is_spelt() -> None:
    topology = load_cluster("v100=8,a100=8")
    assert match_gpu_type("V100", topology) == "V100"
    assert match_gpu_type("v100", topology) == "V100"
    assert match_gpu_type("V100M16", topology) == "V100"
    assert match_gpu_type("NVIDIA-A100-SXM4-40GB", topology) == "A100-40GB"
    assert match_gpu_type("K80", topology) is None


def test_the_description_folds_what_is_alike() -> None:
    shown = describe_cluster(load_cluster("4x8x8"))
    assert [line.strip().split("  ")[0] for line in shown.tree] == ["4x8x8", "rack0 … rack3", "m0 … m7"]
    assert [(row.level, row.domains, row.joins) for row in shown.levels] == [
        ("island", 64, "4 GPUs"),
        ("machine", 32, "2 islands"),
        ("rack", 4, "8 machines"),
        ("cluster", 1, "4 racks"),
    ]
    assert shown.levels[2].bandwidth == "1.6 TB/s"
    assert describe_cluster(load_cluster("v100=8,p100=12")).gpu_types == (("V100", 1, 8), ("P100", 2, 12))


def test_a_long_tree_says_how_much_is_left_out() -> None:
    text = ",".join(f"{kind}=12" for kind in ("v100", "p100", "k80", "t4", "a10"))
    shown = describe_cluster(load_cluster(text), lines=6)
    assert len(shown.tree) == 6
    assert shown.tree[-1] == "… 11 more lines"


def test_fabrics_say_whose_bandwidth_it_is() -> None:
    shown = {(row.fabric, row.level): row.bandwidth for row in describe_fabrics()}
    assert shown["dally", "rack"] == "200 GB/s per GPU"
    assert shown["ethernet-100g-4to1", "cluster"] == "4:1 of what is below"


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("abc"), max_size=3), st.integers(1, 9), st.sampled_from(["V100", "K80"])
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(["dally", "machine-nics", "ethernet-10g-4to1"]),
)
@settings(max_examples=60, deadline=None)
def test_any_tree_however_ragged_adds_up(machines: list[tuple[list[str], int, str]], fabric: str) -> None:
    presets = {"V100": find_machine("dally-8"), "K80": find_machine("p2.8xlarge")}
    planned = [
        Planned(tuple(chain), f"n{number}", inside_of(presets[kind], gpus, kind))
        for number, (chain, gpus, kind) in enumerate(machines)
    ]
    topology = assemble("random", planned, find_fabric(fabric))
    check_tree(topology)
    assert topology.gpus == sum(gpus for _, gpus, _ in machines)
    assert describe_cluster(topology).gpus == topology.gpus
    # Unknown is never shared: a machine without domains has its rack to itself.
    for machine in topology:
        if machines[int(machine.path[-1][1:])][0] == []:
            assert len(topology.domain_of(machine.index, topology.machine_level + 1).machines) == 1


def test_a_shape_has_no_notes() -> None:
    assert read_cluster("4x8x8").notes == ()
