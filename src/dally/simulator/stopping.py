"""Ctrl-C: heard once and heeded between two instants, so that nothing is cut in half; a second one breaks off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Heard:
    """Signals belong to the process, and so does the memory of them."""

    depth = 0


HEARD = [False]  # whether Ctrl-C was pressed


def asked() -> bool:
    """Whether Ctrl-C was pressed, where and while it is heeded."""
    return HEARD[0]


def hear(number: int, frame: FrameType | None) -> None:
    """The handler: the first one is noted, the next one is an exception like any Ctrl-C."""
    if HEARD[0]:
        raise KeyboardInterrupt
    HEARD[0] = True


@contextmanager
def heeded() -> Iterator[None]:
    """Inside, the first Ctrl-C is noted and raises nothing. Only where Ctrl-C is Python's own: who ignores it, or has
    a handler, keeps that; outside the main thread nothing can be done about it."""
    ours = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, hear)
    _Heard.depth += 1
    try:
        yield
    finally:
        _Heard.depth -= 1
        if _Heard.depth == 0:
            HEARD[0] = False
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
