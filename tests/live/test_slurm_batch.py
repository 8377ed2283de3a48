"""The batch process of a job on several nodes: a node that has begun and falls silent is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.live.local import shim
from dally.live.slurm.batch import LOST, Beat, Steps


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    for number in range(2):
        (tmp_path / f"exit.{number}").write_bytes(shim.packed({"turn": 0, "state": "ordered", "cause": ""}) + b" " * shim.SLOT)
    order = {"nodes": ["n1", "n2"], "folder": str(tmp_path), "time_limit": None, "cgroup": None, "silence": 40.0,
             "ranks": [{}], "signal": 15, "grace": 0.0}  # fmt: skip
    gang = Steps(order, shim.Output.__new__(shim.Output))
    yield gang
    gang.clean()


def heard(steps: Steps, folder: Path, now: float) -> str | None:
    return steps.silent_node([shim.read_record(str(folder / f"exit.{number}")) for number in range(2)], now)


def test_a_node_that_has_begun_and_says_nothing_for_long_is_gone(steps: Steps, tmp_path: Path) -> None:
    first, second = (shim.Record(str(tmp_path / f"exit.{number}")) for number in range(2))
    assert heard(steps, tmp_path, 0.0) is None and heard(steps, tmp_path, 1000.0) is None  # neither has begun
    Beat(first, 40.0)()
    Beat(second, 40.0)()
    assert heard(steps, tmp_path, 1000.0) is None
    first.note(state="running")
    assert heard(steps, tmp_path, 1030.0) is None
    assert heard(steps, tmp_path, 1041.0) == "n2"
    second.write(state="exited", code=0)
    assert heard(steps, tmp_path, 1060.0) is None  # it is through; the first is late by 30 s
    assert heard(steps, tmp_path, 1071.0) == "n1"


def test_who_is_gone_is_why_it_ended_whatever_the_others_say(steps: Steps, tmp_path: Path) -> None:
    shim.Record(str(tmp_path / "exit.0")).write(state="exited", code=-9, cause="", asked="out")
    shim.Record(str(tmp_path / "exit.1")).write(state="running")
    steps.alive = {1: 0}  # as if `srun` ran
    steps.silence = 0.0
    assert steps.over() is False and not steps.asked
    steps._listen_at = 0.0
    assert steps.over() is False and steps.asked
    steps.alive = {}
    assert steps.code() == LOST and "n2" in steps.cause


def test_an_srun_that_does_not_see_that_all_is_over_is_not_waited_for(steps: Steps, tmp_path: Path) -> None:
    for number in range(2):
        shim.Record(str(tmp_path / f"exit.{number}")).write(state="exited", code=0, cause="")
    steps.alive = {1: 0}
    assert steps.over() is False and steps.deadline is None  # it may be about to
    steps._listen_at = 0.0
    assert steps.over() is False and steps.deadline is not None and not steps.asked
    steps.alive, steps.codes = {}, {0: -9}
    assert steps.code() == 0
