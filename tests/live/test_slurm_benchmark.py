"""A small version of benchmarks/slurm.py: ten real training jobs on a real Slurm, by Slurm itself and by Dally."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))
JOBS = 10


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """What `measure` would write, had steps taken exactly their pauses: measuring takes five minutes."""
    from testbed.measure import write_models
    from testbed.models import MODELS
    from testbed.ways import HERE, WAYS

    folder = tmp_path / "measured"
    folder.mkdir()
    write_models(folder / "catalog", [{"model": kind.name, "nodes": ["n1"], "gpus": 1, "seconds": kind.compute}
                                      for kind in MODELS.values()])  # fmt: skip
    shutil.copy(HERE / "cluster.yaml", folder / "cluster.yaml")
    (folder / "measured.json").write_text(json.dumps({"steps": [], "leaving": 1.0}))
    starts = {way: {"start": 1.5, "release": 0.5} for way in WAYS}
    (folder / "starts.json").write_text(json.dumps(starts))
    return folder


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Path]:
    pytest.importorskip("torch")
    if os.geteuid() != 0:
        pytest.skip("the starter enters the namespaces of who asks: that takes root")
    from testbed.runs import starter_in

    with starter_in(tmp_path) as path:
        yield path


def rank(starter: Path, folder: Path, steps: int) -> subprocess.Popen[bytes]:
    words = ["--model", "vision", "--steps", str(steps), "--log", str(folder / "log"), "--checkpoint", str(folder / "saved")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "DALLY"))}
    return subprocess.Popen([sys.executable, "-I", "-S", str(ROOT / "benchmarks" / "testbed" / "rank.py"), *words],
                            env={**plain, "BENCHMARK_STARTER": str(starter)})  # fmt: skip


def logged(folder: Path, event: str) -> list[dict[str, Any]]:
    from testbed.runs import read_log

    return [line for line in read_log(folder / "log") if line["event"] == event]


@pytest.mark.torch
def test_a_rank_that_is_asked_to_leave_saves_and_the_next_goes_on_from_there(starter: Path, tmp_path: Path) -> None:
    from slurmbed import until

    first = rank(starter, tmp_path, 6)
    until(lambda: logged(tmp_path, "steps"))
    first.terminate()
    assert first.wait(60) == 143
    assert rank(starter, tmp_path, 6).wait(60) == 0
    ends = logged(tmp_path, "end")
    assert [end["whole"] for end in ends] == [False, True]
    assert ends[0]["steps"] + ends[1]["steps"] == 6 and ends[1]["first"] == ends[0]["steps"] > 0


@pytest.mark.torch
def test_when_a_rank_is_killed_the_process_that_trains_for_it_dies_too(starter: Path, tmp_path: Path) -> None:
    from slurmbed import until

    def training() -> list[str]:
        pid = subprocess.run(["pgrep", "-f", str(starter)], capture_output=True, text=True, check=False).stdout.split()
        return [number for number in pid if Path(f"/proc/{number}/cmdline").exists()]

    until(lambda: len(training()) == 1)  # the starter itself
    one = rank(starter, tmp_path, 100)
    until(lambda: logged(tmp_path, "ready"))
    assert len(training()) == 2
    one.kill()
    one.wait()
    until(lambda: len(training()) == 1)


@pytest.mark.slow
@pytest.mark.torch
def test_ten_jobs_finish_under_slurm_and_under_dally_and_are_predicted(measured: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from testbed.stream import stream

    from slurmbed import need_bed

    need_bed()
    words = [sys.executable, str(ROOT / "benchmarks" / "slurm.py")]
    options = ["--out", str(tmp_path), "--seeds", "99", "--jobs", str(JOBS), "--ways", "slurm,dally"]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([*words, "run", *options], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + "".join(p.read_text() for p in tmp_path.rglob("*.error"))
    asked = {job.name: job for job in stream(99, JOBS)}
    for way in ("slurm", "dally"):
        found = json.loads((tmp_path / "seed-99" / f"{way}.json").read_text())
        assert {job["name"] for job in found["jobs"]} == set(asked)
        for job in found["jobs"]:
            assert job["steps_done"] == asked[job["name"]].steps, "no step is lost or done twice"
            assert job["end"] > job["start"] >= job["submit"]
    shutil.copy(tmp_path / "seed-99" / "slurm" / "slurm.conf", measured / "slurm.conf")
    done = subprocess.run([*words, "predict", *options], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "Dally on that Slurm" in done.stdout and "predicted" in done.stdout
