"""Garbage collection during a run: seldom, and afterwards as it was before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dally.core.collecting import seldom_collected


@pytest.fixture(autouse=True)
def as_python_begins() -> Iterator[None]:
    """A command run by another test in this process may have made it rare already."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_during_a_run_collections_are_rare_and_afterwards_all_is_as_it_was() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold()[0] > before[0]
        with seldom_collected():  # a run inside a run
            pass
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
