"""A folder of results says how it was made; `dally rerun` makes it again and compares."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Dally, dally, small_trace  # noqa: F401 - fixtures


def make(dally: Dally, *words: str) -> None:  # noqa: F811
    done = dally(*words, "--out", "out", "--quiet")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [
    ("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "las", "--load", "1.2", "--seed", "3"),
    ("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "srtf", "--resample", "--jobs", "30", "--mtbf", "2d"),
    ("compare", "-t", "synth:helios", "--jobs", "40", "--load", "1.0", "-c", "1x2x8", "-p", "fifo,gandiva,dally[timers=auto]"),
])  # fmt: skip
def test_a_folder_is_made_again_byte_for_byte(words: tuple[str, ...], dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    make(dally, *words)
    again = dally("rerun", "out", "--out", "again")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "differs" not in again.stdout and again.stdout.count("byte for byte") >= 4
    assert (tmp_path / "again/report.html").read_bytes() == (tmp_path / "out/report.html").read_bytes()


def test_the_command_in_the_page_makes_it_again(dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    import shlex

    from dally.experiments.provenance import command_of, read_provenance

    make(dally, "simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo[backfill=true]", "--preemption-cost", "model[storage=5GB/s]")
    about = read_provenance(tmp_path / "out")
    words = shlex.split(command_of(about))
    assert dally(*words[1:], "--out", "again", "--quiet").returncode == 0
    for name in ("summary.json", "jobs.csv", "journal.jsonl.gz", "report.html"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    page = (tmp_path / "out/report.html").read_text()
    assert "dally simulate --trace jobs.csv" in page and about["trace_digest"][:16] in page


def test_a_file_that_is_not_what_it_was_is_found_out(dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    make(dally, "simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo")
    jobs = (tmp_path / "out/jobs.csv").read_text()
    (tmp_path / "out/jobs.csv").write_text(jobs.replace("resnet50", "resnet5O", 1))
    again = dally("rerun", "out")
    assert again.returncode == 1 and "differs" in again.stdout


def test_a_trace_that_has_changed_is_said_before_anything_runs(dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    make(dally, "simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo")
    small_trace.write_text(small_trace.read_text().replace("resnet50", "vgg16", 1))
    again = dally("rerun", "out")
    assert again.returncode == 2 and "jobs.csv has changed since" in again.stderr
    small_trace.unlink()
    assert "is not there any more" in dally("rerun", "out").stderr


def test_what_came_through_a_pipe_is_kept(dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    done = dally("simulate", "-t", "-", "-c", "2x4", "-p", "las", "--out", "out", "--quiet", stdin=small_trace.read_text())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/trace.csv").exists()
    again: subprocess.CompletedProcess[str] = dally("rerun", "out")
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_sweep_is_made_again_cell_by_cell(dally: Dally, tmp_path: Path) -> None:  # noqa: F811
    make(dally, "compare", "-t", "synth:helios", "--jobs", "20", "-c", "1x2x8", "-p", "fifo,las", "--seeds", "2", "--load", "1.0")
    again = dally("rerun", "out")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("the same, byte for byte") == 4
    cell = next((tmp_path / "out/cells").iterdir())
    cell.write_text(cell.read_text().replace('"finished": ', '"finished": 1'))
    again = dally("rerun", "out")
    assert again.returncode == 1 and again.stdout.count("differs") == 1


@pytest.mark.parametrize("content", [None, "{", json.dumps({"dally": "0.1.0"})])
def test_a_folder_that_does_not_say_how_it_was_made_is_refused(content: str | None, dally: Dally, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "out").mkdir()
    if content is not None:
        (tmp_path / "out/provenance.json").write_text(content)
    done = dally("rerun", "out")
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
