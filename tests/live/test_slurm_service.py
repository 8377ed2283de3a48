"""`dally serve --engine slurm` on a real Slurm, as people use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import wait_until

from dally.live.client import Client
from dally.live.testbed.bed import Bed
from postgres import free_port
from slurmbed import bed

pytestmark = pytest.mark.slow

SCRIPT = """#!/bin/bash
#SBATCH --job-name=moved
#SBATCH --gpus=2
#SBATCH --time=5
#SBATCH --mail-type=END
echo "node $SLURMD_NODENAME devices $CUDA_VISIBLE_DEVICES rank $RANK of $WORLD_SIZE"
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Bed]:
    with bed("1x2x2") as found:
        yield found


class Cli:
    def __init__(self, made: Bed, state: Path) -> None:
        self.port, self.state = free_port(), state
        self.environment = {**os.environ, **made.environment, "DALLY_URL": f"http://127.0.0.1:{self.port}",
                            "DALLY_STATE": str(state)}  # fmt: skip
        self.served: subprocess.Popen[str] | None = None

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "dally.cli.main", *words], capture_output=True, text=True,
                              env=self.environment, timeout=120, check=False)  # fmt: skip

    def serve(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dally.cli.main", "serve", "--engine", "slurm", "--port", str(self.port), *words]
        self.served = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True)  # fmt: skip
        return self.served

    def stop(self) -> str:
        assert self.served is not None
        self.served.send_signal(signal.SIGTERM)
        return self.served.communicate(timeout=60)[0]


def test_a_script_for_sbatch_is_moved_over_in_one_command_and_nodes_are_drained_in_slurm(made: Bed, tmp_path: Path) -> None:
    cli = Cli(made, tmp_path / "state")
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT)
    cli.serve()
    try:
        submitted = cli("submit", str(script), "--wait")
        assert submitted.returncode == 0, submitted.stderr
        printed = cli("logs", "1").stdout
        assert "rank 0 of 1" in printed and len(printed.split("devices ")[1].split()[0].split(",")) == 2
        client = Client([f"http://127.0.0.1:{cli.port}"])
        machine = client.get("nodes")[0]["name"]
        node = machine.rpartition("/")[2]
        assert cli("drain", machine).returncode == 0
        assert "DRAIN" in made.client("scontrol", "-o", "show", "node", node)
        wait_until(lambda: client.get("nodes")[0]["state"] == "drained")
        assert cli("resume", machine).returncode == 0
        wait_until(lambda: client.get("nodes")[0]["state"] == "up")
        shared = cli("policy", "set", "gandiva")
        assert shared.returncode == 2 and "this engine cannot" in shared.stderr
    finally:
        said = cli.stop()
    assert "Traceback" not in said


def test_a_dry_run_watches_and_touches_nothing(made: Bed, tmp_path: Path) -> None:
    cli = Cli(made, tmp_path / "state")
    running = cli.serve("--dry-run")
    assert running.stdout is not None
    while "watching" not in (line := running.stdout.readline()):
        assert line, "it ended"
    job = made.client("sbatch", "--parsable", "--gpus-per-node=2", "-N2", "-o/dev/null", "--wrap", "sleep 2").strip()
    waits = made.client("sbatch", "--parsable", "--gpus-per-node=1", "-N1", "-o/dev/null", "--wrap", "sleep 1").strip()
    wait_until(lambda: "COMPLETED" in made.client("scontrol", "show", "job", waits))
    while f"job {waits}: Slurm has started it" not in (line := running.stdout.readline()):
        assert line, "it ended"
    said = cli.stop()
    assert "2 jobs compared" in said and "mean wait" in said
    assert made.client("scontrol", "-o", "show", "job", job).count("JobId=") == 1  # nothing new in Slurm
    assert (tmp_path / "state" / "dry-run.json").exists()
    refused = cli("serve", "--dry-run")
    assert refused.returncode == 2 and "--engine slurm" in refused.stderr
