"""What the processes of a job are told: who they are, where they are, and nothing that is not theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from local_attempts import ends, order, python

from dally.core.errors import UserError
from dally.core.placement import Placement
from dally.live.engine import Order, Program
from dally.live.local.cluster import local_cluster, parse_gpus
from dally.live.local.engine import LocalEngine
from dally.live.local.environment import free_port, inherited, ranks

TELL = "import json, os, sys\nwith open(sys.argv[1] + os.environ['RANK'], 'w') as file: json.dump({**os.environ, 'cwd': os.getcwd()}, file)"


def told(path: Path, count: int) -> list[dict[str, str]]:
    return [json.loads((path.parent / f"{path.name}{rank}").read_text()) for rank in range(count)]


def test_one_process_per_machine_sees_all_its_gpus_there(tmp_path: Path, local: LocalEngine) -> None:
    what = python(TELL, str(tmp_path / "r"), job="7", attempt=3, restarts=2, name="mine", machines=("rack0/m1", "rack1/m0"), mask=0b1101,
                  directory=str(tmp_path), grace=30.0, environment={"MINE": "1", "RANK": "nonsense"})  # fmt: skip
    local.start(what)
    ends(local)
    first, second = told(tmp_path / "r", 2)
    assert (first["RANK"], first["LOCAL_RANK"], first["WORLD_SIZE"], first["LOCAL_WORLD_SIZE"], first["NODE_RANK"]) == ("0", "0", "2", "1", "0")
    assert (second["RANK"], second["LOCAL_RANK"], second["NODE_RANK"], second["DALLY_MACHINE"]) == ("1", "0", "1", "rack1/m0")
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "0,2,3"
    assert first["DALLY_GPUS"] == "rack0/m1:0,2,3;rack1/m0:0,2,3"
    assert (first["DALLY_JOB"], first["DALLY_JOB_NAME"], first["DALLY_ATTEMPT"], first["DALLY_RESTARTS"]) == ("7", "mine", "3", "2")
    assert (first["DALLY_GRACE"], first["DALLY_SIGNAL"], first["MINE"], first["cwd"]) == ("30", "TERM", "1", str(tmp_path))
    assert first["DALLY_CHECKPOINT"] == str(local.state / "checkpoints" / "7")
    assert first["MASTER_ADDR"] == "127.0.0.1" and first["MASTER_PORT"] == second["MASTER_PORT"]


def test_one_process_per_gpu_is_numbered_along_the_machines(tmp_path: Path, local: LocalEngine) -> None:
    local.start(python(TELL, str(tmp_path / "r"), machines=("m0", "m1"), mask=0b110, processes="gpu", checkpoint="/somewhere"))
    ends(local)
    found = told(tmp_path / "r", 4)
    assert [(t["RANK"], t["LOCAL_RANK"], t["NODE_RANK"], t["DALLY_MACHINE"]) for t in found] == [
        ("0", "0", "0", "m0"), ("1", "1", "0", "m0"), ("2", "0", "1", "m1"), ("3", "1", "1", "m1")]  # fmt: skip
    assert {t["WORLD_SIZE"] for t in found} == {"4"} and {t["LOCAL_WORLD_SIZE"] for t in found} == {"2"}
    assert {t["CUDA_VISIBLE_DEVICES"] for t in found} == {"1,2"}  # LOCAL_RANK chooses among them, as scripts expect
    assert {t["DALLY_CHECKPOINT"] for t in found} == {"/somewhere"}


def test_ranks_that_are_neighbours_are_neighbours_in_the_topology() -> None:
    """Placements are in machine order, and machine order follows the domains, in whatever order a policy found them."""
    topology = local_cluster("3x2x2").topology
    placement = Placement.of([(5, 1), (0, 3), (3, 1), (1, 2), (2, 1)])
    names = tuple(topology.machine_names[machine] for machine, _ in placement.slices)
    found = ranks(Order("1", 1, placement, names, Program(("true",), processes="gpu")), {})
    racks = [rank["DALLY_MACHINE"].rpartition("/")[0] for rank in found]
    assert racks == sorted(racks) and len(set(racks)) == 3


def test_the_services_secrets_are_not_inherited(tmp_path: Path, local: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"HOME": "/h", "LANG": "C", "DALLY_URL": "http://u", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": "p"}
    dropped = dict.fromkeys(["DALLY_API_TOKEN", "DALLY_TOKEN_FILE", "DALLY_STATE", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN",
                             "WANDB_API_KEY", "NOTIFY_SOCKET", "LISTEN_FDS", "my_password"], "x")  # fmt: skip
    assert inherited({**kept, **dropped}) == kept
    for name, value in dropped.items():
        monkeypatch.setenv(name, value)
    local.start(python(TELL, str(tmp_path / "r"), environment={"HF_TOKEN": "the job's own"}))
    ends(local)
    (found,) = told(tmp_path / "r", 1)
    assert not set(dropped) - {"HF_TOKEN"} & set(found)
    assert found["HF_TOKEN"] == "the job's own"


def test_ports_to_meet_at_are_free_and_not_given_twice() -> None:
    import socket

    first = free_port(set(), 17)
    assert free_port({first}, 17) != first
    with socket.create_server(("127.0.0.1", first)):
        assert free_port(set(), 17) != first


def test_the_devices_of_a_machine_with_odd_numbers_are_named(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "state", devices={"m0": ("2", "5", "7")})
    engine.start(python(TELL, str(tmp_path / "r"), mask=0b101))
    ends(engine)
    assert told(tmp_path / "r", 1)[0]["CUDA_VISIBLE_DEVICES"] == "2,7"
    engine.close()


def test_a_machine_without_gpus_has_eight_virtual_ones() -> None:
    for query in (("no-such-driver",), ("false",), ("true",)):
        found = local_cluster(query=query)
        assert found.topology.machine_names == ("localhost",) and found.topology.gpus == 8 and not found.devices
        assert "virtual" in found.note


def test_a_cluster_that_is_declared_is_virtual_whatever_there_is() -> None:
    found = local_cluster("2x2x4")
    assert len(found.topology.machines) == 4 and found.topology.gpus == 16 and not found.devices
    with pytest.raises(UserError, match="no cluster"):
        local_cluster("no-such-cluster")


def test_the_gpus_the_driver_lists_are_one_machine(tmp_path: Path) -> None:
    listing = tmp_path / "listing"
    listing.write_text("0, NVIDIA A100-SXM4-80GB, GPU-aa\n1, NVIDIA A100-SXM4-80GB, GPU-bb\n")
    found = local_cluster(query=("cat", str(listing)))
    assert found.topology.machine_names == ("localhost",) and found.topology.gpu_types == ("A100-80GB",)
    assert found.devices == {"localhost": ("0", "1")}


def test_gpus_of_several_types_are_several_machines_with_their_own_devices(tmp_path: Path) -> None:
    listing = tmp_path / "listing"
    listing.write_text("1, Tesla T4, GPU-b\n0, Tesla V100-SXM2-16GB, GPU-a\n2, Tesla V100-SXM2-16GB, GPU-c\n")
    found = local_cluster(query=("cat", str(listing)))
    assert found.devices == {"localhost-V100": ("0", "2"), "localhost-T4": ("1",)}
    assert found.topology.gpu_types == ("V100", "T4")


@pytest.mark.parametrize("listing", ["No devices were found\n", "0, Tesla T4\n", "x, Tesla T4, GPU-a\n", "0, Tesla T4, GPU-a, more\n"])
def test_a_listing_that_is_not_understood_is_refused_rather_than_guessed_at(listing: str) -> None:
    with pytest.raises(UserError, match="nvidia-smi, line 1"):
        parse_gpus(listing)


def test_orders_name_no_shell(local: LocalEngine) -> None:
    local.start(order("printf", "%s|", "a b", "$HOME", "*", "'"))
    ends(local)
    assert (local.attempts / "1.1" / "out.log").read_text() == "a b|$HOME|*|'|"
