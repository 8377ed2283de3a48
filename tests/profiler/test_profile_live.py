"""A profile measured here, used by a live job: what a step should take stands beside what it takes."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
from pytest import approx

from dally.catalog import find_model
from dally.catalog.clusters import load_cluster
from dally.live.expected import Expectations
from dally.live.local.engine import LocalEngine
from dally.live.service import Service
from dally.live.spec import read_spec, to_job
from dally.live.telling import explain_text, step_text
from dally.profiler import read_profile
from dally.profiler.predict import beside
from dally.store.database import Database
from profiler.conftest import SCRIPTS, profiled
from profiler.made_up import written

SOURCE = Path(__file__).parents[2] / "src"
CLUSTER = """dally-cluster: 1
name: here
fabric: {levels: [{name: rack, kind: switch, bandwidth: 1 GB/s, per: machine, latency: 25us}]}
racks: 1
machines: 1
machine: {gpu: CPU, gpus: 4, links: [{kind: switch, bandwidth: 1 GB/s, latency: 20us}], nics: {count: 1, bandwidth: 1 GB/s}}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / "here.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.mark.slow
@pytest.mark.torch
def test_a_live_job_is_shown_beside_what_its_profile_predicts(here: Path, tmp_path: Path) -> None:
    script, profile = SCRIPTS / "reporting.py", tmp_path / "p.yaml"
    profiled(
        profile, "-n", "2", "--no-trace", "--threads", "1", "--only", "all", "--only", "one", script, "0.15", "1000"
    )
    topology = load_cluster(str(here))
    database = Database(f"sqlite:///{tmp_path}/dally.db")
    database.prepare(topology, policy="fifo")
    service = Service(database, lambda: LocalEngine(tmp_path), topology, policy="fifo", state=tmp_path)
    thread = threading.Thread(target=service.run_forever)
    thread.start()
    try:
        while not service.health()["leader"]:
            time.sleep(0.05)
        for gpus in (1, 2, 4):
            command = [sys.executable, str(script), "0.15", str(gpus)]  # 32 steps each
            spec = {"command": command, "gpus": gpus, "processes": "gpu", "profile": str(profile),
                    "environment": {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}}  # fmt: skip
            (job,) = service.submit([read_spec(spec)], "me")
            until = time.monotonic() + 120
            while (row := service.job(job)) is not None and row["state"] != "finished":
                assert row["state"] in ("waiting", "starting", "running") and time.monotonic() < until, row
                time.sleep(0.1)
            assert row is not None
            step = row["step"]
            assert step == row["history"][-1]["step"] == service.explain(job)["step"]
            assert step["predicted"] == approx(step["compute"] + step["exchange"] + step["data"])
            assert step["error"] == approx(step["predicted"] / step["measured"] - 1)
            # Both contain 150 ms that no other work on this host can make longer or shorter; the rest is small beside it.
            assert step["measured"] > 0.15 and step["predicted"] > 0.15
            assert abs(step["error"]) < 0.5, step
            assert f"({100 * step['error']:+.1f} %)" in explain_text(service.explain(job))
    finally:
        service.stop()
        thread.join()
        service.close()


def test_one_rank_computes_as_one_did_and_all_as_all_did(tmp_path: Path) -> None:
    path = written(tmp_path)
    profile, model = read_profile(path), find_model(str(path))
    one, together = profile.runs["one"], profile.runs["all"]

    def computes(ranks: int) -> float:
        found = beside(model, profile, ranks)
        return sum(layer.measured.forward + layer.measured.backward for layer in found.layers if layer.measured) + (
            found.measured_update or 0.0
        )

    assert together.silent is not None
    whole = computes(together.processes)
    assert computes(1) / whole == approx(one.step / together.silent)
    assert computes(1) <= whole <= computes(2 * together.processes)


def test_what_is_predicted_follows_the_gpus_a_job_has(here: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    expected = Expectations(load_cluster(str(here)))
    one, two = (expected.expect(str(path), {"rack0/m0": list(range(count))}) for count in (1, 2))
    assert one is not None and two is not None
    assert one.exchange == 0 < two.exchange and one.compute <= two.compute
    together = read_profile(path).runs["all"]
    assert together.silent is not None and two.exchange == approx(together.step - together.silent)


def test_what_nobody_knows_is_not_predicted(here: Path, tmp_path: Path) -> None:
    expected = Expectations(load_cluster(str(here)))
    path = written(tmp_path)
    assert expected.expect("no such model", {"rack0/m0": [0]}) is None
    assert expected.expect(str(path), {"gone": [0]}) is None
    assert expected.step(None, {"rack0/m0": [0]}, None) is None
    said = expected.step(None, {"rack0/m0": [0]}, 0.25)
    assert said is not None and said["measured"] == 0.25 and said["predicted"] is None and said["error"] is None
    assert step_text(said) == "250 ms measured"
    path.unlink()
    assert expected.expect(str(path), {"rack0/m0": [0]}) is None


def test_a_step_at_full_speed_is_one_on_as_many_devices(tmp_path: Path) -> None:
    path = written(tmp_path)
    runs = read_profile(path).runs
    references = [
        to_job(read_spec({"command": ["x"], "gpus": gpus, "profile": str(path)}), "1", 0.0).reference
        for gpus in (1, 2, 8)
    ]
    assert references == [runs["one"].step, runs["all"].step, None]
