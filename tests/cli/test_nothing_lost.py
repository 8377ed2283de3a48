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


def test_ctrl_c_is_exit_code_130_wherever_it_meets_python(tmp_path: Path) -> None:
    """Python ends itself by the signal where it was met inside an `exec`, even if it was answered (`python -m`)."""
    (tmp_path / "met.py").write_text(
        "import dally.cli.main as command\nimport atexit\natexit.register(print, 'tidied')\n"
        "command.cli.main = lambda **_: exec('raise KeyboardInterrupt')\ncommand.main()\n")  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "met"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, "tidied\n") and done.stderr == "dally: interrupted\n"


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


# --- twins, and commands that write one file ------------------------------------------------------------------------

TWIN = ("twin", "--history", "jobs.txt", "--present", "fifo", "--policies", "fifo[backfill=easy]", "--workers", "1", "--out", "out")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    rows = ["JobID|User|Partition|Submit|Start|End|State|TimelimitRaw|NNodes|AllocTRES|NodeList"]
    for minute in range(60):
        at = f"2026-03-02T1{minute // 10}:{minute % 10}0:00"
        rows.append(f"{minute}|u{minute % 3}|gpu|{at}|{at}|2026-03-02T1{minute // 10}:{minute % 10}4:00|COMPLETED|30|1|gres/gpu:a100=4|n1")
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_twins_folder_is_never_another_runs_and_is_made_again_byte_for_byte(dally: Dally, history: Path, tmp_path: Path) -> None:
    assert dally(*TWIN, "--quiet").returncode == 0
    before = contents(tmp_path / "out")
    assert set(before) == {"twin.json", "jobs.csv", "twin.html", "provenance.json"}
    other = dally(*TWIN, "--quiet", "--warm-up", "20")
    assert other.returncode == 2 and "holds another run's results (`dally twin --history" in other.stderr
    again = dally("rerun", "out")
    assert again.returncode == 0 and again.stdout.count("the same, byte for byte") == 3
    assert contents(tmp_path / "out") == before
    history.write_text(history.read_text() + "77|u|gpu|x|x|x|COMPLETED|30|1|gres/gpu:a100=4|n1\n")
    changed = dally("rerun", "out")
    assert changed.returncode == 2 and "has changed since" in changed.stderr


def test_a_twin_of_what_came_through_a_pipe_keeps_it(dally: Dally, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(history.read_bytes())))
    assert dally(TWIN[0], "--history", "-", *TWIN[3:], "--quiet").returncode == 0
    history.unlink()
    assert (tmp_path / "out/history").exists() and dally("rerun", "out").returncode == 0


def test_a_twin_goes_on_from_the_replays_that_were_finished(dally: Dally, history: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    words = (*TWIN[:6], "slow.py", *TWIN[7:])
    process = start(tmp_path, *words)
    finished = tmp_path / "out.part/finished"
    until(lambda: finished.is_dir() and any(path.suffix == ".json" for path in finished.iterdir()), process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command goes on from there" in errors, errors
    assert not (tmp_path / "out").exists()
    (tmp_path / "go").touch()
    again = dally(*words)
    assert again.returncode == 0 and "1 replays were finished by an earlier run" in again.stderr
    assert dally(*words[:-1], "whole").returncode == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_file_that_is_there_gives_way_to_the_same_or_with_force(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    words = ("trace", "synth", "philly", "made.csv", "--jobs", "5")
    assert dally(*words).returncode == dally(*words).returncode == 0
    before = (tmp_path / "made.csv").read_bytes()
    other = dally(*words, "--seed", "4")
    assert other.returncode == 2 and "made.csv is there already and holds something else" in other.stderr
    assert (tmp_path / "made.csv").read_bytes() == before
    assert dally(*words, "--seed", "4", "--force").returncode == 0
    assert (tmp_path / "made.csv").read_bytes() != before
    assert dally(*RUN).returncode == 0
    for extra, code in (((), 0), (("--at", "1s"), 2), (("--at", "1s", "--force"), 0)):
        assert dally("journal", "snapshot", "out/fifo", "--out", "then.json", *extra).returncode == code
    full = dally("journal", "snapshot", "out/fifo", "--out", "/dev/full")
    assert full.returncode == 2 and full.stderr == "dally: /dev/full: cannot be written: No space left on device\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv", "made.csv", "out", "then.json"]


def test_a_measurement_is_not_begun_where_its_file_is_there(dally: Dally, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "net.yaml").write_text("mine")
    for words in (("profile", "run", "--out", "net.yaml", "train.py"), ("profile", "fabric", "--out", "net.yaml"),
                  ("calibrate", "train.py", "--cluster", "net.yaml", "--out", "net.yaml")):  # fmt: skip
        refused = dally(*words)
        assert refused.returncode == 2 and "net.yaml is there already" in refused.stderr
    assert (tmp_path / "net.yaml").read_text() == "mine"
