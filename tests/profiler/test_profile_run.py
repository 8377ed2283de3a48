"""`dally profile run` on scripts it has never seen: well-behaved ones, and ones that crash, hang, fork or cheat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.conftest import SCRIPTS, dally, profiled

pytestmark = pytest.mark.torch
ODD = SCRIPTS / "odd.py"


def running(script: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if script in command and "profile run" not in command:
                found.append(command)
    return found


def test_an_unmodified_ddp_script_gives_all_measurements_of_one_machine(cnn_profile: Path) -> None:
    found = json.loads(dally("profile", "show", cnn_profile, "--json").stdout)
    assert found["status"] == "complete"
    assert set(found["runs"]) == {"one", "all", "cold", "cached"}
    assert {name: run["processes"] for name, run in found["runs"].items()} == {
        "one": 1,
        "all": 2,
        "cold": 2,
        "cached": 2,
    }
    assert all(run["step"] > 0 and len(run["windows"]) == 2 for run in found["runs"].values())
    assert set(found["stalls"]) == {"interconnect", "prep", "fetch"}
    assert found["batch"] == 16
    assert found["runs"]["cold"]["read"] > 0  # files really came from storage
    assert found["runs"]["all"]["silent"] is not None
    assert found["checkpoint"]["bytes"] > 2 * 2_177_552  # weights and momentum


def test_the_layer_table_is_the_networks_own(cnn_profile: Path) -> None:
    model = json.loads(dally("profile", "show", cnn_profile, "--json").stdout)["model"]
    rows = {row["name"]: row for row in model["layers"]}
    assert list(rows) == ["0", "1", "4", "5", "9", "11"]  # in the order of the forward pass
    assert rows["9"]["parameters"] == 64 * 64 * 128 + 128
    assert rows["4"]["forward_flops"] == 2 * 64 * 32 * 9 * 16 * 16  # multiply-adds of one image
    assert sum(row["gradient_bytes"] for row in model["layers"]) == sum(model["buckets"])
    parts = sum(sum(row["measured"].values()) for row in model["layers"]) + model["update"]
    silent = json.loads(dally("profile", "show", cnn_profile, "--json").stdout)["runs"]["all"]["silent"]
    assert parts == pytest.approx(silent, rel=1e-4)  # a step beside a busy neighbour, without exchange


def test_the_trace_shows_compute_and_sending(cnn_profile: Path) -> None:
    found = json.loads(dally("profile", "show", cnn_profile, "--json").stdout)
    assert (cnn_profile.parent / found["trace"]).exists()
    assert {moment["lane"] for moment in found["timeline"]} == {"compute", "network"}
    assert any("all_reduce" in moment["what"] for moment in found["timeline"])
    assert found["exposed"] >= 0


def test_a_slow_disk_is_told_from_a_slow_cpu(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(600):
        (files / f"{number:04}").write_bytes(os.urandom(256))
    disk = profiled(
        tmp_path / "disk.yaml",
        "--no-trace",
        "--only",
        "one",
        "--only",
        "cold",
        "--only",
        "cached",
        "--threads",
        "1",
        ODD,
        "slow-disk",
        "--folder",
        files,
        "--size",
        "600",
    )
    cpu = profiled(
        tmp_path / "cpu.yaml",
        "--no-trace",
        "--only",
        "one",
        "--only",
        "cold",
        "--only",
        "cached",
        "--threads",
        "1",
        ODD,
        "heavy-transform",
    )
    # Eight samples of 10 ms each are 80 ms a step, which itself computes for a few.
    assert disk["stalls"]["fetch"]["seconds"] > disk["stalls"]["prep"]["seconds"]
    assert cpu["stalls"]["prep"]["seconds"] > cpu["stalls"]["fetch"]["seconds"]


def test_a_crash_keeps_what_was_measured_and_names_the_line(tmp_path: Path) -> None:
    found = profiled(tmp_path / "p.yaml", "-n", "2", "--no-trace", "--only", "all", ODD, "crash", code=1)
    assert found["status"] == "partial" and found["runs"]["all"]["steps"] >= 5
    assert "RuntimeError: the loss is not a number" in found["notes"][0] and "odd.py, line" in found["notes"][0]
    assert (tmp_path / "p.log").read_text().count("RuntimeError")
    assert running("odd.py crash") == []


def test_a_script_that_hangs_is_ended_and_says_where(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "p.yaml", "-n", "2", "--no-trace", "--only", "all", "--patience", "25s", ODD, "hang", code=1
    )
    assert "no sign of life" in found["notes"][0] and "in train" in found["notes"][0]
    assert found["runs"]["all"]["steps"] >= 5
    assert running("odd.py hang") == []


def test_a_script_without_a_loader_is_measured_as_it_is_and_told_so(tmp_path: Path) -> None:
    found = profiled(tmp_path / "p.yaml", "--no-trace", ODD, "no-loader")
    assert found["runs"]["one"]["data"] == "own" and "cold" not in found["runs"]
    assert any("does not draw its data from a DataLoader" in note for note in found["notes"])


def test_too_few_steps_are_said_with_their_number(tmp_path: Path) -> None:
    found = profiled(tmp_path / "p.yaml", "--no-trace", "--only", "cached", ODD, "short", "--size", "56", code=1)
    assert "ended after 14 steps; 15 were asked for" in found["notes"][0]
    assert found["runs"]["cached"]["steps"] >= 4  # one window was full


@pytest.mark.slow
def test_a_script_that_starts_its_own_ranks_is_measured_as_it_is(tmp_path: Path) -> None:
    found = profiled(tmp_path / "p.yaml", "--no-trace", "--only", "one", "--patience", "60s", ODD, "spawn")
    assert found["runs"]["all"]["processes"] == 2
    assert any("starts processes of its own" in note for note in found["notes"])


@pytest.mark.parametrize("mode", ["daemon", "stubborn"])
def test_nothing_is_left_running(mode: str, tmp_path: Path) -> None:
    """A child in a session of its own, and a script that swallows the request to end."""
    profiled(tmp_path / "p.yaml", "-n", "1", "--no-trace", "--only", "one", ODD, mode)
    assert running(f"odd.py {mode}") == []


def test_a_script_that_never_trains_is_one_clear_sentence(tmp_path: Path) -> None:
    done = dally("profile", "run", "--out", tmp_path / "p.yaml", ODD, "no-training", code=2)
    assert "nothing could be measured" in done.stderr and "without a single step" in done.stderr
    assert not (tmp_path / "p.yaml").exists()


def test_ctrl_c_leaves_a_usable_partial_profile_and_no_process(tmp_path: Path) -> None:
    out = tmp_path / "p.yaml"
    command = [
        sys.executable,
        "-m",
        "dally.cli.main",
        "profile",
        "run",
        "--steps",
        "5",
        "--repeats",
        "2",
        "--no-trace",
        "--out",
        str(out),
        str(ODD),
        "heavy-transform",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    for line in process.stderr:  # the first run is done when the second starts
        if line.startswith("all devices, real data"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert process.returncode == 130
    found = json.loads(dally("profile", "show", out, "--json").stdout)
    assert found["status"] == "partial" and "one" in found["runs"]
    assert running("odd.py heavy-transform") == []
