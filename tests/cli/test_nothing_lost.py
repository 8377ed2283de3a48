"""`--out` is put in place whole and never over another run's; what is finished survives Ctrl-C, and the command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Dally

RUN = ("compare", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo,las", "--workers", "1", "--quiet", "--out", "out")
# `slow` waits for a file to appear, or for Ctrl-C, before it goes on: nothing here hangs on how fast a machine is
SLOW = '''
import os, time
from dally.policies.fifo import Fifo
from dally.simulator.stopping import asked

class Slow(Fifo):
    title = "slow"
    def plan(self, view, memory, now):
        while now > 50 and not os.path.exists("go") and not asked():
            time.sleep(0.01)
        return super().plan(view, memory, now)
'''
COMPARE = ("compare", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo,slow.py", "--out", "out")


@pytest.fixture
def dally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dally:
    """The command in here: most of what a process of its own takes is its start."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        from dally.cli.main import main

        with pytest.raises(SystemExit) as ended:
            main(list(words))
        code, said = ended.value.code, capsys.readouterr()
        assert isinstance(code, int)
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dally.cli.main", *words], cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
        # a test run in the background of a shell ignores SIGINT, and its children would too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip


def until(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not there():
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


def test_a_second_run_of_the_same_replaces_the_first_and_another_is_refused(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    assert dally(*RUN).returncode == 0
    (tmp_path / "out/notes.txt").write_text("mine")
    before = contents(tmp_path / "out")
    assert dally(*RUN).returncode == 0
    assert {**contents(tmp_path / "out"), "timing.json": b""} == {**before, "timing.json": b""}
    other = dally(*RUN, "--seed", "7")
    assert other.returncode == 2 and "holds another run's results (`dally compare" in other.stderr
    assert {**contents(tmp_path / "out"), "timing.json": b""} == {**before, "timing.json": b""}
    assert dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "srtf", "--quiet", "--out", "out", "--force").returncode == 0
    assert not (tmp_path / "out/fifo").exists() and (tmp_path / "out/notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv", "out"]


def test_a_folder_that_somebody_stands_in_stays_where_it_is(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    words = ("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo", "--quiet", "--out", ".")
    refused = dally(*words)
    assert refused.returncode == 2 and "has a file jobs.csv that is not of this run" in refused.stderr
    small_trace.rename(tmp_path / "trace-of-mine.csv")
    for _ in range(2):
        assert dally(words[0], "-t", "trace-of-mine.csv", *words[3:]).returncode == 0
    assert (tmp_path / "trace-of-mine.csv").exists() and (tmp_path / "report.html").exists()
    assert not (tmp_path / ".part").exists()


def test_a_run_that_fails_leaves_what_was_there_and_nothing_else(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    assert dally(*RUN).returncode == 0
    before = contents(tmp_path / "out")
    (tmp_path / "bad.py").write_text(SLOW.replace("while now > 50", "1 / 0\n        while now > 50"))
    bad = dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "bad.py", "--quiet", "--out", "out", "--force")
    assert bad.returncode == 1 and contents(tmp_path / "out") == before
    assert not (tmp_path / "out.part").exists()


@pytest.mark.parametrize("group", [
    pytest.param(False, id="the process alone", marks=pytest.mark.slow),
    pytest.param(True, id="the whole group, as a terminal does"),
])  # fmt: skip
def test_ctrl_c_keeps_the_finished_policy_and_the_same_command_goes_on(group: bool, dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = start(tmp_path, *COMPARE, "--json", "--workers", "2")
    finished = tmp_path / "out.part/finished"
    until(lambda: finished.is_dir() and any(path.suffix == ".run" for path in finished.iterdir()), process)
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert [each["complete"] for each in json.loads(out)] == [True, False]
    assert "1 of 2 policies finished; slow is partial" in errors and "the same command goes on" in errors
    assert not (tmp_path / "out").exists() and (tmp_path / "out.part/fifo/jobs.csv").exists()
    other = dally(*COMPARE, "--workers", "1", "--seed", "3")
    assert other.returncode == 2 and "left that was interrupted" in other.stderr
    (tmp_path / "go").touch()
    again = dally(*COMPARE, "--workers", "1")
    assert again.returncode == 0 and "are not run again: fifo" in again.stderr
    assert not (tmp_path / "out.part").exists()
    assert dally(*COMPARE[:-1], "whole", "--workers", "1").returncode == 0
    went_on, whole = contents(tmp_path / "out"), contents(tmp_path / "whole")
    assert {**went_on, "timing.json": b""} == {**whole, "timing.json": b""}


def test_ctrl_c_while_the_workers_start_is_no_failure_of_theirs(small_trace: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = start(tmp_path, *COMPARE, "--workers", "2")
    part = tmp_path / "out.part/claim.json"
    until(part.exists, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in errors
    assert "Traceback" not in errors and "memory" not in errors and "exit code" not in errors


def test_two_runs_at_a_time_into_one_folder_are_refused(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = start(tmp_path, *COMPARE, "--workers", "2")
    until((tmp_path / "out.part/claim.json").exists, process)
    second = dally(*COMPARE, "--workers", "1")
    (tmp_path / "go").touch()
    assert second.returncode == 2 and "another run is writing there" in second.stderr
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_sweep_may_grow_in_its_folder_and_another_is_refused(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    words = ("compare", "-t", "jobs.csv", "-c", "2x4", "--workers", "1", "--quiet", "--out", "out", "--seeds")
    assert dally(*words, "1", "-p", "fifo").returncode == 0
    assert dally(*words, "2", "-p", "fifo,las").returncode == 0
    less = dally(*words, "1", "-p", "fifo")
    assert less.returncode == 2 and "holds the table of another sweep" in less.stderr
    assert "another run's results" in dally(*RUN).stderr
    assert dally(*words, "1", "-p", "fifo", "--force").returncode == 0
