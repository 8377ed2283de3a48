"""An engine whose jobs begin and end at once, in memory: for what thousands of them leave behind."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from dally.live.engine import Began, Exited, Order, Report


class Quick:
    shares = True
    even = False

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self._reports: list[Report] = []
        self._news = threading.Condition()

    def start(self, order: Order) -> None:
        self.started.append((order.job, order.attempt))
        with self._news:
            self._reports += [Began(order.job, order.attempt), Exited(order.job, order.attempt, 0)]
            self._news.notify()

    def observe(self, patience: float) -> Sequence[Report]:
        with self._news:
            if not self._reports and patience > 0:
                self._news.wait(patience)
            found, self._reports = self._reports, []
        return found

    def wake(self) -> None:
        with self._news:
            self._news.notify()

    def stop(self, job: str, attempt: int, grace: float) -> None: ...

    def adopt(self, job: str, attempt: int) -> None: ...

    def suspend(self, job: str, attempt: int) -> None: ...

    def resume(self, job: str, attempt: int) -> None: ...

    def forget(self, job: str, attempt: int) -> None: ...

    def running(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None: ...

    def clear(self) -> None: ...
