"""What a test bed would consist of, and what is said where none can be made; nothing is made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.live.testbed import bed, files, system
from dally.live.testbed.clusters import read_bed_cluster
from dally.live.testbed.layout import Layout, check_name, lay_out


def layout(shape: str, **rates: float) -> Layout:
    return lay_out("x", Path("/bed"), 3, load_cluster(shape), rates)


def test_a_rack_is_a_switch_under_the_spine_and_every_link_has_the_clusters_rate(tmp_path: Path) -> None:
    found = lay_out("x", Path("/bed"), 3, read_bed_cluster(None)[0], {})
    assert [switch.name for switch in found.switches] == ["spine", "rack0", "rack1"]
    assert {node.rate for node in found.nodes} == {25e6} and {s.rate for s in found.switches[1:]} == {6.25e6}
    assert [node.switch for node in found.nodes] == [1] * 4 + [2] * 4
    assert len({node.address for node in found.nodes}) == 8


def test_blocks_are_switches_between_racks_and_spine() -> None:
    found = layout("2x2x2x4", rack=2e7, block=1e7, cluster=5e6)
    by_name = {switch.name: switch for switch in found.switches}
    assert len(found.switches) == 1 + 2 + 4 and len(by_name) == 7
    blocks = [n for n, switch in enumerate(found.switches) if switch.level == "block"]
    assert [switch.parent for switch in found.switches if switch.level == "rack"] == [blocks[0]] * 2 + [blocks[1]] * 2
    assert {switch.rate for switch in found.switches if switch.level == "rack"} == {1e7}


def test_links_that_no_host_carries_are_left_alone_and_noted() -> None:
    found = layout("2x2x2", cluster=1e6)
    assert found.nodes[0].rate is None and found.switches[1].rate == 1e6
    assert len(found.notes) == 1 and "'rack'" in found.notes[0]


def test_the_files_read_back_as_the_cluster_they_were_made_from(tmp_path: Path) -> None:
    made = layout("3x2x4")
    (tmp_path / "slurm.conf").write_text(files.slurm_conf(made))
    (tmp_path / "topology.conf").write_text(files.topology_conf(made))
    read = load_cluster(str(tmp_path))
    assert [(m.path, m.gpus) for m in read.machines] == [
        ((f"rack{n // 2}", f"n{n + 1}"), 4) for n in range(6)
    ]  # fmt: skip


def test_a_line_of_slurm_conf_wins_over_ours_however_it_is_spelt() -> None:
    text = files.slurm_conf(layout("1x2x2"), ["killwait=3", "PartitionName=a Nodes=ALL", "Prolog=/bin/true"])
    assert "KillWait=3\n" in text and "KillWait=10" not in text and "PartitionName=main" not in text
    assert "Prolog=/bin/true\n" in text
    with pytest.raises(UserError, match="Key=Value"):
        files.slurm_conf(layout("1x2x2"), ["KillWait"])


def test_several_kinds_of_gpus_are_named_to_slurm(tmp_path: Path) -> None:
    text = files.gres_conf(layout("v100=4@2,p100=2@2"))
    assert "Type=v100" in text and "Type=p100" in text
    assert "Type=" not in files.gres_conf(layout("1x2x2"))


@pytest.mark.parametrize("name", ["", "Bed", "a.b", "a/b", "-a", "a" * 21, "1a"])
def test_a_name_that_would_not_do_for_namespaces_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="name"):
        check_name(name)


def test_a_rate_for_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match=r"'block'.*rack, cluster"):
        layout("2x2x2", block=1e6)


def test_a_folder_that_outlived_its_host_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed, "FOLDERS", tmp_path)
    monkeypatch.setattr(bed, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(system, "NAMESPACES", tmp_path / "netns")
    monkeypatch.setattr(bed.os, "geteuid", lambda: 0)
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "env.sh").touch()
    assert bed.take_down("mine") and not (tmp_path / "mine").exists()
    assert not bed.take_down("other") and (tmp_path / "other").exists()


def test_more_nodes_than_addresses_are_refused() -> None:
    with pytest.raises(UserError, match="at most 240"):
        layout("25x10x8")


def test_without_root_or_slurm_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = load_cluster("1x1x1")
    monkeypatch.setattr(system.shutil, "which", lambda program: None)
    with pytest.raises(UserError, match=r"apt-get install .*slurm-wlm"):
        bed.bring_up("x", topology)
    monkeypatch.setattr(system.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(system.os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="takes root"):
        bed.bring_up("x", topology)
