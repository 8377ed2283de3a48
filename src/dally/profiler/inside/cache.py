"""The page cache: files are put out of it in the moment a cold run opens them, and what was really read is counted.

Linux drops a file's clean pages on request of anybody who may read it (posix_fadvise, POSIX_FADV_DONTNEED), so no
privilege is needed. What a library opens without Python (an LMDB, an HDF5 file) is not seen here; the count of bytes
that really came from storage tells whether a run was cold.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from typing import Any

_NOT_DATA = (".py", ".pyc", ".pyd", ".so", ".pth", ".dist-info", ".jsonl")
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/usr/", "/lib", "/etc/")


class ColdFiles:
    """Drops every data file from the cache when it is opened while `active`, and those opened before once."""

    def __init__(self) -> None:
        self.active = False
        self.dropped = 0
        self._busy = False
        self._before: dict[str, None] = {}
        self._prefixes = tuple({sys.prefix + os.sep, sys.base_prefix + os.sep})

    def watch(self) -> None:
        sys.addaudithook(self._audit)

    def begin(self) -> None:
        """From now on every file is cold when it is opened; those opened so far are dropped now."""
        self.active = True
        for path in self._before:
            self._drop(path)
        self._before.clear()

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self._busy:
            return
        path, _, flags = arguments
        if isinstance(path, (bytes, os.PathLike)):
            path = os.fsdecode(path)
        if not isinstance(path, str) or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            return
        if path.endswith(_NOT_DATA) or path.startswith(_SYSTEM) or path.startswith(self._prefixes):
            return
        if self.active:
            self._drop(path)
        elif len(self._before) < 100_000:
            self._before[os.path.abspath(path)] = None  # noqa: PTH100 (inside an audit hook pathlib costs too much)

    def _drop(self, path: str) -> None:
        self._busy = True
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                    self.dropped += 1
            finally:
                os.close(handle)
        except OSError:
            pass  # the script is about to find out for itself
        finally:
            self._busy = False


def bytes_read(pids: Iterable[int]) -> int | None:
    """Bytes these processes made the storage deliver so far; None where the kernel does not say."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", encoding="ascii") as file:  # noqa: PTH123
                lines = file.read().splitlines()
        except OSError:
            return None
        total += next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), 0)
    return total
