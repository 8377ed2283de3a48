"""Processes known by what they carry in their environment: the last resort where a shim was killed.

A process belongs to an attempt if its environment has the attempt's own mark. That is how it was when the program was
executed; a program that wipes its environment, leaves its session and loses its shim is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from dally.live.local import shim


def marked(mark: str) -> list[int]:
    """The processes that carry `NAME=value`."""
    wanted = mark.encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def put_out(mark: str, patience: float = 0.5) -> bool:
    """Kill all that carry the mark, and what they fork meanwhile; False if some are still there after a while."""
    until = time.monotonic() + patience
    while alive := [pid for pid in marked(mark) if shim.start_time(pid) is not None]:
        for pid in alive:
            _kill(pid, mark)
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def _kill(pid: int, mark: str) -> None:
    """Through a handle that was opened before the mark was read again: the number may have passed to somebody else."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def handle_of(pid: int | None, start: str | None) -> int | None:
    """A handle on the process with this number that began at this time; None if that one is gone."""
    if pid is None or start is None:
        return None
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
    if shim.start_time(pid) == start:  # read after opening: the handle cannot be somebody else's now
        return handle
    os.close(handle)
    return None
