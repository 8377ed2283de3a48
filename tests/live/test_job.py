"""The library for training scripts: wherever a loop is interrupted, it goes on as if it had not been."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_attempts import begins, ends, eventually, python

import dally.job
from dally.live.engine import Exited, Stepped
from dally.live.local.engine import LocalEngine
from dally.live.local.progress import stepped

SOURCE = Path(__file__).parents[2] / "src"


class Counter:
    """Something with a state, as models and optimizers are."""

    def __init__(self) -> None:
        self.total = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class Sampler:
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Loader:
    """Batches that depend on the epoch, on random numbers at its begin, and on random numbers at each of them."""

    def __init__(self, count: int) -> None:
        self.count, self.sampler = count, Sampler()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        order = list(range(self.count))
        random.shuffle(order)
        for index in order:
            yield self.sampler.epoch, index, random.random()


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("DALLY_") or name in ("RANK", "WORLD_SIZE")]:
        monkeypatch.delenv(name)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def walk(directory: Path | None, seen: list[Any], interrupt: int | None, kind: str, **options: Any) -> int:
    """A script: it draws random numbers, adds them up, and is asked to leave in the middle of one step. Its exit code."""
    random.seed(7)
    counter = Counter()
    steps: Any = dally.job.loop(12, counter, directory=directory, **options) if kind == "loop" else \
        dally.job.batches(Loader(4), counter, epochs=3, directory=directory, **options)  # fmt: skip
    try:
        for what in steps:
            counter.total += random.random()
            seen.append((what, counter.total))
            if interrupt is not None and len(seen) == interrupt:
                os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.mark.parametrize("kind", ["loop", "batches"])
def test_wherever_it_is_interrupted_it_goes_on_exactly_as_if_it_had_not_been(tmp_path: Path, kind: str) -> None:
    whole: list[Any] = []
    assert walk(None, whole, None, kind) == 0
    assert len(whole) == 12
    for first in range(1, 12):
        for second in {first + 1, 12}:
            folder, seen = tmp_path / f"{first}-{second}", []
            assert walk(folder, seen, first, kind) == 143
            assert walk(folder, seen, second, kind) == (143 if second < 12 else 0)
            if second < 12:
                assert walk(folder, seen, None, kind) == 0
            assert seen == whole


def test_asked_during_its_last_step_it_has_nothing_left_to_save(tmp_path: Path) -> None:
    seen: list[Any] = []
    assert walk(tmp_path, seen, 12, "loop") == 0
    assert len(seen) == 12


def test_without_dally_and_without_a_directory_it_is_a_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []
    for step in dally.job.loop(3, Counter()):
        assert signal.getsignal(signal.SIGTERM) is before
        seen.append(step)
    assert seen == [0, 1, 2] and not list(tmp_path.iterdir())


def test_the_handler_of_the_script_is_called_too_and_is_back_afterwards(tmp_path: Path) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
    try:
        mine = signal.getsignal(signal.SIGTERM)
        assert walk(tmp_path / "a", [], None, "loop") == 0
        assert signal.getsignal(signal.SIGTERM) is mine
        assert walk(tmp_path / "b", [], 3, "loop") == 143
        assert called == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_it_saves_every_so_many_steps_and_keeps_the_newest(tmp_path: Path) -> None:
    assert walk(tmp_path, [], None, "loop", every=3) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-6", "step-9"]
    assert json.loads((tmp_path / "step-9" / "about.json").read_text())["step"] == 9
    assert walk(tmp_path / "clock", [], None, "loop", every_seconds=0.0, keep=100) == 0
    assert len(list((tmp_path / "clock").iterdir())) == 11


def test_a_checkpoint_that_was_not_finished_is_not_taken_up(tmp_path: Path) -> None:
    assert walk(tmp_path, [], 4, "loop") == 143
    (tmp_path / ".new-9").mkdir()
    (tmp_path / ".new-9" / "rank-0").write_bytes(b"half")
    (tmp_path / "step-11").mkdir()  # made by nobody we know
    seen: list[Any] = []
    assert walk(tmp_path, seen, 2, "loop") == 143
    assert seen[0][0] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-11", "step-4", "step-6"]


def test_who_cannot_save_says_so_and_does_not_claim_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def save(path: Path) -> None:
        raise OSError("no room")

    seen: list[int] = []
    with pytest.raises(SystemExit) as left:
        for step in dally.job.loop(9, save=save, load=lambda _: None, every=2, directory=tmp_path):
            seen.append(step)  # a save in between that fails is no reason to stop
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
    assert left.value.code == 1 and seen == [0, 1, 2, 3, 4, 5]
    assert "step 2 could not be saved: no room" in capsys.readouterr().err
    assert not list(tmp_path.glob("step-*"))


def test_a_script_may_save_and_load_by_itself(tmp_path: Path) -> None:
    state = {"n": 0}

    def load(path: Path) -> None:
        state.update(pickle.loads(path.read_bytes()))

    for interrupted in (True, False):
        state["n"] = 0
        try:
            for step in dally.job.loop(6, save=lambda path: path.write_bytes(pickle.dumps(state)), load=load, directory=tmp_path):
                assert state["n"] == step
                state["n"] += 1
                if interrupted and step == 3:
                    os.kill(os.getpid(), signal.SIGTERM)
        except SystemExit as left:
            assert interrupted and left.code == 143
    assert state["n"] == 6


@pytest.mark.parametrize(("arguments", "options"), [((object(),), {}), ((), {"save": print}), ((), {"load": print}), ((), {"ranks": "some"})])
def test_what_cannot_be_saved_is_refused_before_the_first_step(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        next(iter(dally.job.loop(3, *arguments, **options)))


def test_importing_it_imports_nothing_else_of_dally_and_no_torch() -> None:
    code = "import sys, dally.job\nprint(sorted(n for n in sys.modules if n.startswith(('dally', 'torch', 'numpy', 'pydantic'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=True)
    assert done.stdout.strip() == "['dally', 'dally.compiled', 'dally.job', 'dally.version']"


SCRIPT = """
import os, sys, time
import dally.job
class Counter:
    total = 0
    def state_dict(self): return self.total
    def load_state_dict(self, state): self.total = state
counter = Counter()
for step in dally.job.loop(int(sys.argv[2]), *([counter] if sys.argv[3] == "saves" else [])):
    counter.total += step
    with open(sys.argv[1] + os.environ["RANK"], "a") as file: print(step, counter.total, file=file)
    time.sleep(0.02)
"""


def rows(path: Path) -> list[list[int]]:
    return [[int(number) for number in line.split()] for line in path.read_text().splitlines()] if path.exists() else []


def run_script(local: LocalEngine, path: Path, attempt: int, steps: int, saves: str = "saves", **more: Any) -> None:
    what = python(SCRIPT, str(path), str(steps), saves, attempt=attempt, environment={"PYTHONPATH": str(SOURCE)}, grace=60.0, **more)
    local.start(what)
    begins(local)


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_under_the_engine_a_job_yields_and_resumes(tmp_path: Path, local: LocalEngine, name: str) -> None:
    path = tmp_path / "r"
    run_script(local, path, 1, 10_000, signal=name)
    eventually(lambda: len(rows(tmp_path / "r0")) > 5)
    local.stop("1", 1, 60.0)
    assert ends(local)[-1] == Exited("1", 1, 143)
    done = len(rows(tmp_path / "r0"))
    run_script(local, path, 2, done + 5, signal=name)
    assert ends(local)[-1] == Exited("1", 2, 0)
    assert rows(tmp_path / "r0") == [[step, sum(range(step + 1))] for step in range(done + 5)]


def test_a_job_that_saves_nothing_does_not_claim_to(tmp_path: Path, local: LocalEngine) -> None:
    run_script(local, tmp_path / "r", 1, 10_000, "saves nothing")
    eventually(lambda: len(rows(tmp_path / "r0")) > 2)
    local.stop("1", 1, 60.0)
    assert ends(local)[-1] == Exited("1", 1, -signal.SIGTERM)


def test_processes_that_cannot_ask_each_other_save_and_resume_each_for_itself(tmp_path: Path, local: LocalEngine) -> None:
    run_script(local, tmp_path / "r", 1, 10_000, machines=("m0", "m1"))
    eventually(lambda: all(len(rows(tmp_path / f"r{rank}")) > 5 for rank in range(2)))
    local.stop("1", 1, 60.0)
    assert ends(local)[-1] == Exited("1", 1, 143)
    more = max(len(rows(tmp_path / f"r{rank}")) for rank in range(2)) + 5
    run_script(local, tmp_path / "r", 2, more, machines=("m0", "m1"))
    assert ends(local)[-1] == Exited("1", 2, 0)
    for rank in range(2):
        assert rows(tmp_path / f"r{rank}") == [[step, sum(range(step + 1))] for step in range(more)]


def test_reports_reach_the_engine_with_what_was_saved(tmp_path: Path, local: LocalEngine) -> None:
    run_script(local, tmp_path / "r", 1, 10_000)
    found: list[Any] = []
    eventually(lambda: found.extend(local.observe(0.1)) or any(isinstance(report, Stepped) for report in found))
    assert all(report.step_time >= 0.02 for report in found if isinstance(report, Stepped))
    local.stop("1", 1, 60.0)
    last = [report for report in ends(local) if isinstance(report, Stepped)][-1]
    assert last.saved is not None and last.saved >= 0.02 * len(rows(tmp_path / "r0"))


def test_messages_without_the_token_are_not_believed(tmp_path: Path, local: LocalEngine) -> None:
    local.start(python("import time; time.sleep(1000)"))
    begins(local)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as liar:
        for message in ({"kind": "step", "job": "1", "attempt": 1, "token": "guessed", "step_time": 1.0}, {"kind": "step", "job": "1"}, [], 7,
                        {"kind": "step", "job": ["1"], "attempt": {}}, {"kind": "over", "job": "1", "attempt": 1}):
            liar.sendto(json.dumps(message).encode(), str(local.state / "engine.sock"))
        liar.sendto(b"\xff\xfe", str(local.state / "engine.sock"))
    assert local.observe(0.5) == []
    assert local.running() == {"1": 1}


@pytest.mark.parametrize("message", [{}, {"step_time": 0}, {"step_time": -1}, {"step_time": float("nan")}, {"step_time": "1"}, {"step_time": True}, {"step_time": 1e400}])
def test_figures_that_are_no_figures_are_left_out(message: dict[str, Any]) -> None:
    assert stepped("1", 1, message, None) is None


def test_saved_work_is_in_seconds_at_full_speed_where_a_profile_says_what_that_is() -> None:
    message = {"step_time": 0.5, "saved_steps": 10, "saved_seconds": 7.0, "exposed": 0.2}
    assert stepped("1", 1, message, None) == Stepped("1", 1, 0.5, 0.2, None, 7.0)
    assert stepped("1", 1, message, 0.4) == Stepped("1", 1, 0.5, 0.2, None, 4.0)
