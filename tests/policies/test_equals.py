"""Jobs that need equally long do not take each other's GPUs in turn."""

from __future__ import annotations

import pytest

from builders import Spec, play
from dally.core.job import Job, Truth
from dally.core.topology import Level, LinkKind, regular
from dally.simulator.faults import StartRules

ONE = regular((4,), (Level("machine", LinkKind.SWITCH, 1e11, 1e-6),), gpu_type="gpu")


@pytest.mark.parametrize("policy", ["srtf", "srtf[placement=best-fit]", "srtf[gpu_time=true]", "dally", "smallest"])
@pytest.mark.parametrize("latency", [0.0, 2.0])
def test_equals_do_not_swap_while_they_start(policy: str, latency: float) -> None:
    jobs = [Spec(Job(f"j{i}", submit, 4), Truth(3.0)) for i, submit in enumerate((0.0, 1.5, 1.5, 1.5))]
    jobs.append(Spec(Job("short", 4.0, 4), Truth(1.0)))  # makes somebody yield
    play(jobs, ONE, policy, starts=StartRules(latency=latency), instants=500)  # play says so where somebody goes in circles
