"""A service over the local engine, killed again and again: what it wrote down is what happened."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_attempts import PATIENCE

from dally.live.local.engine import LocalEngine

STARTER = Path(__file__).parent / "scripts" / "starter.py"
SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize(("kills", "count"), [(6, 40), pytest.param(100, 700, marks=pytest.mark.slow)])
def test_killed_at_any_moment_no_attempt_runs_twice_or_is_told_wrong(tmp_path: Path, kills: int, count: int) -> None:
    state, runs = tmp_path / "state", tmp_path / "runs"
    state.mkdir(), runs.mkdir()
    (state / "book").touch()
    chance = random.Random(count)
    for number in range(kills + 1):
        service = subprocess.Popen([sys.executable, str(STARTER), str(state), str(runs), str(count), str(number)], stdout=subprocess.PIPE,
                                   env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"})
        assert service.stdout is not None and service.stdout.readline() == b"up\n"
        if number < kills:
            time.sleep(chance.choice((0.0, 0.01, 0.05, 0.1, 0.2, 0.4)))
            service.kill()
        service.wait(PATIENCE * 5)
        service.stdout.close()
    lines = [line.split(" ", 3) for line in (state / "book").read_text().splitlines()]
    assert lines[-1] == ["done"], "it did not come to its end"
    engine = LocalEngine(state)
    assert not engine.running()
    engine.close()
    told: dict[str, list[list[str]]] = {}
    for line in lines[:-1]:
        told.setdefault(line[1], []).append([line[0], *line[3:]])
    assert len(told) == count
    seen = set()
    for job, words in told.items():
        ran = (runs / f"{job}.1").read_text().split() if (runs / f"{job}.1").exists() else []
        kinds = [word[0] for word in words]
        seen.add(kinds[-1])
        assert ran.count("ran") <= 1 and ran.count("ended") <= 1, f"job {job} ran more than once: {ran}"
        assert kinds[0] == "start" and kinds[-1] in ("Exited", "NotBegun"), words
        if kinds[-1] == "NotBegun":
            assert not ran and "Began" not in kinds
        else:
            assert "Began" in kinds
            code = int(words[-1][1].split()[0])
            assert (ran == ["ran", "ended"]) == (code in (0, 3)), (words, ran)
    assert "Exited" in seen
