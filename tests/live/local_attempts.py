"""What tests of the local engine share: orders, waiting for reports, and looking for processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dally.core.placement import Placement
from dally.live.engine import Order, Program, Report
from dally.live.local.engine import LocalEngine

PATIENCE = 60.0  # seconds that nothing here takes, however busy the machine is


def order(*command: str, job: str = "1", attempt: int = 1, machines: tuple[str, ...] = ("m0",), mask: int = 1,
          restarts: int = 0, name: str = "", **program: Any) -> Order:  # fmt: skip
    placement = Placement.of((index, mask) for index in range(len(machines)))
    return Order(job, attempt, placement, machines, Program(command, **program), restarts, name)


def python(code: str, *arguments: str, **more: Any) -> Order:
    return order(sys.executable, "-S", "-c", code, *arguments, **more)


def reports(engine: LocalEngine, until: Callable[[list[Report]], bool]) -> list[Report]:
    """Everything the engine says until it has said enough."""
    found: list[Report] = []
    deadline = time.monotonic() + PATIENCE
    while not until(found):
        assert time.monotonic() < deadline, f"only this was reported: {found}"
        found += engine.observe(0.5)
    return found


def ends(engine: LocalEngine, count: int = 1) -> list[Report]:
    """Everything the engine says until so many attempts have ended."""
    return reports(engine, lambda found: sum(type(report).__name__ in ("Exited", "Vanished", "NotBegun") for report in found) >= count)


def begins(engine: LocalEngine, count: int = 1) -> list[Report]:
    return reports(engine, lambda found: sum(type(report).__name__ == "Began" for report in found) >= count)


def eventually(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def number_in(path: Path) -> int:
    """The process number a job has written down, when it has."""
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


def shim_of(engine: LocalEngine, job: str = "1", attempt: int = 1) -> int:
    from dally.live.local import shim

    record = shim.read_record(str(engine.attempts / f"{job}.{attempt}" / "exit"))
    assert record is not None
    return int(record["pid"])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
