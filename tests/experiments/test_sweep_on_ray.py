"""A sweep on a Ray cluster of two nodes gives what it gives here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dally
from dally.core.errors import UserError
from tests.experiments.comparing import lasting

SPEC: dict[str, Any] = {
    "scenario": {"trace": "synth:helios", "jobs": 40, "cluster": "1x2x8"},
    "policies": ["fifo", "srtf", "las"],
    "vary": {"load": [0.7, 1.0]},
    "seeds": 2,
}


def test_without_ray_a_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="needs Ray"):
        dally.sweep(SPEC, out=tmp_path, on="ray")


def test_what_is_not_ray_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="write ray, or ray=ADDRESS"):
        dally.sweep(SPEC, out=tmp_path, on="spark")


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dally[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster.address
    finally:
        cluster.shutdown()


def test_two_nodes_give_what_one_machine_gives(tmp_path: Path, two_nodes: str) -> None:
    here = dally.sweep(SPEC, out=tmp_path / "here", workers=1)
    there = dally.sweep(SPEC, out=tmp_path / "there", on=f"ray={two_nodes}")
    assert len(there.cells) == 12 and not there.failures
    assert lasting(there.cells).equals(lasting(here.cells))


def test_a_policy_that_fails_on_a_node_is_kept_with_its_reason(tmp_path: Path, two_nodes: str) -> None:
    (tmp_path / "broken.py").write_text(
        "from dataclasses import dataclass\n"
        "from dally.policies.fifo import Fifo\n"
        "class Broken(Fifo):\n"
        "    title = 'broken'\n"
        "    @dataclass(frozen=True, slots=True)\n"
        "    class Options(Fifo.Options):\n"
        "        pass\n"
        "    def plan(self, *given):\n"
        "        return 1 / 0\n"
    )
    spec = {**SPEC, "policies": ["fifo", str(tmp_path / "broken.py")], "vary": {}, "seeds": 1}
    made = dally.sweep(spec, out=tmp_path / "out", on=f"ray={two_nodes}")
    assert len(made.failures) == 1 and "ZeroDivisionError: division by zero (broken.py, line 9, in plan)" in made.failures[0][1]
