"""A real Slurm in namespaces: it comes up, tells racks apart, survives being broken, and goes without a trace."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dally.core.errors import UserError
from dally.live.testbed.bed import RECORDS, Bed, bring_up, find_bed, take_down
from dally.live.testbed.clusters import read_bed_cluster
from slurmbed import bed, gpus_used, job_state, need_bed, new_name, until


def traces(name: str, folder: Path) -> dict[str, list[str]]:
    """Everything on this host that is a bed's: namespaces, links, addresses, processes, mounts, files."""
    marks = (f"dally.{name}.", str(folder))

    def lines(*words: str) -> list[str]:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                said = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                said += (entry / "environ").read_bytes().decode(errors="replace")
                cwd = str((entry / "cwd").readlink())
            except OSError:
                continue
            if int(entry.name) != os.getpid() and any(mark in said + cwd for mark in marks):
                processes.append(f"{entry.name} {said[:80]}")
    links = json.loads("".join(lines("ip", "-j", "link")))
    return {
        "namespaces": [line for line in lines("ip", "netns", "list") if marks[0] in line],
        "links": [link["ifname"] for link in links if marks[0] in link.get("ifalias", "")],
        "processes": processes,
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line],
        "files": [str(path) for path in folder.rglob("*")] if folder.exists() else [],
        "records": [str(path) for path in RECORDS.glob(f"*{name}*")],
    }


NOTHING: dict[str, list[str]] = {
    "namespaces": [], "links": [], "processes": [], "mounts": [], "files": [], "records": []
}  # fmt: skip


def devices(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if stat.S_ISCHR(path.lstat().st_mode)]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    need_bed()
    return tmp_path / "b"


def up(name: str, folder: Path, cluster: str = "2x1x2", **more: object) -> Bed:
    topology, text, _ = read_bed_cluster(cluster)
    return bring_up(name, topology, text, folder, {"rack": 25e6, "cluster": 5e6}, **more)  # type: ignore[arg-type]


def test_up_and_down_leave_nothing_behind_even_with_a_job_running(empty: Path) -> None:
    name = new_name()
    assert traces(name, empty) == NOTHING
    made = up(name, empty)
    try:
        job = made.client("sbatch", "--parsable", "-N2", "--gres=gpu:2", "-o", "/dev/null", "--wrap", "srun sleep 600").strip()
        until(lambda: job_state(made, job) == "RUNNING")
        now = traces(name, empty)
        assert all(now[kind] for kind in ("namespaces", "links", "processes", "files", "records"))
        assert len(devices(empty)) == 4
    finally:
        made.down()
    assert traces(name, empty) == NOTHING
    assert not take_down(name), "a second time there is nothing to do"


def test_down_works_when_every_daemon_was_killed_and_the_folder_is_gone(empty: Path) -> None:
    import shutil

    name = new_name()
    assert traces(name, empty) == NOTHING
    made = up(name, empty)
    try:
        made.kill_controller()
        for node in made.layout.nodes:
            made.kill_node(node.name)
        shutil.rmtree(empty)
    finally:
        assert take_down(name)
    assert traces(name, empty) == NOTHING


def test_a_bed_that_cannot_come_up_leaves_nothing(empty: Path) -> None:
    name = new_name()
    assert traces(name, empty) == NOTHING
    with pytest.raises(UserError):
        up(name, empty, conf=["SelectType=select/no_such_thing"])
    assert traces(name, empty) == NOTHING
    with pytest.raises(UserError, match="not ready after 1"):  # nodes that Slurm takes for broken
        up(name, empty, conf=["SlurmdParameters=none"], patience=1.0)
    assert traces(name, empty) == NOTHING


def test_up_killed_at_any_moment_is_taken_down_whole(empty: Path) -> None:
    name = new_name()
    assert traces(name, empty) == NOTHING
    words = [sys.executable, "-m", "dally.cli.main", "testbed"]
    for part in ("spine", "n1", "slurmctld"):
        made = subprocess.Popen([*words, "up", "--name", name, "--dir", str(empty), "--cluster", "2x1x2"])
        until(lambda part=part: any(part in str(found) for found in traces(name, empty).values()))  # type: ignore[misc]
        made.send_signal(signal.SIGKILL)
        made.wait()
        assert subprocess.run([*words, "down", "--name", name], check=True, capture_output=True, text=True).stdout == (
            f"{name}: gone\n"
        )
        until(lambda: traces(name, empty) == NOTHING, 10.0)


def test_a_folder_with_something_in_it_and_a_name_that_is_taken_are_refused(slurm_bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(UserError, match="something already"):
        up(new_name(), tmp_path)
    with pytest.raises(UserError, match="already: `dally testbed down"):
        up(slurm_bed.name, tmp_path / "x")
    assert (tmp_path / "mine").read_text() == "keep" and not (tmp_path / "x").exists()


def test_beds_side_by_side_do_not_see_each_other(slurm_bed: Bed) -> None:
    with bed("1x1x2") as other:
        jobs = [one.client("sbatch", "--parsable", "-o", "/dev/null", "--gres=gpu:2", "--wrap", "sleep 30").strip()
                for one in (slurm_bed, other)]  # fmt: skip
        until(lambda: sum(gpus_used(slurm_bed).values()) == sum(gpus_used(other).values()) == 2)
        assert find_bed(other.name).layout == other.layout
        slurm_bed.client("scancel", jobs[0])
        until(lambda: sum(gpus_used(slurm_bed).values()) == 0)
        assert job_state(other, jobs[1]) == "RUNNING"
    assert {state.state for state in slurm_bed.states()} == {"IDLE"}


def test_a_job_across_racks_has_gpus_names_and_this_file_system(slurm_bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    far = slurm_bed.layout.nodes[-1].name
    script = f"srun -l sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES; {sys.executable} -c \"import dally\"; getent hosts {far}'"
    slurm_bed.client("sbatch", "-W", "-o", str(out), "-N2", "-w", f"n1,{far}", "--gres=gpu:2", "--wrap", script)
    said = [tuple(line.split()) for line in out.read_text().splitlines()]
    address = slurm_bed.layout.node(far).address
    for rank, host in (("0:", "n1"), ("1:", far)):
        assert {line[1:] for line in said if line[0] == rank} == {(host,), ("0,1",), (address, far)}


def test_the_controller_killed_and_started_again_knows_its_jobs(slurm_bed: Bed) -> None:
    job = slurm_bed.client("sbatch", "--parsable", "-o", "/dev/null", "--gres=gpu:1", "--wrap", "sleep 60").strip()
    until(lambda: job_state(slurm_bed, job) == "RUNNING")
    time.sleep(7)  # Slurm saves what it knows of jobs every five seconds
    slurm_bed.kill_controller()
    assert slurm_bed.controller_pid() is None
    assert {state.state for state in slurm_bed.states()} == {"no-controller"}
    slurm_bed.start_controller()
    until(lambda: sum(gpus_used(slurm_bed).values()) == 1)
    assert job_state(slurm_bed, job) == "RUNNING"
    slurm_bed.client("scancel", job)
    slurm_bed.wait_until_idle()


def test_a_node_killed_and_started_again_takes_jobs_again(slurm_bed: Bed) -> None:
    slurm_bed.kill_node("n2", jobs=True)
    assert slurm_bed.node_pid("n2") is None
    slurm_bed.start_node("n2")
    slurm_bed.wait_until_idle()
    assert slurm_bed.client("srun", "-w", "n2", "hostname").strip() == "n2"


def test_a_cut_uplink_separates_a_rack_until_it_is_restored(slurm_bed: Bed) -> None:
    ping = ["nsenter", f"--net=/run/netns/{slurm_bed.layout.node('n1').namespace}", sys.executable, "-c",
            "import socket, sys; socket.create_connection((sys.argv[1], 6818), 3)"]  # fmt: skip
    near, far = slurm_bed.layout.node("n2").address, slurm_bed.layout.node("n4").address

    def reaches(address: str) -> bool:
        return subprocess.run([*ping, address], capture_output=True, check=False).returncode == 0

    assert reaches(near) and reaches(far)
    slurm_bed.cut("rack1")
    assert reaches(near) and not reaches(far)
    assert {state.name for state in slurm_bed.states() if not state.uplink} == {"n3", "n4"}
    slurm_bed.restore("rack1")
    until(lambda: reaches(far))
    slurm_bed.wait_until_idle()


SEND = """
import socket, sys, time
server = socket.socket(); server.bind((sys.argv[1], 0)); server.listen(); print(server.getsockname()[1], flush=True)
taken, _ = server.accept(); begin = None; got = 0
while data := taken.recv(1 << 16):
    begin = begin or time.monotonic(); got += len(data)
print(got / (time.monotonic() - begin))
"""


def rate(made: Bed, sender: str, receiver: str, size: int) -> float:
    """Bytes per second of one stream."""
    to, by = made.layout.node(receiver), made.layout.node(sender)
    take = subprocess.Popen(["nsenter", f"--net=/run/netns/{to.namespace}", sys.executable, "-c", SEND, to.address],
                            stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert take.stdout is not None
    port = take.stdout.readline().strip()
    text = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(bytes(int(sys.argv[3])))"
    subprocess.run(["nsenter", f"--net=/run/netns/{by.namespace}", sys.executable, "-c", text, to.address, port, str(size)],
                   check=True)  # fmt: skip
    return float(take.communicate()[0])


def test_a_stream_across_racks_has_the_uplinks_rate_and_one_inside_a_rack_the_nodes(slurm_bed: Bed) -> None:
    across, inside = rate(slurm_bed, "n1", "n3", 4 << 20), rate(slurm_bed, "n1", "n2", 16 << 20)
    assert across < 1.2 * 50e6 / 8  # no faster than the shaper lets it be; how much slower is the host's business
    assert inside < 1.2 * 200e6 / 8
    slurm_bed.shape("cluster", 10e6 / 8)
    assert rate(slurm_bed, "n3", "n1", 1 << 20) < 1.3 * 10e6 / 8
    slurm_bed.shape("cluster", 50e6 / 8)


@pytest.mark.slow
def test_four_racks_of_four_nodes_come_up_and_run_a_job_on_all_of_them(tmp_path: Path) -> None:
    with bed("4x4x2") as made:
        out = tmp_path / "out"
        made.client("sbatch", "-W", "-o", str(out), "-N16", "--gres=gpu:2", "--wrap", "srun hostname", patience=120.0)
        assert sorted(out.read_text().split()) == sorted(f"n{number}" for number in range(1, 17))
        assert made.client("scontrol", "show", "topology").count("Level=0") == 4


def test_the_commands_of_the_page_run() -> None:
    need_bed()
    page = (Path(__file__).parents[2] / "docs" / "testbed.md").read_text()
    block = page.partition("```sh\n")[2].partition("```")[0]
    name = new_name()
    script = f'set -e; dally() {{ {sys.executable} -m dally.cli.main "$@"; }}\n' + block.replace("demo", name)
    try:
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"{name}: 2 racks, 8 nodes, 16 GPUs" in done.stdout and f"{name}: gone" in done.stdout
        assert {"n1", "n5"} <= set(done.stdout.split())
    finally:
        take_down(name)
