"""How busy this host is: the share of its CPU time that was used, by the kernel's own count."""

from __future__ import annotations

import threading
import time
from pathlib import Path


def _counted() -> tuple[float, float]:
    """Ticks used and in all, since the host began. What runs at low priority gives way at once and is not counted as
    use."""
    user, nice, system, idle, waits, *others = (
        float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    used = user + system + sum(others)
    return used, used + nice + idle + waits


class Load:
    """Looks every second, from `with` to its end."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        used, all_ = _counted()
        while not self._end.wait(1.0):
            now = _counted()
            if now[1] > all_:
                self.shares.append((now[0] - used) / (now[1] - all_))
            used, all_ = now

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        if not self.shares:
            return {}
        ordered = sorted(self.shares)
        return {
            "mean": sum(ordered) / len(ordered),
            "p95": ordered[int(0.95 * (len(ordered) - 1))],
            "seconds": float(len(ordered)),
            "above_90": sum(share > 0.9 for share in ordered) / len(ordered),
        }


def wait_until(moment: float) -> None:
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, 0.5))
