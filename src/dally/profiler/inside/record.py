"""The record a process keeps of its run: a line of JSON for everything that happened, whole at any moment."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Record:
    """Appends lines; one file per process, so that no two processes share one. Forked children start their own."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._pid = 0
        self._file: Any = None

    def write(self, event: str, **fields: Any) -> None:
        if self._pid != os.getpid():  # a forked child must not write into its parent's file
            self._pid = os.getpid()
            self._file = (self._folder / f"{self._pid}.jsonl").open("a", encoding="utf-8")
        self._file.write(json.dumps({"event": event, "at": time.time(), **fields}) + "\n")
        self._file.flush()  # whatever happens next, this much is kept


def read_records(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """Events by process; a line cut off by a crash is left out."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        events = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                break
        if events:
            found[int(path.stem)] = events
    return found
