"""The engine of this machine: an attempt of a job is a process in a session of its own.

A job is told its GPUs in `DALLY_GPUS` (numbers inside its machine, `machine:numbers;…`), its id in `DALLY_JOB` and the
number of the attempt in `DALLY_ATTEMPT`. It is asked to leave with SIGTERM. Exit code 143 says that it saved a
checkpoint; death by a signal never does.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from dally.live.engine import Began, Exited, NotBegun, Order, Report


class ProcessEngine:
    """Implements `live.engine.Engine`."""

    shares = False

    def __init__(self) -> None:
        self._reports: queue.Queue[Report | None] = queue.Queue()
        self._processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, order: Order) -> None:
        environment = {**os.environ, **order.program.environment, "DALLY_JOB": order.job,
                       "DALLY_ATTEMPT": str(order.attempt), "DALLY_GPUS": _gpus(order)}  # fmt: skip
        try:
            process = subprocess.Popen(order.program.command, env=environment, stdin=subprocess.DEVNULL,
                                       cwd=order.program.directory, start_new_session=True)  # fmt: skip
        except (OSError, ValueError) as error:
            program = order.program.command[0] if order.program.command else "nothing"
            self._reports.put(NotBegun(order.job, order.attempt, f"{program!r} cannot be started: {error}"))
            return
        key = (order.job, order.attempt)
        with self._lock:
            self._processes[key] = process
        self._reports.put(Began(*key))
        threading.Thread(target=self._wait, args=(key, process), daemon=True).start()

    def _wait(self, key: tuple[str, int], process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        _signal_group(process, signal.SIGKILL)  # whatever it left behind in its session
        with self._lock:
            self._processes.pop(key, None)
        self._reports.put(Exited(*key, code))

    def stop(self, job: str, attempt: int, grace: float) -> None:
        with self._lock:
            process = self._processes.get((job, attempt))
        if process is None:
            return
        _signal_group(process, signal.SIGTERM)
        timer = threading.Timer(grace, _signal_group, (process, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def observe(self, patience: float) -> Sequence[Report]:
        found: list[Report] = []
        with contextlib.suppress(queue.Empty):
            first = self._reports.get(timeout=max(0.0, patience))
            found += [first] if first is not None else []
            while True:
                more = self._reports.get_nowait()
                found += [more] if more is not None else []
        return found

    def wake(self) -> None:
        self._reports.put(None)

    def running(self) -> Mapping[str, int]:
        with self._lock:
            return {job: attempt for (job, attempt), process in self._processes.items() if process.poll() is None}

    def suspend(self, job: str, attempt: int) -> None:
        with self._lock:
            process = self._processes.get((job, attempt))
        if process is not None:
            _signal_group(process, signal.SIGSTOP)

    def resume(self, job: str, attempt: int) -> None:
        with self._lock:
            process = self._processes.get((job, attempt))
        if process is not None:
            _signal_group(process, signal.SIGCONT)

    def adopt(self, job: str, attempt: int) -> None:
        """Nothing outlives this engine but what it started itself."""
        if self.running().get(job) == attempt:
            self._reports.put(Began(job, attempt))
        else:
            self._reports.put(NotBegun(job, attempt, "it was not started here"))

    def forget(self, job: str, attempt: int) -> None:
        pass

    def close(self) -> None:
        pass

    def clear(self) -> None:
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            _signal_group(process, signal.SIGKILL)
        for process in processes:
            process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _gpus(order: Order) -> str:
    parts = []
    for machine, (_, mask) in zip(order.machines, order.placement.slices, strict=True):
        numbers = ",".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1)
        parts.append(f"{machine}:{numbers}")
    return ";".join(parts)
