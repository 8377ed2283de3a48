"""The project's own cluster files: regular and explicit trees, and errors with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.core.topology import LinkKind, Topology


def load(tmp_path: Path, text: str, **options: str) -> Topology:
    file = tmp_path / "lab.yaml"
    file.write_text("dally-cluster: 1\n" + text)
    return load_cluster(str(file), **options)  # type: ignore[arg-type]


def test_a_regular_cluster_counts_racks_and_machines(tmp_path: Path) -> None:
    topology = load(tmp_path, "name: lab7\nfabric: infiniband-hdr\nracks: 4\nmachines: 8\nmachine: dgx-a100\n")
    assert topology.name == "lab7"
    assert (len(topology.machines), topology.gpus) == (32, 256)
    assert topology.machines[9].path == ("rack1", "m1")


def test_the_name_of_a_file_without_one_is_its_own(tmp_path: Path) -> None:
    assert load(tmp_path, "fabric: dally\nshape: 2x2x8\n").name == "lab"


def test_links_of_the_fabric_may_stand_in_the_file(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        """
fabric:
  levels:
    - {name: leaf, kind: switch, bandwidth: 200 Gbit/s, per: machine, latency: 2us}
    - {name: spine, kind: switch, oversubscription: 2, latency: 4us}
    - {name: site, kind: switch, bandwidth: 1 Tbit/s, per: unit, latency: 1ms}
blocks: 2
racks: 3
machines: 4
machine: dgx-a100
""",
    )
    assert [level.name for level in topology.levels] == ["machine", "leaf", "spine", "site"]
    assert [level.bandwidth for level in topology.levels[1:]] == [25e9, 4 * 25e9 / 2, 125e9]


TREE = """
fabric: ethernet-100g
machine: {preset: dgx-a100, gpus: 4}
tree:
  - name: hall-1
    units:
      - name: rack-1
        machines:
          - {names: "a[01-03]"}
          - {names: b1, preset: dgx-h100}
      - name: rack-2
        machines:
          - {count: 2, gpu: v100, gpus: 8}
  - name: hall-2
    units:
      - names: rack-[1-2]
        machines: [{count: 2}]
  - name: attic
    machines: [{count: 1, gpu: k80, gpus: 2}, {count: 2, gpu: t4}]
"""


def test_a_tree_mixes_types_and_depths(tmp_path: Path) -> None:
    topology = load(tmp_path, TREE)
    assert [level.name for level in topology.levels] == ["machine", "rack", "block", "cluster"]
    assert topology.gpus == 3 * 4 + 8 + 2 * 8 + 4 * 4 + 2 + 2 * 8
    assert topology.gpu_types == ("A100-40GB", "H100", "V100", "K80", "T4")
    assert topology.machines[3].path == ("hall-1", "rack-1", "b1")
    assert topology.machines[3].links[0].bandwidth == 450e9


def test_rack_names_may_repeat_because_a_domain_is_its_whole_path(tmp_path: Path) -> None:
    topology = load(tmp_path, TREE)
    racks = [domain.name for domain in topology.domains[1]]
    assert "hall-1/rack-1" in racks
    assert "hall-2/rack-1" in racks


def test_a_unit_that_lacks_a_level_has_it_to_itself(tmp_path: Path) -> None:
    topology = load(tmp_path, TREE)
    assert topology.machines[-1].path == ("attic", "attic", "m2")


def test_machines_beside_units_are_in_none_of_them(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        """
fabric: dally
machine: dgx-a100
tree:
  - name: hall
    machines: [{count: 2}]
    units: [{name: rack, machines: [{count: 3}]}]
""",
    )
    assert sorted(domain.gpus for domain in topology.domains[1]) == [8, 8, 24]


def test_a_machine_may_be_described_instead_of_named(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        """
fabric: machine-nics
racks: 1
machines: 2
machine:
  gpus: 6
  gpu: a100
  islands: [4, 2]
  links:
    - {kind: fully-connected, bandwidth: 300 GB/s, latency: 1us}
    - {kind: ring, bandwidth: 20 GB/s, latency: 2us}
  nics: {count: 2, bandwidth: 100 Gbit/s}
""",
    )
    assert [level.name for level in topology.levels] == ["island", "machine", "rack", "cluster"]
    assert topology.levels[0].kind is LinkKind.FULLY_CONNECTED
    assert [level.bandwidth for level in topology.levels[:3]] == [300e9, 4 * 20e9, 25e9]
    assert [mask.bit_count() for mask in topology.machines[0].islands] == [4, 2]


def test_a_machine_without_islands_beside_one_with_them_is_a_single_island(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        "fabric: dally\ntree:\n"
        "  - {name: r, machines: [{count: 1, preset: dally-8}, {count: 1, preset: dgx-1}]}\n",
    )
    assert [len(machine.islands) for machine in topology] == [2, 1]
    assert [level.name for level in topology.machines[1].links] == ["island", "machine"]


def test_pools_may_stand_in_a_file(tmp_path: Path) -> None:
    assert load(tmp_path, "fabric: ethernet-10g\npools: v100=36@4,k80=8\n").gpu_types == ("V100", "K80")


def test_another_fabric_replaces_that_of_the_file(tmp_path: Path) -> None:
    text = "fabric: ethernet-10g\nshape: 2x2x8\nmachine: dgx-a100\n"
    assert load(tmp_path, text).levels[1].bandwidth == 1.25e9
    assert load(tmp_path, text, fabric="ethernet-25g").levels[1].bandwidth == 3.125e9


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("shape: 2x2x8\n", 1, "'fabric' is missing"),
        ("fabric: dally\n", 1, "exactly one of shape, machines"),
        ("fabric: dally\nshape: 2x2x8\npools: v100=8\n", 1, "exactly one of shape, machines"),
        ("fabric: daly\nshape: 2x2x8\n", 2, "cluster.fabric: there is no fabric 'daly'"),
        ("fabric: dally\nshape: twelve\n", 3, "cluster.shape: must be a shape such as 4x8x8"),
        ("fabric: dally\nshape: 2x2x8\nmachnie: dgx-1\n", 4, "cluster.machnie: there is no such field"),
        ("fabric: dally\nracks: 0\nmachines: 2\nmachine: dgx-1\n", 3, "cluster.racks: must be a whole number"),
        ("fabric: dally\nblocks: 2\nmachines: 2\nmachine: dgx-1\n", 1, "'racks' is missing"),
        ("fabric: dally\nmachines: 2\nmachine: dgx-9\n", 1, "no machine 'dgx-9'"),
        ("fabric: dally\nmachines: 2\nmachine: {gpu: x1}\n", 1, "no GPU 'x1'"),
        ("fabric: dally\nmachines: 2\n", 1, "neither preset nor gpu nor gpus"),
        ("fabric: dally\nshape: 2x2x8\nmachine: {preset: dgx-1, gpus: 4}\n", 3, "8 GPUs per machine"),
        ("fabric: dally\npools: v100=8,x=2\n", 3, "cluster.pools: cluster 'v100=8,x=2': there is no GPU 'x'"),
        ("fabric: dally\ntree: [{name: a}]\n", 3, "cluster.tree[0]: has neither units nor machines"),
        ("fabric: dally\ntree: [{machines: []}]\n", 3, "cluster.tree[0]: needs either name or names"),
        ("fabric: dally\ntree:\n  - {name: a, machines: [{count: 1, gpus: none}]}\n", 4, "gpus: must be a whole"),
        ("fabric: dally\ntree:\n  - {names: 'a[1-', machines: [{count: 1, gpus: 8}]}\n", 4, "brackets do not"),
        ("fabric: dally\ntree:\n  - {name: a/b, machines: [{count: 1, gpus: 8}]}\n", 4, "must not contain a slash"),
        ("fabric: dally\ntree:\n  - {name: a, machines: [{names: 'n[1-2]', count: 3, gpus: 8}]}\n", 4, "count is"),
        (
            "fabric: dally\nmachine: {gpus: 8}\ntree:\n  - {name: a, machines: [{count: 1}]}\n"
            "  - {name: a, machines: [{count: 1}]}\n",
            6,
            "'a' is there twice in the cluster",
        ),
        ("fabric: dally\nmachines: 1\nmachine: {preset: dgx-1, islands: 4}\n", 1, "islands need two links"),
        ("fabric: dally\nmachines: 1\nmachine: {preset: dally-8, islands: [4, 3]}\n", 1, "are not the 8 GPUs"),
        ("fabric: {levels: [{name: rack, kind: bus, latency: 1us, oversubscription: 1}]}\nshape: 8\n", 2, "kind"),
        ("fabric: [dally\n", 3, ""),
    ],
)
def test_a_mistake_in_a_file_names_file_line_and_field(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'lab.yaml'}, line {line}:")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shape: 8\n", "a cluster file begins with `dally-cluster: 1`"),
        ("dally-cluster: 2\nshape: 8\n", "this is version 2; version 1 can be read"),
        ("just words\n", "must be a mapping"),
        ("", "is empty"),
        ("# nothing\n", "is empty"),
    ],
)
def test_a_file_that_is_no_cluster_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "x.yml"
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        load_cluster(str(file))


def test_the_example_of_the_documentation_loads(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs/formats/cluster-yaml.md"
    examples = page.read_text(encoding="utf-8").split("```yaml\n")[1:]
    assert len(examples) >= 3
    for example in examples:
        file = tmp_path / "example.yaml"
        file.write_text(example.split("```")[0])
        assert load_cluster(str(file)).gpus > 0
