"""Dally's batch against what the authors' simulator says of it once its leak of GPUs is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dally.catalog.clusters import load_cluster
from dally.simulator.experiment import Experiment
from dally.traces import load_trace

HOUR = 3600.0
BATCH = "traces/dally/sense_500jobs_0start0arrival-withBert.json"
# Hours on 8x8x8, one run each. Differences under 15 % flip with the granularity of that simulation.
AUTHORS = {"dally[timers=auto]": (235, 31.5), "dally[timers=infinite]": (227, 29.3)}


@pytest.fixture
def beside() -> Path:
    chosen = os.environ.get("DALLY_REFERENCE")
    base = Path(chosen) if chosen else Path(__file__).parents[2].parent / "shared"
    if not (base / BATCH).is_file() or not (base / "reference/dally").is_dir():
        pytest.skip("the reference results are not beside the repository; set DALLY_REFERENCE")
    return base


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("policy", AUTHORS)
def test_the_batch_takes_as_long_as_in_the_authors_simulator(policy: str, beside: Path) -> None:
    trace = load_trace(str(beside / BATCH))
    network = f"artist[layers={beside / 'reference/dally'}]"
    run = Experiment(trace, load_cluster("8x8x8"), network, "original").run(policy)
    rows = run.ledger.rows
    assert {row.outcome for row in rows} == {"finished"}
    makespan, jct = AUTHORS[policy]
    assert (run.ledger.last_end or 0.0) / HOUR == pytest.approx(makespan, rel=0.15)
    assert sum(row.jct or 0.0 for row in rows) / len(rows) / HOUR == pytest.approx(jct, rel=0.15)
