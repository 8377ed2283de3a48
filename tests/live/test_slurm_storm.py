"""A small storm; `slurm_storm.py` makes large ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_storm import KINDS, storm

from slurmbed import need_bed


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "cluster"), [(11, "2x2x2")])
def test_nothing_is_lost_run_twice_or_leaked_whatever_fails(tmp_path: Path, seed: int, cluster: str) -> None:
    need_bed()
    tally = storm(tmp_path / "storm", faults=len(KINDS) + 3, jobs=20, seed=seed, cluster=cluster, cut=30.0, say=print)
    assert tally.wrong == [], str(tally)
    assert sum(tally.faults.values()) >= len(KINDS) and tally.jobs == 20
