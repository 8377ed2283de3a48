"""The service is killed while it works: nothing is lost, nothing runs twice."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from chaos import storm


def test_a_service_killed_at_random_moments_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    tally = storm(tmp_path, kills=4, jobs=25, seed=1)
    assert tally.wrong == []
    assert tally.jobs == 25 and tally.kills == 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_kills(tmp_path: Path, seed: int) -> None:
    tally = storm(tmp_path, kills=25, jobs=120, seed=seed)
    assert tally.wrong == []


@pytest.mark.slow
def test_of_two_services_on_postgresql_the_one_that_leads_is_killed_again_and_again(tmp_path: Path, postgres: object) -> None:
    store = postgres.database(f"t{uuid.uuid4().hex}")  # type: ignore[attr-defined]
    tally = storm(tmp_path, kills=10, jobs=60, seed=4, services=2, store=store)
    assert tally.wrong == []
