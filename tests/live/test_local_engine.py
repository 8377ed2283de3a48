"""Attempts are gangs of processes: they begin together, end together, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from local_attempts import (
    PATIENCE,
    alive,
    begins,
    ends,
    eventually,
    number_in,
    open_files,
    order,
    python,
    reports,
    shim_of,
    state_of,
)

from dally.live.engine import Began, Exited, NotBegun, Stepped, Vanished
from dally.live.local import cgroups, shim
from dally.live.local.engine import LocalEngine
from dally.live.local.watched import EngineRules

# Writes down its number and waits; on SIGTERM it leaves with the code it was given.
WAITER = """
import os, pathlib, signal, sys, time
def leave(*_):
    os._exit(int(sys.argv[2]))
signal.signal(signal.SIGTERM, leave)
path = pathlib.Path(sys.argv[1] + os.environ["RANK"])
path.with_suffix(".new").write_text(str(os.getpid()))
path.with_suffix(".new").rename(path)
while True: time.sleep(0.02)
"""


def test_what_a_command_returns_is_reported_after_its_begin(local: LocalEngine) -> None:
    for attempt, code in enumerate((0, 3, 143), start=1):
        local.start(order("sh", "-c", f"exit {code}", attempt=attempt))
        assert ends(local) == [Began("1", attempt), Exited("1", attempt, code)]
    local.start(order("sh", "-c", "kill -SEGV $$", attempt=4))
    assert ends(local)[-1] == Exited("1", 4, -signal.SIGSEGV)


@pytest.mark.parametrize(("what", "cause"), [
    (order("no-such-program-here"), "no-such-program-here"),
    (order("true", directory="/no/such/folder"), "/no/such/folder"),
    (order("true", signal="NONSENSE"), "NONSENSE"),
    (order(), "no command"),
    (order("true", output="/no/such/folder/file"), "/no/such/folder/file"),
    (order("true", output="/dev/null"), "regular file"),
    (order("true", environment={"A": "nul\0byte"}), "cannot be started"),
])  # fmt: skip
def test_what_cannot_be_started_is_reported_with_its_cause_and_never_raises(local: LocalEngine, what: object, cause: str) -> None:
    local.start(what)  # type: ignore[arg-type]
    (report,) = ends(local)
    assert isinstance(report, NotBegun) and cause in report.cause and not report.void  # its own fault
    assert not local.running()


def test_a_command_is_not_seen_by_any_shell(local: LocalEngine, tmp_path: Path) -> None:
    local.start(order("echo", f"$(touch {tmp_path}/made); `id` > x", job="; touch x/../y"))
    assert ends(local)[-1] == Exited("; touch x/../y", 1, 0)
    (log,) = tmp_path.glob("state/attempts/*/out.log")
    assert log.read_text() == f"$(touch {tmp_path}/made); `id` > x\n"
    assert not (tmp_path / "made").exists()


def test_who_is_asked_to_leave_and_saves_leaves_with_143(local: LocalEngine, tmp_path: Path) -> None:
    local.start(python(WAITER, str(tmp_path / "p"), "143"))
    begins(local)
    number_in(tmp_path / "p0")
    local.stop("1", 1, 30.0)
    assert ends(local) == [Exited("1", 1, 143)]


def test_who_does_not_leave_in_its_grace_is_killed(local: LocalEngine, tmp_path: Path) -> None:
    stubborn = WAITER.replace("signal.signal(signal.SIGTERM, leave)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    local.start(python(stubborn, str(tmp_path / "p"), "143"))
    pid = number_in(tmp_path / "p0")
    local.stop("1", 1, 0.2)
    assert ends(local)[-1] == Exited("1", 1, -9)
    assert not alive(pid)


def test_put_out_at_once_nobody_is_asked(local: LocalEngine, tmp_path: Path) -> None:
    local.start(python(WAITER, str(tmp_path / "p"), "143"))
    number_in(tmp_path / "p0")
    local.stop("1", 1, 0.0)
    assert ends(local)[-1] == Exited("1", 1, -9)


def test_another_signal_than_term_asks_if_the_program_wants_it(local: LocalEngine, tmp_path: Path) -> None:
    local.start(python(WAITER.replace("SIGTERM", "SIGUSR1"), str(tmp_path / "p"), "143", signal="USR1"))
    number_in(tmp_path / "p0")
    local.stop("1", 1, 30.0)
    assert ends(local)[-1] == Exited("1", 1, 143)


# What the ranks of a gang return when they are asked to leave, and what the attempt returns.
@pytest.mark.parametrize(("codes", "code"), [("143 143", 143), ("143 0", 143), ("143 7", 7), ("0 0", 0)])
def test_a_gang_has_saved_only_if_nobody_in_it_failed_to(local: LocalEngine, tmp_path: Path, codes: str, code: int) -> None:
    waiter = WAITER.replace("int(sys.argv[2])", "int(sys.argv[2].split()[int(os.environ['RANK'])])")
    local.start(python(waiter, str(tmp_path / "p"), codes, machines=("m0", "m1")))
    number_in(tmp_path / "p0"), number_in(tmp_path / "p1")
    local.stop("1", 1, 30.0)
    assert ends(local)[-1] == Exited("1", 1, code)


def test_one_rank_that_had_to_be_killed_spoils_what_the_others_saved(local: LocalEngine, tmp_path: Path) -> None:
    waiter = WAITER.replace("    os._exit", "    if os.environ['RANK'] == '1': os._exit")
    local.start(python(waiter, str(tmp_path / "p"), "143", machines=("m0", "m1")))
    number_in(tmp_path / "p0"), number_in(tmp_path / "p1")
    local.stop("1", 1, 0.3)
    assert ends(local)[-1] == Exited("1", 1, -9)


def test_the_first_rank_that_fails_ends_the_others_and_its_code_counts(local: LocalEngine, tmp_path: Path) -> None:
    failing = WAITER.replace(
        "while True:", "while int(os.environ['RANK']) != 1 or not pathlib.Path(sys.argv[1] + 'go').exists():") + "\nsys.exit(7)"
    local.start(python(failing, str(tmp_path / "p"), "143", mask=7, processes="gpu"))
    pids = [number_in(tmp_path / f"p{rank}") for rank in range(3)]
    (tmp_path / "pgo").touch()
    assert ends(local)[-1] == Exited("1", 1, 7)
    assert not any(map(alive, pids))


def test_a_rank_killed_by_somebody_ends_the_gang(local: LocalEngine, tmp_path: Path) -> None:
    local.start(python(WAITER, str(tmp_path / "p"), "143", machines=("m0", "m1")))
    first, second = number_in(tmp_path / "p0"), number_in(tmp_path / "p1")
    os.kill(second, signal.SIGKILL)
    assert ends(local)[-1] == Exited("1", 1, -9)
    assert not alive(first)


def test_the_time_limit_ends_an_attempt_and_is_named_as_the_cause(local: LocalEngine) -> None:
    local.start(order("sleep", "1000", time_limit=0.2, grace=5.0))
    last = ends(local)[-1]
    assert isinstance(last, Exited) and last.code == -signal.SIGTERM and "time limit of 0.2 s" in last.cause


ORPHANS = """
import os, pathlib, signal, sys, time
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            pathlib.Path(sys.argv[1] + str(number) + ".new").write_text(str(os.getpid()))
            os.rename(sys.argv[1] + str(number) + ".new", sys.argv[1] + str(number))
            time.sleep(1000)
        os._exit(0)
while not all(pathlib.Path(sys.argv[1] + str(number)).exists() for number in range(3)): time.sleep(0.01)
if sys.argv[2] == "wait": time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["by itself", "put out", "asked", "shim killed"])
def test_processes_that_forked_twice_and_left_their_session_are_gone_with_the_attempt(local: LocalEngine, tmp_path: Path, how: str) -> None:
    local.start(python(ORPHANS, str(tmp_path / "p"), "go" if how == "by itself" else "wait"))
    pids = [number_in(tmp_path / f"p{number}") for number in range(3)]
    if how == "put out":
        local.stop("1", 1, 0.0)
    elif how == "asked":
        local.stop("1", 1, 0.3)
    elif how == "shim killed":
        os.kill(shim_of(local), signal.SIGKILL)
    report = ends(local)[-1]
    assert isinstance(report, Vanished if how == "shim killed" else Exited)
    assert not any(map(alive, pids))


HIDING = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1000)",
                                   sys.argv[1]], {})
    os._exit(0)
time.sleep(1000)
"""


def test_in_a_cgroup_even_a_process_that_carries_no_mark_is_gone_when_the_shim_was_killed(local: LocalEngine, tmp_path: Path) -> None:
    parent = cgroups.own_cgroup()
    if parent is None:
        pytest.skip("no cgroup can be made here")
    local.start(python(HIDING, str(tmp_path / "p")))
    pid = number_in(tmp_path / "p")
    cgroup = Path(shim.cgroup_of(parent, local._watched[("1", 1)].order["token"]))
    assert str(pid) in (cgroup / "cgroup.procs").read_text().split()
    os.kill(shim_of(local), signal.SIGKILL)
    assert isinstance(ends(local)[-1], Vanished)
    assert not alive(pid)
    assert not cgroup.exists()


def test_a_shell_that_dies_of_the_signal_leaves_its_program_the_grace_to_save(local: LocalEngine, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WAITER.replace("os._exit", "time.sleep(0.2); os._exit"))
    local.start(order("sh", "-c", f"{sys.executable} -S {script} {tmp_path}/p 143; echo after"))
    number_in(tmp_path / "p0")
    local.stop("1", 1, 30.0)
    assert ends(local)[-1] == Exited("1", 1, 143)


def test_suspended_nobody_in_the_gang_moves_and_resumed_everybody_does(local: LocalEngine, tmp_path: Path) -> None:
    local.start(python(WAITER.replace("path = ", "if os.fork() == 0: time.sleep(1000)\npath = "), str(tmp_path / "p"), "143", machines=("m0", "m1")))
    number_in(tmp_path / "p0"), number_in(tmp_path / "p1")
    pids = [pid for pid, _ in shim.descendants(shim_of(local))]
    assert len(pids) == 4
    local.suspend("1", 1)
    eventually(lambda: all(state_of(pid) == "T" for pid in pids))
    local.resume("1", 1)
    eventually(lambda: all(state_of(pid) != "T" for pid in pids))
    local.suspend("1", 1)
    eventually(lambda: all(state_of(pid) == "T" for pid in pids))
    local.stop("1", 1, 30.0)  # who is suspended can still save
    assert ends(local)[-1] == Exited("1", 1, 143)


def test_the_time_limit_does_not_run_while_an_attempt_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(shim, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    monkeypatch.setattr(shim, "descendants", lambda _: [])
    gang = shim.Gang({"time_limit": 10.0, "grace": 5.0, "signal": 15, "ranks": [], "cgroup": None}, None)  # type: ignore[arg-type]
    signal.set_wakeup_fd(-1)
    now[0] += 4.0
    assert gang.keep_time() == 6.0
    gang.obey(b"suspend")
    now[0] += 1000.0
    assert gang.keep_time() is None
    gang.obey(b"resume")
    now[0] += 5.0
    assert gang.keep_time() == 1.0 and not gang.asked
    now[0] += 1.0
    assert gang.keep_time() == 5.0 and gang.asked and "time limit of 10 s" in gang.cause


def test_stopping_what_is_over_or_was_never_there_is_nothing(local: LocalEngine) -> None:
    local.start(order("true"))
    ends(local)
    local.stop("1", 1, 0.0)
    local.stop("1", 2, 0.0)
    local.stop("unknown", 1, 1.0)
    local.suspend("unknown", 1)
    assert local.observe(0.0) == []


def test_wake_ends_a_wait_from_another_thread(local: LocalEngine) -> None:
    waiting = threading.Thread(target=local.observe, args=(1e6,), daemon=True)
    waiting.start()
    local.wake()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_a_state_folder_too_deep_for_a_socket_costs_hints_and_nothing_else(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / ("deep" * 40))
    try:
        assert engine._socket is None
        engine.start(order("sh", "-c", "echo '{\"step_time\": 0.5}' > $DALLY_PROGRESS"))
        assert ends(engine) == [Began("1", 1), Stepped("1", 1, 0.5), Exited("1", 1, 0)]
    finally:
        engine.clear()
        engine.close()


def test_a_shim_that_does_not_obey_is_killed_itself_and_its_ranks_with_it(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "state", EngineRules(stubborn=0.3, look_every=0.1))
    engine.start(python(WAITER, str(tmp_path / "p"), "143"))
    pid = number_in(tmp_path / "p0")
    os.kill(shim_of(engine), signal.SIGSTOP)
    engine.stop("1", 1, 0.0)
    assert isinstance(ends(engine)[-1], Vanished)
    assert not alive(pid)
    engine.close()


def test_a_shim_that_has_heard_is_left_to_wait_for_ranks_that_die_slowly(tmp_path: Path) -> None:
    """As those do that hold much memory on a GPU: the exit code is not thrown away for impatience."""
    engine = LocalEngine(tmp_path / "state", EngineRules(stubborn=0.0, look_every=0.05))
    slow = WAITER.replace("    os._exit", "    time.sleep(0.5); os._exit")
    engine.start(python(slow, str(tmp_path / "p"), "143"))
    number_in(tmp_path / "p0")
    engine.stop("1", 1, 30.0)
    eventually(lambda: engine._watched[("1", 1)].folder.look().asked)
    engine._watched[("1", 1)].killed_after["leave"] = 0.0
    assert ends(engine)[-1] == Exited("1", 1, 143)
    engine.close()


def test_twenty_attempts_leave_no_file_open_and_no_process_unreaped(local: LocalEngine) -> None:
    before = open_files()
    for number in range(20):
        local.start(order("true", job=str(number)))
    ends(local, 20)
    reports(local, lambda _: not local._to_reap)
    assert open_files() == before
    children = [path for path in Path("/proc").glob("[0-9]*/stat") if path.exists() and _is_child(path)]
    assert not children


def _is_child(path: Path) -> bool:
    try:
        text = path.read_text()
    except OSError:
        return False
    return int(text.rpartition(")")[2].split()[1]) == os.getpid() and "shim" in text
