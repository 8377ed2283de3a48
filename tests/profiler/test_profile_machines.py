"""Ranks apart: two network namespaces with a shaped link between them, each like a machine of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.profiler.machines import parse_machines
from profiler.conftest import SCRIPTS, dally, profiled


def sh(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command.split(), capture_output=True, text=True, check=False)


def can_make_namespaces() -> bool:
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "tc", "nsenter")):
        return False
    name = f"dally-try-{os.getpid()}"
    made = sh(f"ip netns add {name}").returncode == 0
    sh(f"ip netns del {name}")
    return made


@pytest.fixture
def shaped(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    if not can_make_namespaces():
        pytest.skip("network namespaces cannot be made here: that takes root, iproute2 and util-linux")
    names = f"dt0-{os.getpid()}", f"dt1-{os.getpid()}"
    try:
        for name in names:
            assert sh(f"ip netns add {name}").returncode == 0
        assert sh(f"ip link add e0 netns {names[0]} type veth peer name e1 netns {names[1]}").returncode == 0
        for number, name in enumerate(names):
            sh(f"ip -n {name} addr add 10.79.0.{number + 1}/24 dev e{number}")
            sh(f"ip -n {name} link set e{number} up")
            sh(f"ip -n {name} link set lo up")
        yield names
    finally:
        for name in names:
            sh(f"ip netns del {name}")


def shape(names: tuple[str, str], rate: str) -> None:
    for number, name in enumerate(names):
        done = sh(f"tc -n {name} qdisc replace dev e{number} root tbf rate {rate} burst 32kb latency 400ms")
        if done.returncode:
            pytest.skip(f"links cannot be shaped here: {done.stderr.strip()}")


@pytest.mark.torch
def test_the_network_stall_grows_as_the_link_shrinks(shaped: tuple[str, str], tmp_path: Path) -> None:
    stalls = []
    for rate in ("100mbit", "4mbit"):  # 77 kB of gradients take 6 ms and 154 ms
        shape(shaped, rate)
        found = profiled(
            tmp_path / f"{rate}.yaml", "-n", "2", "--no-trace", "--only", "all", "--only", "apart", "--threads", "1",
            "--machines", f"netns:{','.join(shaped)}", "--link", rate, SCRIPTS / "odd.py", "plain",
        )  # fmt: skip
        assert found["apart"][0]["machines"] == 2 and found["apart"][0]["link"] == rate
        stalls.append(found["stalls"]["network"]["seconds"])
    assert stalls[1] > 0.080 and stalls[1] > 1.5 * stalls[0]


@pytest.mark.torch
def test_the_fabric_that_is_measured_is_the_one_that_was_made(shaped: tuple[str, str], tmp_path: Path) -> None:
    shape(shaped, "40mbit")
    out = tmp_path / "c.yaml"
    dally("profile", "fabric", "--machines", f"netns:{','.join(shaped)}", "--largest", "2MB", "--out", out, "--quiet")
    topology = load_cluster(str(out))
    assert topology.gpus == 2 and len(topology.machines) == 2
    port = topology.levels[topology.machine_level + 1].bandwidth
    assert 0.5 * 5e6 < port < 1.1 * 5e6  # 40 Mbit/s are 5 MB/s, of which headers take some


@pytest.mark.torch
def test_two_hosts_under_torchrun_are_added_to_a_profile(tmp_path: Path) -> None:
    from profiler.made_up import written

    path = written(tmp_path)
    common = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", "29417"]
    script = [str(SCRIPTS / "odd.py"), "plain"]
    agents = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *common, "--node-rank", str(rank), "-m", "dally.profiler.join",
             "--steps", "3", "--repeats", "2", "--link", "loopback", str(path), *script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [agent.communicate(timeout=240)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    from dally.profiler import read_profile

    (run,) = read_profile(path).apart
    assert (run.processes, run.machines, run.link, len(run.windows)) == (2, 2, "loopback", 2)


@pytest.mark.parametrize("text", ["netns:", "slurm", "netns:nobody-has-this,nor-this", "hosts:a,b"])
def test_machines_that_are_not_there_are_one_sentence(text: str) -> None:
    with pytest.raises(UserError):
        parse_machines(text)
