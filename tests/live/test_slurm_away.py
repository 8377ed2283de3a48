"""A controller that is killed while the engine needs it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_attempts import Engines

from dally.live.engine import Exited, NotBegun, Vanished
from dally.live.testbed.bed import Bed
from slurmbed import bed, gpus_used, until

pytestmark = pytest.mark.slow


@pytest.fixture
def made() -> Iterator[Bed]:
    with bed("1x3x1", conf=("SlurmdTimeout=10", "KillWait=5")) as found:
        yield found


@pytest.fixture
def engines(made: Bed, tmp_path: Path) -> Iterator[Engines]:
    found = Engines(made, tmp_path / "state")
    yield found
    found.engine.clear()
    found.engine.close()
    until(lambda: not any(gpus_used(made).values()), 90.0)


def test_a_controller_that_is_away_costs_time_and_nothing_else(engines: Engines, made: Bed) -> None:
    saved = made.folder / "state" / "job_state"
    engines.engine.start(engines.order("before", [(0, 1)], 8.0))
    engines.until(lambda: engines.began("before"))
    begun = time.time()
    engines.until(lambda: saved.exists() and saved.stat().st_mtime > begun)  # what it has not saved it forgets
    made.kill_controller()
    engines.engine.start(engines.order("during", [(1, 1)]))
    engines.engine.start(engines.order("unwanted", [(2, 1)], 99.0))
    end = time.monotonic() + 4.0
    engines.until(lambda: time.monotonic() > end)
    assert not any(isinstance(report, (Exited, NotBegun, Vanished)) for report in engines.reports)
    engines.engine.stop("unwanted", 1, 0.0)
    made.start_controller()
    assert engines.end("before") == Exited("before", 1, 0)
    assert engines.end("during") == Exited("during", 1, 0)
    assert isinstance(engines.end("unwanted"), NotBegun) and not engines.said("unwanted")
