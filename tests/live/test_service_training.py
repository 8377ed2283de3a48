"""A real DDP job under the service is preempted by the policy and resumed on other GPUs; its losses are the same to the bit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from chaos import wait_until

from dally.catalog.clusters.load import load_cluster
from dally.live.local.engine import LocalEngine
from dally.live.service import Service
from dally.live.spec import read_spec
from dally.live.verified import verify
from dally.store.database import Database

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install dally[torch]")]

DDP = Path(__file__).parent / "scripts" / "ddp.py"
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Two machines of two GPUs; who has least left goes first, and may take the GPUs of others."""
    topology = load_cluster("1x2x2")
    database = Database(f"sqlite:///{tmp_path}/dally.db")
    database.prepare(topology, policy="srtf")
    made = Service(database, lambda: LocalEngine(tmp_path), topology, policy="srtf", state=tmp_path)
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    wait_until(lambda: made.health()["leader"])
    yield made
    for row in made.jobs(states=("running", "waiting", "held", "starting", "yielding")):
        made.act("cancel", row["id"], "me")
    wait_until(lambda: all(row["ended"] for row in made.jobs()))
    made.stop()
    thread.join()
    made.close()


def training(losses: Path, pause: float, duration: str) -> dict[str, object]:
    return {"command": [sys.executable, str(DDP), str(losses), str(pause), "0"], "gpus": 2, "processes": "gpu", "duration": duration,
            "checkpoint": {"grace": "60s"}, "environment": {"PYTHONPATH": str(SOURCE)}}  # fmt: skip


def lines(path: Path) -> list[str]:
    file = path.with_name(f"{path.name}-0")
    return file.read_text().splitlines() if file.exists() else []


def test_a_ddp_job_that_the_policy_preempts_goes_on_elsewhere_as_if_nothing_had_been(service: Service, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    (first,) = service.submit([read_spec(training(whole, 0.0, "10s"))], "me")
    wait_until(lambda: service.job(first)["state"] == "finished")  # type: ignore[index]
    (job,) = service.submit([read_spec(training(parts, 0.1, "10h"))], "me")
    wait_until(lambda: len(lines(parts)) >= 4)
    # Somebody needs all four GPUs for a moment, and somebody else those the job had, for long.
    flag = tmp_path / "go"
    waiting = ["sh", "-c", f"while [ ! -e {flag} ]; do sleep 0.05; done"]
    (wide,) = service.submit([read_spec({"command": waiting, "gpus": 4, "duration": "1m"})], "me")
    wait_until(lambda: service.job(wide)["state"] == "running")  # type: ignore[index]
    before = service.job(job)
    assert before is not None and before["state"] == "waiting" and 4 <= len(lines(parts)) < 24
    (blocker,) = service.submit([read_spec({"command": ["sleep", "600"], "gpus": 2, "duration": "1h"})], "me")
    flag.touch()
    wait_until(lambda: service.job(job)["state"] == "finished")  # type: ignore[index]
    after = service.job(job)
    assert after is not None and after["attempts"] == 2 and after["exit_code"] == 0
    assert [attempt["how"] for attempt in after["history"]] == ["preempted, with a checkpoint", "finished"]
    there, elsewhere = (attempt["machines"] for attempt in after["history"])
    assert there != elsewhere
    assert lines(parts) == lines(whole) and len(lines(whole)) == 24
    service.act("cancel", blocker, "me")
    wait_until(lambda: service.job(blocker)["state"] == "cancelled")  # type: ignore[index]
    found = verify(f"sqlite:///{tmp_path}/dally.db")
    assert found.difference is None and found.rows == []
