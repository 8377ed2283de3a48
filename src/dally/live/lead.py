"""Who leads: one service decides, others wait. A leader shows that it lives by a heart that beats in the store.

No clock is compared with another machine's: who waits looks how long the beat stays the same on its own clock. A leader
of the same machine whose process is gone is followed at once.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dally.store.database import Database, Lead
from dally.store.errors import FencedError, StoreUnavailableError

log = logging.getLogger("dally.lead")


class Leadership:
    """This process's part in it."""

    def __init__(self, database: Database, url: str, *, beat: float = 1.0, patience: float = 6.0) -> None:
        self._database, self._url, self._beat, self._patience = database, url, beat, patience
        self.held = False
        self.leader: dict[str, Any] = {}  # as last seen
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, stopping: threading.Event) -> bool:
        """Wait for the lead and take it; False where we are told to stop first."""
        seen: Lead | None = None
        since = time.monotonic()
        while not stopping.is_set():
            try:
                found = self._database.lead()
                self.leader = found.holder
                if seen is None or (found.epoch, found.beat) != (seen.epoch, seen.beat):
                    seen, since = found, time.monotonic()
                silent = time.monotonic() - since
                if (gone(found.holder) or silent >= self._patience) and self._database.take_the_lead(found, self._me()):
                    self.held, self.leader = True, self._me()
                    return True
            except StoreUnavailableError as error:
                log.warning("the store does not answer: %s", error)
                seen = None  # whoever leads cannot beat either
            stopping.wait(0.2 if seen is None or time.monotonic() - since < 1 else 0.5)
        return False

    def keep(self, fenced: Callable[[], None]) -> None:
        """Beat from now on; `fenced` is called, once, when somebody else leads."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._beats, args=(fenced,), name="dally-lead", daemon=True)
        self._thread.start()

    def _beats(self, fenced: Callable[[], None]) -> None:
        while not self._stop.wait(self._beat):
            try:
                self._database.beat()
            except FencedError:
                self.held = False
                fenced()
                return
            except StoreUnavailableError as error:
                log.warning("the store does not answer: %s", error)

    def let_go(self, *, hand_over: bool) -> None:
        """No longer lead; `hand_over`: whoever waits may follow at once."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
        if self.held and hand_over:
            try:
                self._database.step_down()
            except (FencedError, StoreUnavailableError) as error:
                log.warning("the lead was not handed over: %s", error)
        self.held = False

    def _me(self) -> dict[str, Any]:
        return {**_place(), "pid": os.getpid(), "born": born(os.getpid()), "url": self._url}


def gone(holder: dict[str, Any]) -> bool:
    """Whether whoever leads is known to be no more: nobody, or a process of this machine that has ended."""
    if not holder:
        return True
    here = _place()
    if holder.get("host") != here["host"]:
        return False
    if holder.get("boot") != here["boot"]:
        return True
    return holder.get("pids") == here["pids"] and born(int(holder["pid"])) != holder.get("born")


def born(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None: there is none. A number is used again, not both."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _place() -> dict[str, Any]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        pids = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot = pids = ""
    return {"host": socket.gethostname(), "boot": boot, "pids": pids}
