"""A cgroup for every attempt, where this process may make one: what is in it can be put out whatever it has done.

Only version 2 of cgroups is used, and nothing but the membership: no limit is set. Where there is none, or no right to
make one, sessions, the subreaper and the marks in the environment do.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from dally.live.local import shim


def own_cgroup() -> str | None:
    """The cgroup of this process, if it may make others in it and the kernel can kill one whole."""
    try:
        mounted = next(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()
                       if " - cgroup2 " in line)  # fmt: skip
        path = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration, IndexError):
        return None
    own = f"{mounted}{path}".rstrip("/")
    trial = Path(own) / f"dally-trial-{os.getpid()}"
    try:
        trial.mkdir()
        able = (trial / "cgroup.kill").exists()
        trial.rmdir()
    except OSError:
        return None
    return own if able else None


def put_out(parent: str | None, token: str, patience: float = 0.5) -> bool:
    """Kill all in the cgroup of an attempt and remove it; False if somebody is still in it after a while."""
    if parent is None:
        return True
    path = Path(shim.cgroup_of(parent, token))
    until = time.monotonic() + patience
    while path.exists():
        with contextlib.suppress(OSError):
            (path / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            path.rmdir()
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
