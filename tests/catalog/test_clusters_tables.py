"""Clusters from CSV tables: Tiresias' description and the openb node list."""

from __future__ import annotations

from pathlib import Path

import pytest

from dally.catalog.clusters import load_cluster, read_cluster
from dally.core.errors import UserError

TIRESIAS = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
OPENB = "sn,cpu_milli,memory_mib,gpu,model\n"


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "c.csv").write_text(text)
    return str(tmp_path / "c.csv")


def test_a_switch_of_tiresias_is_a_rack(tmp_path: Path) -> None:
    topology = load_cluster(write(tmp_path, TIRESIAS + "2,16,4,40,256\n"))
    assert (len(topology.machines), topology.gpus, len(topology.domains[1])) == (32, 128, 2)
    assert topology.name == "c"


def test_columns_may_come_in_any_order(tmp_path: Path) -> None:
    topology = load_cluster(write(tmp_path, "num_gpu_p_node,num_switch,num_node_p_switch\n\n8,1,3\n"))
    assert [machine.gpus for machine in topology] == [8, 8, 8]


def test_machines_of_a_node_list_share_nothing_and_keep_their_names(tmp_path: Path) -> None:
    text = OPENB + "a,64000,1,2,P100\nb,64000,1,0,\nc,1,1,8,G2\nd,1,1,4,\n"
    loaded = read_cluster(write(tmp_path, text), gpu_type="t4")
    topology = loaded.topology
    assert [(machine.path, machine.gpu_type) for machine in topology] == [
        (("a", "a"), "P100"), (("c", "c"), "G2"), (("d", "d"), "T4")]  # fmt: skip
    assert [domain.gpus for domain in topology.domains[1]] == [2, 8, 4]
    assert loaded.notes[0] == "1 machine without GPUs left out"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TIRESIAS + "1,0,4,1,1\n", "line 2: num_node_p_switch must be a whole number of at least 1, not '0'"),
        (TIRESIAS + "1,x,4,1,1\n", "line 2: num_node_p_switch must be a whole number of at least 1, not 'x'"),
        (TIRESIAS, "one row under its header, not 0"),
        (TIRESIAS + "1,2,4,1,1\n1,2,4,1,1\n", "line 3: a Tiresias cluster is one row"),
        (TIRESIAS + "1,2,4\n", "line 2: 3 fields where the header has 5"),
        (TIRESIAS + "9999,9999,4,1,1\n", "more than 1000000 machines"),
        (OPENB + "a,1,1,many,T4\n", "line 2: gpu must be a whole number of at least 0, not 'many'"),
        (OPENB + "a,1,1,1,T4\na,1,1,1,T4\n", "line 3: machine 'a' is also in line 2"),
        (OPENB + ",1,1,1,T4\n", "line 2: sn, the machine's name, is missing"),
        (OPENB + "a,1,1,0,\n", "has no machines with GPUs"),
        ("x,y\n1,2\n", "line 1: a cluster table has the columns"),
    ],
)
def test_a_mistake_in_a_table_names_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        load_cluster(write(tmp_path, text))
    assert words in str(caught.value)


def test_a_gpu_type_that_would_do_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="names the GPU type of every machine"):
        load_cluster(write(tmp_path, OPENB + "a,1,1,1,T4\n"), gpu_type="v100")


@pytest.mark.reference
def test_the_cluster_of_the_released_tiresias_simulator_loads(reference: Path) -> None:
    topology = load_cluster(str(reference / "tiresias" / "n32g4.csv"))
    assert (len(topology.machines), topology.gpus) == (32, 128)


@pytest.mark.reference
def test_the_nodes_of_alibabas_trace_load(reference: Path) -> None:
    nodes = reference.parent / "traces" / "openb_nodes.csv"
    if not nodes.is_file():
        pytest.skip("the node list of the openb trace is not beside the reference results")
    topology = load_cluster(str(nodes))
    assert (len(topology.machines), topology.gpus) == (1213, 6212)
    assert topology.capacity("V100M32") == 204
    assert len(topology.domains[1]) == 1213
