"""An attempt that an engine watches, and how an engine of this machine behaves."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.live.engine import Stepped
from dally.live.local.folder import AttemptFolder
from dally.live.local.progress import stepped


@dataclass(frozen=True, slots=True)
class EngineRules:
    """How the engine of this machine behaves, where one may want it otherwise."""

    log_size: int = 8_000_000  # bytes of one file of output
    log_files: int = 8  # files of output that are kept per attempt, at least 2
    keep: float = 7 * 86400.0  # seconds that the output of an attempt is kept after its end
    look_every: float = 1.0  # seconds between looks at all attempts
    look_without_hints: float = 0.2  # … where nobody can send hints
    steps_every: float = 1.0  # seconds between two reports of what a job says of itself, at least
    stubborn: float = 5.0  # seconds a shim has to obey before it is killed itself

    def __post_init__(self) -> None:
        if self.log_size < 1 or self.log_files < 2:
            raise UserError("output needs two files of a byte at least")


class Watched:
    """An attempt whose end has not been reported."""

    __slots__ = ("_progress", "_said", "_told", "_told_at", "asked", "began", "folder", "handle", "killed_after",
                 "order", "process")  # fmt: skip

    def __init__(self, folder: AttemptFolder, order: dict[str, Any]) -> None:
        self.folder, self.order = folder, order
        self.process: subprocess.Popen[bytes] | None = None  # its shim, where this engine started it
        self.handle: int | None = None  # pidfd of the shim
        self.began = False  # whether that was reported
        self.asked = False  # whether this engine has asked it to leave
        self.killed_after: dict[str, float] = {}  # when a shim that has not heard what it was told is killed
        self._progress = 0  # time of the progress file that was read last
        self._said: Stepped | None = None  # what the job said of itself last
        self._told: Stepped | None = None  # … and what of that was reported
        self._told_at = 0.0

    def anew(self) -> None:
        """Report everything again."""
        self.began, self._progress, self._told = False, 0, None

    def hear(self, message: Mapping[str, Any]) -> None:
        """What the job says of itself; of anybody without its token nothing is believed."""
        if message["token"] == self.order.get("token"):
            self._heard(message)

    def read_progress(self) -> None:
        """What the job wrote down of itself, which says more than its messages where some were not heard."""
        path = self.folder.path / "progress"
        with contextlib.suppress(OSError, ValueError):
            written = path.stat().st_mtime_ns
            if written != self._progress:
                self._progress = written
                message = json.loads(path.read_bytes())
                if isinstance(message, dict):
                    self._heard(message)

    def _heard(self, message: Mapping[str, Any]) -> None:
        report = stepped(self.folder.job, self.folder.attempt, message, self.order.get("reference"))
        self._said = report or self._said

    def steps(self, every: float = 0.0) -> Stepped | None:
        """What is to be reported of that now: no more often than every so many seconds, and nothing twice."""
        now = time.monotonic()
        if self._said == self._told or now < self._told_at + every:
            return None
        self._told, self._told_at = self._said, now
        return self._said
