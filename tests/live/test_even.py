"""Gangs that are so many machines with as many GPUs on each."""

from __future__ import annotations

import pytest

from builders import cluster, job
from dally.live.even import made_even


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (2, 1), (4, 1), (6, 2), (8, 2), (5, 5), (9, 3), (12, 3)])
def test_a_gang_is_on_the_fewest_machines_that_share_it_evenly(gpus: int, nodes: int) -> None:
    assert made_even(job("a", gpus, 1.0).job, None, cluster(2, 2, 4)).nodes == nodes


def test_machines_that_were_asked_for_are_kept() -> None:
    assert made_even(job("a", 4, 1.0).job, 2, cluster(2, 2, 4)).nodes == 2
