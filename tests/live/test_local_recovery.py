"""Engines come and go, attempts stay: whoever comes next finds out what became of each, and nothing runs twice."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_attempts import alive, begins, ends, eventually, number_in, order, python, shim_of
from test_local_engine import ORPHANS, WAITER

from dally.core.errors import UserError
from dally.live.engine import Began, Exited, NotBegun, Stepped, Vanished
from dally.live.local import shim
from dally.live.local.engine import LocalEngine
from dally.live.local.folder import AttemptFolder, Stage, sweep
from dally.live.local.watched import EngineRules

# An engine in a process of its own, that starts what it is told on its command line and then waits to be killed.
ELSEWHERE = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from local_attempts import begins, python
from dally.live.local.engine import LocalEngine
from test_local_engine import WAITER
engine = LocalEngine(sys.argv[3])
engine.start(python(WAITER, sys.argv[4], "143"))
begins(engine)
print("begun", flush=True)
while True: engine.observe(100)
"""


@pytest.fixture
def after(tmp_path: Path) -> Iterator[LocalEngine]:
    """The engine that comes after another one, on the same state."""
    made = LocalEngine(tmp_path / "state", EngineRules(stubborn=1.0))
    yield made
    made.clear()
    made.close()


def test_attempts_survive_an_engine_killed_in_the_middle_and_are_adopted(tmp_path: Path) -> None:
    here, source = Path(__file__).parent, Path(shim.__file__).parents[3]
    first = subprocess.Popen([sys.executable, "-c", ELSEWHERE, str(here), str(source), str(tmp_path / "state"), str(tmp_path / "p")],
                             stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None and first.stdout.readline() == b"begun\n"
        pid = number_in(tmp_path / "p0")
    finally:
        first.kill()
        first.wait()
    assert alive(pid)
    engine = LocalEngine(tmp_path / "state")
    assert engine.running() == {"1": 1}
    engine.adopt("1", 1)
    assert begins(engine) == [Began("1", 1)]
    engine.stop("1", 1, 30.0)
    assert ends(engine) == [Exited("1", 1, 143)]
    assert engine.running() == {}
    engine.close()


def test_what_ended_while_no_engine_was_there_is_told_when_it_is_adopted(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(order("sh", "-c", "sleep 0.1; exit 5"))
    begins(first)
    first.close()
    eventually(lambda: not after.running())
    for _ in range(2):  # as often as one asks
        after.adopt("1", 1)
        assert ends(after) == [Began("1", 1), Exited("1", 1, 5)]


def test_that_an_attempt_was_asked_to_leave_is_told_whoever_asked_it(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(python(WAITER, str(tmp_path / "p"), "143"))
    number_in(tmp_path / "p0")
    first.stop("1", 1, 30.0)
    first.close()
    eventually(lambda: not after.running())
    after.adopt("1", 1)
    assert ends(after) == [Began("1", 1), Exited("1", 1, 143, asked=True)]


def test_adopted_twice_an_attempt_is_told_twice_and_ends_once(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(python(WAITER, str(tmp_path / "p"), "143"))
    number_in(tmp_path / "p0")
    first.close()
    after.adopt("1", 1)
    after.adopt("1", 1)
    assert begins(after) == [Began("1", 1)]
    after.adopt("1", 1)
    assert begins(after) == [Began("1", 1)]
    after.stop("1", 1, 30.0)
    assert ends(after) == [Exited("1", 1, 143)]


def test_what_was_recorded_and_never_started_is_void_for_whoever_comes_late(tmp_path: Path, after: LocalEngine) -> None:
    after.adopt("1", 1)
    assert ends(after) == [NotBegun("1", 1, "it never began", void=True)]
    late = LocalEngine(tmp_path / "state")  # a service that was frozen when it had decided to start it
    late.start(order("touch", str(tmp_path / "ran")))
    (report,) = ends(late)
    assert isinstance(report, NotBegun)
    late.close()
    assert not (tmp_path / "ran").exists()


def test_an_order_of_which_no_shim_was_started_is_void_for_a_shim_that_comes_late(tmp_path: Path, after: LocalEngine) -> None:
    frozen = LocalEngine(tmp_path / "state")
    folder = AttemptFolder(frozen.attempts, "1", 1)
    folder.prepare(frozen._plain(order("touch", str(tmp_path / "ran")), folder))
    after.adopt("1", 1)
    assert ends(after) == [NotBegun("1", 1, "it never began", void=True)]
    assert frozen._spawn(folder).wait() == 0
    frozen.close()
    assert not (tmp_path / "ran").exists()


def test_of_many_who_start_and_void_an_attempt_at_once_one_wins(tmp_path: Path, after: LocalEngine) -> None:
    outcomes = set()
    for number in range(12):
        folder = AttemptFolder(after.attempts, str(number), 1)
        folder.prepare(after._plain(order("sh", "-c", f"echo ran >> {tmp_path}/{number}"), folder))
        shims = [after._spawn(folder) for _ in range(2)]
        if number % 2:
            eventually((folder.path / "claim").exists)
        void = folder.make_void()
        for process in shims:
            process.wait()
        ran = (tmp_path / str(number)).read_text() if (tmp_path / str(number)).exists() else ""
        assert ran == ("" if void else "ran\n")
        after.adopt(str(number), 1)
        expected = [NotBegun(str(number), 1, "it never began", void=True)] if void else [Began(str(number), 1), Exited(str(number), 1, 0)]
        assert ends(after) == expected
        outcomes.add(void)
    assert outcomes == {True, False}


def test_voiding_from_many_threads_against_a_claim_lets_exactly_one_side_win(tmp_path: Path) -> None:
    for number in range(50):
        folder = AttemptFolder(tmp_path, str(number), 1)
        folder.prepare({"token": "t"})
        results: list[bool] = []
        threads = [threading.Thread(target=lambda folder=folder, results=results: results.append(folder.make_void())) for _ in range(3)]

        def claim(folder: AttemptFolder = folder, results: list[bool] = results) -> None:
            try:
                os.link(folder.path / "run", folder.path / "claim")
                results.append(False)
            except FileExistsError:
                results.append(True)

        threads.insert(number % 4, threading.Thread(target=claim))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(results)) == 1, "one believes it void and another that it runs"


@pytest.mark.parametrize("cgroup", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_a_killed_shim_takes_its_ranks_with_it_and_the_attempt_has_vanished(tmp_path: Path, after: LocalEngine, watched: bool, cgroup: bool) -> None:
    if not cgroup:
        after._cgroup = None
    after.start(python(ORPHANS, str(tmp_path / "p"), "wait"))
    pids = [number_in(tmp_path / f"p{number}") for number in range(3)]
    begins(after)
    os.kill(shim_of(after), signal.SIGKILL)
    if watched:
        (report,) = ends(after)
    else:
        other = LocalEngine(tmp_path / "state")
        other.adopt("1", 1)
        began, report = ends(other)
        assert began == Began("1", 1)
        other.close()
    assert isinstance(report, Vanished) and "died" in report.cause
    assert not any(map(alive, pids))


def test_a_process_that_has_the_number_of_a_dead_shim_is_left_alone(tmp_path: Path, after: LocalEngine) -> None:
    """As after a reboot: the record names a process that is somebody else now."""
    folder = AttemptFolder(after.attempts, "1", 1)
    folder.prepare({"token": "t" * 32})
    os.link(folder.path / "run", folder.path / "claim")
    bystander = subprocess.Popen(["sleep", "1000"])
    record = shim.Record(str(folder.path / "exit"))
    record.write(state="running", pid=bystander.pid, start="12345", token="t" * 32)
    after.adopt("1", 1)
    after.stop("1", 1, 0.0)
    assert ends(after) == [Began("1", 1), Vanished("1", 1, "the process that watched over it died")]
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_shim_that_does_not_hear_is_killed_by_number_and_start_time_never_by_number_alone(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path, EngineRules(stubborn=0.0, look_every=0.02))
    folder = AttemptFolder(engine.attempts, "1", 1)
    folder.prepare({"token": "t" * 32})
    os.link(folder.path / "run", folder.path / "claim")
    bystander = subprocess.Popen(["sleep", "1000"])
    begun = shim.start_time(bystander.pid)
    record = shim.Record(str(folder.path / "exit"))
    record.write(state="running", pid=bystander.pid, start="12345", token="t" * 32)
    held = os.open(folder.path / "lock", os.O_RDWR)  # as if the shim lived, and slept
    fcntl.flock(held, fcntl.LOCK_EX)
    deaf = os.open(folder.path / "control", os.O_RDWR | os.O_NONBLOCK)
    engine.adopt("1", 1)
    assert begins(engine) == [Began("1", 1)]
    engine.stop("1", 1, 0.0)
    for _ in range(10):
        assert list(engine.observe(0.05)) == [] and bystander.poll() is None
    record.write(start=begun)
    eventually(lambda: engine.observe(0.05) or bystander.poll() is not None)
    assert bystander.wait() == -signal.SIGKILL
    os.close(held), os.close(deaf)
    assert isinstance(ends(engine)[-1], Vanished)
    engine.close()


@pytest.mark.parametrize("damage", ["torn", "empty", "missing"])
def test_a_record_that_was_damaged_is_an_attempt_that_vanished(after: LocalEngine, damage: str) -> None:
    after.start(order("true"))
    ends(after)
    path = after.attempts / "1.1" / "exit"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"exited", b"ex\0ted").replace(b"running", b"ru") if damage == "torn" else b"")
    after.adopt("1", 1)
    began, vanished = ends(after)
    assert began == Began("1", 1) and isinstance(vanished, Vanished)


def test_half_a_slot_leaves_the_one_before_it(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path, "1", 1)
    folder.prepare({"token": "t"})
    path = folder.path / "exit"
    record = shim.Record(str(path))
    for turn in range(1, 9):
        record.write(state="running", cause="é" * turn * 1000)
        whole = path.read_bytes()
        at = turn % 2 * shim.SLOT
        for cut in range(0, shim.SLOT, 97):
            path.write_bytes(whole[: at + cut] + bytes(shim.SLOT - cut) + whole[at + shim.SLOT :])
            read = shim.read_record(str(path))
            assert read is not None and read["turn"] == turn - 1
        path.write_bytes(whole)
        assert shim.read_record(str(path)) == {**record.fields, "cause": (read_cause := shim.read_record(str(path)))["cause"]}  # type: ignore[index]
        assert read_cause["cause"] and set(read_cause["cause"]) == {"é"}  # type: ignore[index]


@pytest.mark.parametrize("watched", [True, False])
def test_a_folder_that_somebody_removed_hides_nothing_that_runs(tmp_path: Path, after: LocalEngine, watched: bool) -> None:
    first = after if watched else LocalEngine(tmp_path / "state")
    first.start(python(WAITER, str(tmp_path / "p"), "143"))
    pid = number_in(tmp_path / "p0")
    begins(first)
    if not watched:
        first.close()
    shutil.rmtree(after.attempts / "1.1")
    if not watched:
        after.adopt("1", 1)
    found = ends(after)
    assert found[-1] == Vanished("1", 1, "its folder is gone") and found[:-1] == ([] if watched else [Began("1", 1)])
    assert not alive(pid)


def test_a_stop_before_the_shim_has_begun_voids_the_attempt(tmp_path: Path, after: LocalEngine) -> None:
    for number in range(5):
        after.start(order("sh", "-c", f"echo ran >> {tmp_path}/{number}; sleep 1000", job=str(number)))
        after.stop(str(number), 1, 0.0)
        report = ends(after)[-1]
        if isinstance(report, NotBegun):
            assert not (tmp_path / str(number)).exists()
        else:
            assert report == Exited(str(number), 1, -9)


def test_a_forgotten_attempt_keeps_its_output_and_can_never_begin_again(tmp_path: Path, after: LocalEngine) -> None:
    what = order("sh", "-c", f"echo said; echo ran >> {tmp_path}/ran")
    after.start(what)
    ends(after)
    after.forget("1", 1)
    folder = after.attempts / "1.1"
    assert sorted(path.name for path in folder.iterdir()) == ["claim", "out.log"]
    assert (folder / "out.log").read_text() == "said\n"
    after.start(what)
    ends(after)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_what_runs_is_not_forgotten(tmp_path: Path, after: LocalEngine) -> None:
    after.start(python(WAITER, str(tmp_path / "p"), "143"))
    begins(after)
    after.forget("1", 1)
    assert after.running() == {"1": 1}
    after.stop("1", 1, 0.0)
    assert isinstance(ends(after)[-1], Exited)


def test_output_older_than_it_is_kept_is_removed_and_only_where_it_is_forgotten(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "state")
    for job in ("old", "young", "untold"):
        engine.start(order("echo", "said", job=job))
        ends(engine)
    engine.forget("old", 1), engine.forget("young", 1)
    for job in ("old", "untold"):
        for path in (*(engine.attempts / f"{job}.1").iterdir(), engine.attempts / f"{job}.1"):
            os.utime(path, (1e9, 1e9))
    sweep(engine.attempts, 3600.0)
    assert sorted(path.name for path in engine.attempts.iterdir()) == ["untold.1", "young.1"]
    engine.close()


def test_what_a_job_said_of_itself_is_known_again_after_a_restart(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(order("sh", "-c", 'echo \'{"step_time": 0.25, "saved_seconds": 12.5}\' > $DALLY_PROGRESS; sleep 1000'))
    eventually((after.attempts / "1.1" / "progress").exists)
    begins(first)
    first.close()
    after.adopt("1", 1)
    found = begins(after)
    assert found == [Began("1", 1), Stepped("1", 1, 0.25, saved=12.5)]


def test_two_engines_on_one_state_both_see_an_attempt_and_it_ends_once(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(order("sh", "-c", f"echo ran >> {tmp_path}/ran; sleep 0.2"))
    begins(first)
    after.adopt("1", 1)
    assert ends(after) == [Began("1", 1), Exited("1", 1, 0)]
    assert ends(first) == [Exited("1", 1, 0)]
    first.close()
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_the_ranks_of_a_killed_shim_die_though_no_engine_is_there(tmp_path: Path) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(python(WAITER, str(tmp_path / "p"), "143", machines=("m0", "m1")))
    pids = [number_in(tmp_path / "p0"), number_in(tmp_path / "p1")]
    first.close()
    os.kill(shim_of(first), signal.SIGKILL)
    try:
        eventually(lambda: not any(map(alive, pids)))
    finally:
        last = LocalEngine(tmp_path / "state")  # whatever the test finds, it leaves nobody behind
        last.clear()
        last.close()


def test_what_a_killed_shim_left_behind_counts_as_running_until_it_is_put_out(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first._cgroup = None
    first.start(python(ORPHANS, str(tmp_path / "p"), "wait"))
    pids = [number_in(tmp_path / f"p{number}") for number in range(3)]
    os.kill(shim_of(first), signal.SIGKILL)
    first.close()
    assert after.running() == {"1": 1}
    after.clear()
    assert not after.running() and not any(map(alive, pids))


def test_a_state_that_cannot_hold_attempts_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot hold attempts"):
        LocalEngine(tmp_path / "file")

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("dally.live.local.folder.os.link", no_links)
    with pytest.raises(UserError, match="hard links"):
        LocalEngine(tmp_path / "state")
    assert not list((tmp_path / "state" / "attempts").iterdir())


def test_clear_puts_out_what_others_started_too(tmp_path: Path, after: LocalEngine) -> None:
    first = LocalEngine(tmp_path / "state")
    first.start(python(WAITER, str(tmp_path / "p"), "143"))
    pid = number_in(tmp_path / "p0")
    first.close()
    after.clear()
    assert not alive(pid) and not after.running()


def test_without_room_for_an_order_an_attempt_has_not_begun(after: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("dally.live.local.folder.os.write", full)
        after.start(order("true"))
    (report,) = ends(after)
    assert isinstance(report, NotBegun) and "No space left" in report.cause and report.void


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB, where one may be mounted."""
    path = tmp_path / "small"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(path)], capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return path


def test_a_disk_that_fills_up_loses_output_and_no_exit_code(small_disk: Path) -> None:
    engine = LocalEngine(small_disk)
    talk = "import sys, pathlib, time\ngo = pathlib.Path(sys.argv[1])\nprint('first', flush=True)\n" \
           "while not go.exists(): time.sleep(0.01)\nfor _ in range(20000): print('x' * 50)\nsys.stdout.flush()\nsys.exit(9)"  # fmt: skip
    go = small_disk.parent / "go"
    engine.start(python(talk, str(go)))
    begins(engine)
    eventually((engine.attempts / "1.1" / "out.log").exists)
    fill(small_disk)
    go.touch()
    assert ends(engine) == [Exited("1", 1, 9)]
    engine.start(order("true", job="2"))
    (report,) = ends(engine)
    assert isinstance(report, NotBegun)
    engine.close()
    again = LocalEngine(small_disk)  # also without room
    again.adopt("1", 1)
    assert ends(again) == [Began("1", 1), Exited("1", 1, 9)]
    again.close()


def test_when_there_is_room_again_the_log_says_what_it_lost(small_disk: Path) -> None:
    engine = LocalEngine(small_disk)
    talk = "import sys, pathlib, time\nfor name in ('full', 'room'):\n    go = pathlib.Path(sys.argv[1] + name)\n" \
           "    while not go.exists(): time.sleep(0.01)\n    print(name * 1000, flush=True)"  # fmt: skip
    engine.start(python(talk, str(small_disk.parent / "go-")))
    begins(engine)
    filler = fill(small_disk)
    (small_disk.parent / "go-full").touch()
    eventually(lambda: (engine.attempts / "1.1" / "out.log").exists())
    time.sleep(0.3)  # what is printed now has nowhere to go
    filler.unlink()
    (small_disk.parent / "go-room").touch()
    assert ends(engine) == [Exited("1", 1, 0)]
    log = (engine.attempts / "1.1" / "out.log").read_text()
    assert log.startswith("[dally: 4001 bytes of output were dropped") and log.endswith("room\n")
    engine.close()


def test_an_attempt_is_voided_on_a_full_disk(small_disk: Path) -> None:
    engine = LocalEngine(small_disk)
    folder = AttemptFolder(engine.attempts, "1", 1)
    folder.prepare(engine._plain(order("true"), folder))
    fill(small_disk)
    engine.adopt("1", 1)
    assert ends(engine) == [NotBegun("1", 1, "it never began", void=True)]
    engine.adopt("2", 1)  # not even a folder: an empty claim does
    assert ends(engine) == [NotBegun("2", 1, "it never began", void=True)]
    assert AttemptFolder(engine.attempts, "2", 1).look().stage is Stage.VOID
    engine.close()


def test_an_order_says_what_is_run_and_is_readable_by_nobody_else(after: LocalEngine) -> None:
    after.start(order("true", environment={"SECRET": "s"}))
    path = after.attempts / "1.1" / "order.json"
    assert json.loads(path.read_text())["environment"]["SECRET"] == "s"
    assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
    ends(after)
