"""The store goes away, the disk is full, the leader freezes, the clock is set back: nothing is lost, nothing runs twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import JOB, Services, every, leftovers, wait_until

from dally.live.clock import ServiceClock
from dally.live.errors import Unavailable

ENDED = ("finished", "failed", "cancelled", "rejected")


def spec(diary: Path, seconds: float = 0.2, gpus: int = 1) -> dict:
    return {"command": [sys.executable, "-I", "-S", "-c", JOB, str(diary), str(seconds), "0"], "gpus": gpus}


def ran_once(diary: Path, jobs: list[str]) -> None:
    lines = [line.split()[:3] for line in diary.read_text().splitlines()]
    assert sorted(lines) == sorted([what, job, "1"] for job in jobs for what in ("begin", "end"))


def test_a_store_that_is_gone_for_a_while_is_waited_for(tmp_path: Path, postgres: object) -> None:
    store = postgres.database(f"t{uuid.uuid4().hex}")  # type: ignore[attr-defined]
    state, diary = tmp_path / "state", tmp_path / "diary"
    state.mkdir()
    services = Services(state, 1, ("--store", store))
    try:
        client = services.client()
        jobs = [client.post("jobs", body=spec(diary, 0.5))["id"] for _ in range(3)]
        wait_until(lambda: diary.exists() and diary.read_text().count("begin") == 3)
        postgres.stop()  # type: ignore[attr-defined]
        impatient = services.client(patience=0)
        with pytest.raises(Unavailable):
            impatient.post("jobs", body=spec(diary))
        wait_until(lambda: diary.read_text().count("end") == 3)  # they end while nobody can write it down
        postgres.start()  # type: ignore[attr-defined]
        jobs.append(client.post("jobs", body=spec(diary))["id"])
        wait_until(lambda: all(row["state"] == "finished" for row in every(client)))
        ran_once(diary, jobs)
    finally:
        services.stop()
    assert leftovers(state) == []


@pytest.mark.slow
def test_a_leader_that_freezes_is_followed_and_when_it_thaws_touches_nothing(tmp_path: Path) -> None:
    state, diary = tmp_path / "state", tmp_path / "diary"
    state.mkdir()
    services = Services(state, 2)
    try:
        client = services.client()
        jobs = [client.post("jobs", body=spec(diary, 0.1))["id"] for _ in range(3)]
        wait_until(lambda: services.leader() is not None)
        first = services.leader()
        assert first is not None
        frozen = services.processes[first]
        assert frozen is not None
        os.kill(frozen.pid, signal.SIGSTOP)
        other = type(services.client())([f"http://127.0.0.1:{services.ports[1 - first]}"], note=lambda text: None)
        other.patience = 60.0
        jobs += [other.post("jobs", body=spec(diary, 0.3))["id"] for _ in range(3)]  # accepted by who follows
        os.kill(frozen.pid, signal.SIGCONT)
        wait_until(lambda: all(row["state"] == "finished" for row in every(other)))
        thawed = type(other)([f"http://127.0.0.1:{services.ports[first]}"], patience=30.0, note=lambda text: None)
        wait_until(lambda: thawed.get("health")["leader"] is False)
        assert services.leader() == 1 - first
        ran_once(diary, jobs)
    finally:
        services.stop()
    assert leftovers(state) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be made here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(path: Path) -> None:
    """To the last page."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(file, b"\0" * 4096)
    os.close(file)


def test_a_full_disk_stops_nobody_for_good(small_disk: Path, tmp_path: Path) -> None:
    state, diary = small_disk / "state", tmp_path / "diary"
    state.mkdir()
    services = Services(state, 1)
    try:
        client = services.client()
        jobs = [client.post("jobs", body=spec(diary, 1.0))["id"] for _ in range(3)]
        wait_until(lambda: diary.exists() and diary.read_text().count("begin") == 3)
        filler = small_disk / "filler"
        fill(filler)
        with pytest.raises(Unavailable):
            impatient = services.client(patience=0)
            for _ in range(1000):  # until what was set aside for the log of the database is used up
                jobs.append(impatient.post("jobs", body={**spec(diary, 0.0), "name": "x" * 200})["id"])
        wait_until(lambda: diary.read_text().count("end") >= 3)
        filler.unlink()
        jobs.append(client.post("jobs", body=spec(diary))["id"])
        wait_until(lambda: all(row["state"] in ENDED for row in every(client)))
        rows = every(client)
        assert {row["id"] for row in rows} == set(jobs)
        assert all(row["state"] == "finished" for row in rows[:3])
        begun = [tuple(line.split()[1:3]) for line in diary.read_text().splitlines() if line.startswith("begin")]
        assert len(begun) == len(set(begun)) == sum(row["attempts"] for row in rows)
    finally:
        services.stop()
    assert leftovers(state) == []


def test_time_goes_on_where_it_was_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServiceClock(origin=time.time() - 100.0, at_least=0.0)
    before = clock.now()
    assert before >= 100.0
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real - 86400.0)
    assert clock.now() >= before  # of a service that runs
    again = ServiceClock(origin=real - 100.0, at_least=before)
    assert again.now() >= before  # of one that is started anew
