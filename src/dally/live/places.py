"""Where a service keeps its things, and where it is found. Imports nothing heavy: every command looks here."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

HOST, PORT = "127.0.0.1", 7433
DEFAULT_URL = f"http://{HOST}:{PORT}"


def default_state() -> Path:
    """$DALLY_STATE, or the place the system keeps such things in."""
    chosen = os.environ.get("DALLY_STATE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "dally"


def write_address(state: Path, url: str) -> None:
    """Say where the service of this state is, for commands that are told nothing."""
    beside = state / f"service.json.{os.getpid()}"
    beside.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
    beside.replace(state / "service.json")


def forget_address(state: Path) -> None:
    """After a clean stop nobody is there. Another service that came meanwhile keeps its own."""
    path = state / "service.json"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(path.read_text(encoding="utf-8")).get("pid") == os.getpid():
            path.unlink()


def read_address(state: Path) -> str | None:
    try:
        url = json.loads((state / "service.json").read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return url if isinstance(url, str) else None
