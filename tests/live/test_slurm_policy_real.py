"""The policy `slurm` against Slurm itself, on a test bed: decision by decision, and a whole run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dally.live.testbed.clusters import read_bed_cluster
from slurmbed import bed


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "slurm_policy.py"
    spec = importlib.util.spec_from_file_location("slurm_policy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["slurm_policy"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_policy_decides_as_slurm_does_from_the_same_state() -> None:
    """What a second of Slurm's clock hides (which nodes of a job that ends are free already, which start came in the
    next second) makes a few decisions look different; a rule that is wrong makes many."""
    slurm_policy = benchmark()
    topology, _, _ = read_bed_cluster("2x2x2")
    with bed("2x2x2") as made:
        asked = slurm_policy.stream(11, 16, topology, switches=True)
        found, one_by_one, real, simulated = slurm_policy.compare(made, topology, asked)
    assert len(real) == len(simulated) == 16
    assert one_by_one.started >= 0.8 * one_by_one.starts
    assert one_by_one.same_jobs >= 0.7 * one_by_one.moments
    assert one_by_one.quiet_same >= 0.8 * one_by_one.quiet
    assert found.pairs_in_order >= 0.75
