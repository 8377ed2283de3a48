"""Python's garbage collector, out of the way where most of what is made stays: modules, jobs, rows.

By default it looks after every 700 objects; a small command spends a tenth of its time on it, and finds nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (50_000, 20, 50)


def collect_seldom() -> None:
    """For the rest of this process."""
    gc.set_threshold(*_SELDOM)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """For a run that somebody's own program makes."""
    before = gc.get_threshold()
    if before[0] and before[0] < _SELDOM[0]:
        collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def uncollected() -> Iterator[None]:
    """It would look through all of them again and again, and find nothing; nor are they looked through afterwards."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            _take_for_old()
            gc.enable()


def _take_for_old() -> None:
    """What there is now is looked through only where everything is. Whoever froze something keeps it frozen."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()  # into the oldest generation
