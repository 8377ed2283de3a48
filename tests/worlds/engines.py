"""An engine on a clock of its own, as slow, refusing and forgetful as a test wants it."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence

from dally.live.engine import Began, Exited, NotBegun, Order, Report, Vanished


class ManualClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class PretendEngine:
    """Runs attempts on a virtual clock. A job's command is `("run", seconds)`: it works so long in all, keeps what it
    has done when it is asked to leave, and loses it when it vanishes."""

    shares = False

    def __init__(self, clock: ManualClock, *, latency: float = 0.0, refusals: float = 0.0, vanishes: float = 0.0,
                 repeats: float = 0.0, leaving: float = 0.0, seed: int = 0) -> None:  # fmt: skip
        self.clock, self.latency, self.refusals, self.vanishes = clock, latency, refusals, vanishes
        self.repeats, self.leaving = repeats, leaving
        self.chance = random.Random(seed)
        self.held: dict[tuple[str, int], int] = {}  # GPU → how many attempts are on it at this moment
        self.most = 0
        self._done: dict[str, float] = {}
        self._since: dict[tuple[str, int], float] = {}
        self._orders: dict[tuple[str, int], Order] = {}
        self._due: list[tuple[float, int, str, tuple[str, int], Report]] = []
        self._begun: set[tuple[str, int]] = set()
        self._told: list[Report] = []
        self._order = 0
        self._woken = False
        self.code = 0  # with which jobs end

    def start(self, order: Order) -> None:
        key = (order.job, order.attempt)
        self._orders[key] = order
        now = self.clock.now()
        if self.chance.random() < self.refusals:
            self._later(now + max(1.0, self.latency), "refused", key, NotBegun(*key, "refused"))
            return
        self._later(now + self.latency, "began", key, Began(*key))

    def stop(self, job: str, attempt: int, grace: float) -> None:
        key = (job, attempt)
        if key in self._since or key in self._orders:
            code = 143 if grace > 0 and key in self._since else -9
            self._later(self.clock.now() + (self.leaving if grace > 0 else 0.0), "over", key, Exited(*key, code))

    def observe(self, patience: float) -> Sequence[Report]:
        if self._woken or self._told:
            self._woken, patience = False, 0.0
        until = self.clock.now() + patience
        if self._due and self._due[0][0] <= until:
            until = max(self.clock.now(), self._due[0][0])
        self.clock.time = until
        found, self._told = self._told, []
        while self._due and self._due[0][0] <= until:
            _, _, what, key, report = heapq.heappop(self._due)
            if self._happens(until, what, key):
                found.append(report)
                if self.chance.random() < self.repeats:
                    found.append(report)
        return found

    def _happens(self, now: float, what: str, key: tuple[str, int]) -> bool:
        if key not in self._orders:
            return False  # it is over already
        if what == "began":
            self._since[key] = now
            self._begun.add(key)
            for gpu in _gpus(self._orders[key]):
                self.held[gpu] = self.held.get(gpu, 0) + 1
                self.most = max(self.most, self.held[gpu])
            seconds = float(self._orders[key].program.command[1])
            left = max(0.0, seconds - self._done.get(key[0], 0.0))
            if self.chance.random() < self.vanishes:
                self._later(now + left * self.chance.random(), "vanished", key, Vanished(*key, "its machine is gone"))
            self._later(now + left, "over", key, Exited(*key, self.code))
            return True
        if what == "over" and key in self._since:
            self._done[key[0]] = self._done.get(key[0], 0.0) + now - self._since[key]
        self._gone(key)
        return True

    def _gone(self, key: tuple[str, int]) -> None:
        order = self._orders.pop(key)
        if self._since.pop(key, None) is not None:
            for gpu in _gpus(order):
                self.held[gpu] -= 1

    def _later(self, time: float, what: str, key: tuple[str, int], report: Report) -> None:
        self._order += 1
        heapq.heappush(self._due, (time, self._order, what, key, report))

    def suspend(self, job: str, attempt: int) -> None:
        raise AssertionError("this engine cannot suspend, and says so")

    resume = suspend

    def adopt(self, job: str, attempt: int) -> None:
        """What an attempt came to: it goes on, or it never began, or nobody knows."""
        key = (job, attempt)
        if key in self._since:
            report: Report = Began(*key)
        elif key in self._begun:
            report = Vanished(*key, "it is gone")
        else:
            self._orders.pop(key, None)
            report = NotBegun(*key, "it never began")
        self._told.append(report)

    def forget(self, job: str, attempt: int) -> None:
        self._begun.discard((job, attempt))

    def wake(self) -> None:
        self._woken = True

    def running(self) -> Mapping[str, int]:
        return dict(self._since.keys())

    def close(self) -> None:
        pass

    def clear(self) -> None:
        for key in list(self._orders):
            self._gone(key)


def _gpus(order: Order) -> list[tuple[str, int]]:
    return [(machine, bit) for machine, (_, mask) in zip(order.machines, order.placement.slices, strict=True)
            for bit in range(mask.bit_length()) if mask >> bit & 1]  # fmt: skip
