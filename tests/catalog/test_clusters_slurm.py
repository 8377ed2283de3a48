"""Slurm's topology files with their node lists, and hostlist expressions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.catalog.clusters import load_cluster, read_cluster
from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_nodes import parse_gres
from dally.core.errors import UserError

TOPOLOGY = """\
# leaves
SwitchName=s0 Nodes=n[01-02]   LinkSpeed=100
switchname=s1 nodes=n[03-04],\\
                  n05
SwitchName=s2 Nodes=m[1-2]
SwitchName=core0 Switches=s[0-1]
SwitchName=core1 Switches=s2  # one leaf only
SwitchName=top Switches=core[0-1]
"""
SLURM_CONF = """\
ClusterName=lab
GresTypes=gpu
NodeName=DEFAULT Gres=gpu:a100:8 CPUs=64
NodeName=n[01-05] State=UNKNOWN
NodeName=m[1-2] Gres=gpu:v100:4(S:0-1),nvme:1
NodeName=login1 Gres=
NodeName=spare Gres=gpu:v100:4
PartitionName=all Nodes=ALL Default=YES
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_tree_of_switches_becomes_levels_and_its_root_the_cluster(tmp_path: Path) -> None:
    write(tmp_path, topology__conf=TOPOLOGY, slurm__conf=SLURM_CONF)
    loaded = read_cluster(str(tmp_path / "topology.conf"))
    topology = loaded.topology
    assert [level.name for level in topology.levels] == ["machine", "rack", "block", "cluster"]
    assert [domain.name for domain in topology.domains[1]] == ["core0/s0", "core0/s1", "core1/s2", "spare/spare"]
    assert topology.machine_by_name["n05"] == 4
    assert topology.gpu_types == ("a100", "v100")  # as written: jobs ask for them in these words
    assert topology.gpus == 5 * 8 + 3 * 4
    assert loaded.notes == (
        "LinkSpeed on 1 line ignored: the fabric says it",
        "1 node not in the topology, each a rack of its own: spare",
        "1 node without GPUs left out",
    )


def test_a_folder_of_slurm_stands_for_its_topology(tmp_path: Path) -> None:
    write(tmp_path, topology__conf=TOPOLOGY, slurm__conf=SLURM_CONF)
    assert load_cluster(str(tmp_path)).gpus == 52


def test_nodes_may_be_in_an_included_file(tmp_path: Path) -> None:
    write(tmp_path, topology__conf="SwitchName=s Nodes=n[1-2]", slurm__conf="ClusterName=x\ninclude nodes.inc\n")
    (tmp_path / "nodes.inc").write_text("NodeName=n[1-2] Gres=gpu:2\n")
    assert load_cluster(str(tmp_path / "topology.conf")).gpus == 4


def test_a_single_switch_is_a_rack(tmp_path: Path) -> None:
    write(tmp_path, topology__conf="SwitchName=only Nodes=n[1-2]", slurm__conf="NodeName=n[1-2] Gres=gpu:2\n")
    topology = load_cluster(str(tmp_path / "topology.conf"))
    assert [machine.name for machine in topology] == ["only/n1", "only/n2"]


def test_a_leaf_beside_spines_is_a_block_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        topology__conf="SwitchName=l0 Nodes=a\nSwitchName=l1 Nodes=b\nSwitchName=sp Switches=l0\n"
        "SwitchName=top Switches=sp,l1\n",
        slurm__conf="NodeName=a,b Gres=gpu:1\n",
    )
    paths = [machine.path for machine in load_cluster(str(tmp_path / "topology.conf"))]
    assert paths == [("sp", "l0", "a"), ("l1", "l1", "b")]


def test_without_a_common_root_every_root_is_a_domain(tmp_path: Path) -> None:
    write(
        tmp_path,
        topology__conf="SwitchName=l0 Nodes=a\nSwitchName=l1 Nodes=b\n",
        slurm__conf="NodeName=a,b Gres=gpu:1\n",
    )
    assert [d.name for d in load_cluster(str(tmp_path / "topology.conf")).domains[1]] == ["l0", "l1"]


SCONTROL = """\
NodeName=n01 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUTot=64 Gres=gpu:h100:8(S:0-1)
   OS=Linux 5.15 #1 SMP
   CfgTRES=cpu=64,gres/gpu=8
NodeName=n02 Arch=x86_64
   Gres=(null)
"""


@pytest.mark.parametrize(
    ("name", "text", "gpus"),
    [
        ("scontrol.txt", SCONTROL, {"n01": 8}),
        ("sinfo.txt", "NODELIST GRES\nn01 gpu:h100:8(S:0-1)\nn02 gpu:2\nn02 gpu:2\n", {"n01": 8, "n02": 2}),
        ("sinfo.txt", "n[01-02] gpu:a100:4(S:0),gpu:a100:4(S:1)\n", {"n01": 8, "n02": 8}),
        ("list.csv", "node,gpus,gpu_type\nn[01-02],4,t4\nn03,0,\n", {"n01": 4, "n02": 4}),
        ("list.csv", "hostname,gres\nn01,gpu:3\n", {"n01": 3}),
    ],
)
def test_a_node_list_comes_in_several_forms(tmp_path: Path, name: str, text: str, gpus: dict[str, int]) -> None:
    write(tmp_path, topology__conf="SwitchName=s Nodes=n[01-03]\n")
    (tmp_path / name).write_text(text)
    topology = load_cluster(str(tmp_path / "topology.conf"), nodes=tmp_path / name)
    assert {machine.path[-1]: machine.gpus for machine in topology} == gpus


def test_a_node_list_alone_shares_nothing(tmp_path: Path) -> None:
    write(tmp_path, slurm__conf=SLURM_CONF)
    loaded = read_cluster(str(tmp_path / "slurm.conf"))
    assert len(loaded.topology.domains[1]) == len(loaded.topology.machines) == 8
    assert "no topology is given: every machine is a rack of its own" in loaded.notes


def test_gpus_without_a_type_get_the_given_one(tmp_path: Path) -> None:
    write(tmp_path, topology__conf="SwitchName=s Nodes=a", slurm__conf="NodeName=a Gres=gpu:4\n")
    file = str(tmp_path / "topology.conf")
    assert load_cluster(file, gpu_type="v100").gpu_types == ("V100",)
    assert read_cluster(file).notes == ("no GPU type is named for 1 of 1 machines: A100-40GB assumed",)


def test_a_node_with_two_types_is_two_machines_of_one_rack(tmp_path: Path) -> None:
    write(tmp_path, topology__conf="SwitchName=s Nodes=a", slurm__conf="NodeName=a Gres=gpu:a100:4,gpu:v100:2\n")
    loaded = read_cluster(str(tmp_path / "topology.conf"))
    assert [(m.name, m.gpus) for m in loaded.topology] == [("s/a:a100", 4), ("s/a:v100", 2)]
    assert loaded.notes == ("1 node with several GPU types: one machine per type, named NODE:TYPE",)


BLOCKS = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockName=b3 Nodes=n[5-6]\nBlockSizes=2,4\n"


def test_blocks_are_racks_and_larger_sizes_join_neighbours(tmp_path: Path) -> None:
    write(tmp_path, topology__conf=BLOCKS, slurm__conf="NodeName=n[1-6] Gres=gpu:4\n")
    topology = load_cluster(str(tmp_path / "topology.conf"))
    assert [domain.name for domain in topology.domains[1]] == ["b1..b2/b1", "b1..b2/b2", "b3/b3"]
    assert [domain.gpus for domain in topology.domains[2]] == [16, 8]


YAML = """\
---
- topology: other
  flat: true
- topology: main
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: s[1-2]
      - switch: s1
        nodes: n[1-2]
      - switch: s2
        nodes: n[3-4]
"""


def test_topology_yaml_is_read_by_its_default(tmp_path: Path) -> None:
    write(tmp_path, topology__yaml=YAML, slurm__conf="NodeName=n[1-4] Gres=gpu:4\n")
    loaded = read_cluster(str(tmp_path / "topology.yaml"))
    assert [domain.name for domain in loaded.topology.domains[1]] == ["s1", "s2"]
    assert "topology 'main' taken, the file has 2" in loaded.notes


def test_topology_yaml_knows_blocks_and_flat(tmp_path: Path) -> None:
    blocks = "- topology: t\n  block:\n    block_sizes: [2, 4]\n    blocks:\n      - {block: b1, nodes: 'n[1-2]'}\n"
    write(tmp_path, topology__yaml=blocks, slurm__conf="NodeName=n[1-4] Gres=gpu:4\n")
    assert load_cluster(str(tmp_path / "topology.yaml")).machines[0].path == ("b1", "b1", "n1")
    write(tmp_path, topology__yaml="- topology: t\n  flat: true\n")
    assert len(load_cluster(str(tmp_path / "topology.yaml")).domains[1]) == 4


@pytest.mark.parametrize(
    ("topology", "nodes", "words"),
    [
        ("SwitchName=a Switches=b\n", "NodeName=n Gres=gpu:1", "topology.conf, line 1: switch 'b' of 'a' is not"),
        ("SwitchName=a Nodes=n\nSwitchName=a Nodes=m\n", "NodeName=n Gres=gpu:1", "line 2: switch 'a' is also in"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n\n", "NodeName=n Gres=gpu:1", "is below itself"),
        ("SwitchName=a Nodes=n[1-\n", "NodeName=n Gres=gpu:1", "line 1: nodes: 'n[1-': brackets do not match"),
        ("SwitchName=a Nodes=n\nWhatever=3\n", "NodeName=n Gres=gpu:1", "line 2: 'whatever' is not a field"),
        ("SwitchName=a Nodes=n\nBlockName=b Nodes=m\n", "NodeName=n Gres=gpu:1", "switches and blocks"),
        ("BlockName=b Nodes=n\nBlockSizes=4,6\n", "NodeName=n Gres=gpu:1", "line 2: block sizes must grow"),
        ("SwitchName=a Nodes=n\n", "NodeName=n Gres=gpu:a:b:c", "slurm.conf, line 1: Gres: 'gpu:a:b:c' is not"),
        ("SwitchName=a Nodes=n\n", "NodeName=n CPUs=4", "none of its nodes has GPUs"),
        ("SwitchName=a Nodes=n\n", "ClusterName=x", "slurm.conf, line 1: expected a node and its GRES"),
        ("SwitchName=a Nodes=n\n", "NodeName=n Gres=gpu:1\nNodeName=n Gres=gpu:2", "line 2: node 'n' has other"),
    ],
)
def test_a_mistake_in_slurms_files_is_one_sentence(tmp_path: Path, topology: str, nodes: str, words: str) -> None:
    write(tmp_path, topology__conf=topology, slurm__conf=nodes + "\n")
    with pytest.raises(UserError) as caught:
        load_cluster(str(tmp_path / "topology.conf"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_topology_without_a_node_list_asks_for_one(tmp_path: Path) -> None:
    write(tmp_path, topology__conf=TOPOLOGY)
    with pytest.raises(UserError, match="says nothing of GPUs and none of slurm"):
        load_cluster(str(tmp_path / "topology.conf"))
    with pytest.raises(UserError, match="cannot be read"):
        load_cluster(str(tmp_path / "topology.conf"), nodes=tmp_path / "gone.txt")


def test_of_a_slurm_conf_and_a_node_list_the_list_says_the_gpus_and_the_configuration_the_partitions(
    tmp_path: Path,
) -> None:
    conf, listed = tmp_path / "slurm.conf", tmp_path / "nodes.txt"
    conf.write_text("NodeName=n[1-3] Gres=gpu:a100:8\nPartitionName=day Nodes=n[1-2]\nPartitionName=night Nodes=ALL\n")
    listed.write_text("NODELIST GRES\nn1 gpu:a100:8\nn2 gpu:a100:4\n")
    made = read_cluster(str(conf), nodes=listed)
    machines = made.topology.machines
    assert [(each.name.rpartition("/")[2], each.gpus) for each in machines] == [("n1", 8), ("n2", 4)]
    assert [each.sets for each in machines] == [("day", "night"), ("day", "night")]
    assert "1 node of slurm.conf not in nodes.txt left out: n3" in made.notes


def test_any_other_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Dear diary,\nnothing happened.\n")
    with pytest.raises(UserError, match="is not a cluster"):
        load_cluster(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1-2,7],m[009-011]", ["n1", "n2", "n7", "m009", "m010", "m011"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[98-101]-ib", ["n98-ib", "n99-ib", "n100-ib", "n101-ib"]),
        ("n[0-8:4]", ["n0", "n4", "n8"]),
        ("a,b, c ,", ["a", "b", "c"]),
    ],
)
def test_a_hostlist_lists_its_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[3-1]", "n[1-2", "n1-2]", "n[[1]]", "n[a]", "n[]", "", "n[0-9999999]", "a b"])
def test_a_broken_hostlist_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        expand(text)


@given(st.integers(0, 500), st.integers(0, 60), st.integers(1, 5))
def test_a_range_has_as_many_names_as_numbers(first: int, more: int, width: int) -> None:
    names = expand(f"x[{first:0{width}d}-{first + more:0{width}d}]y")
    assert [int(name[1:-1]) for name in names] == list(range(first, first + more + 1))
    assert all(len(name) - 2 >= width for name in names)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:4", ((None, 4),)),
        ("gpu", ((None, 1),)),
        ("gpu:a100", (("a100", 1),)),
        ("gpu:a100:8", (("a100", 8),)),
        ("gpu:a100:4(S:0-1)", (("a100", 4),)),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1),shard:8", (("a100", 4),)),
        ("nvme:1,gpu:1g.5gb:7,gpu:a100:1", (("1g.5gb", 7), ("a100", 1))),
        ("gpu:0", ()),
        ("(null)", ()),
        ("", ()),
    ],
)
def test_a_gres_says_how_many_gpus_of_which_type(text: str, gpus: tuple[tuple[str | None, int], ...]) -> None:
    assert parse_gres(text) == gpus


def test_a_node_below_two_switches_is_below_the_first_and_that_is_said(tmp_path: Path) -> None:
    write(tmp_path, topology__conf="SwitchName=a Nodes=n,m\nSwitchName=b Nodes=n,o\n",
          slurm__conf="NodeName=n,m,o Gres=gpu:1\n")  # fmt: skip
    loaded = read_cluster(str(tmp_path / "topology.conf"))
    assert loaded.topology.machines[0].path[0] == "a"
    assert any("below two switches, taken to be below the first: n (a, b)" in note for note in loaded.notes)


@pytest.mark.parametrize(
    "text",
    [
        "AVAIL|NODELIST |STATE |GRES |CPUS\nup|n1 |idle |gpu:a100:8 |80\nup|n2 |down* |gpu:a100:8 |80\n",
        "n1   |gpu:a100:8   |gpu:a100:0(IDX:N/A)   |256\nn2   |gpu:a100:8   |gpu:a100:8(IDX:0-7)   |256\n",
        "HOSTNAMES STATE GRES\nn1 idle gpu:a100:8\nn2 idle gpu:a100:8\n",
        '{"nodes": [{"name": "n1", "gres": "gpu:a100:8(S:0-1)"}, {"name": "n2", "gres": "gpu:a100:8"}]}',
    ],
)
def test_nodes_in_every_way_sinfo_and_slurmrestd_list_them(tmp_path: Path, text: str) -> None:
    write(tmp_path, topology__conf="SwitchName=a Nodes=n[1-2]\n", nodes__txt=text)
    loaded = read_cluster(str(tmp_path / "topology.conf"))
    assert [(machine.name, machine.gpus, machine.gpu_type) for machine in loaded.topology.machines] == [
        ("a/n1", 8, "a100"), ("a/n2", 8, "a100")]  # fmt: skip


def test_columns_of_sinfo_without_its_header_are_a_cluster_by_themselves(tmp_path: Path) -> None:
    file = tmp_path / "nodes.txt"
    file.write_text("n1   |gpu:a100:8   |gpu:a100:0(IDX:N/A)   |256  |idle\nn2   |gpu:a100:4   |gpu:a100:4(IDX:0-3) |256 |mixed\n")
    assert [machine.gpus for machine in read_cluster(str(file)).topology.machines] == [8, 4]


def test_a_switch_of_a_fat_tree_is_below_the_first_that_names_it(tmp_path: Path) -> None:
    write(tmp_path, topology__conf="SwitchName=l1 Nodes=n\nSwitchName=l2 Nodes=m\nSwitchName=l3 Nodes=o\n"
                                   "SwitchName=s1 Switches=l1,l2\nSwitchName=s2 Switches=l1,l2,l3\n",
          slurm__conf="NodeName=n,m,o Gres=gpu:1\n")  # fmt: skip
    loaded = read_cluster(str(tmp_path / "topology.conf"))
    assert [machine.path[:2] for machine in loaded.topology.machines] == [("s1", "l1"), ("s1", "l2"), ("s2", "l3")]
    assert any("taken to be below the first: l1 (s1, s2), l2 (s1, s2)" in note for note in loaded.notes)
