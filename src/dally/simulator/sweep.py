"""Several policies on one experiment, side by side on the cores there are."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from dally.core.errors import PlanError, UserError
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run

Report = Callable[[str, float, int, int], None]  # policy, simulated time, jobs ended, jobs in all
_EVERY = 0.2  # seconds between two signs of life of a worker


def run_all(experiment: Experiment, policies: Sequence[str], *, journals: Sequence[str | None] | None = None,
            workers: int | None = None, report: Report | None = None) -> list[Run]:  # fmt: skip
    """Run every policy; the result is in the order asked, whatever order they finish in.

    Ctrl-C reaches the workers too: each stops where it is and hands over what it has.
    """
    files = list(journals or [None] * len(policies))
    workers = min(len(policies), workers or len(os.sched_getaffinity(0)))
    if workers <= 1:
        return [_here(experiment, policy, file, report) for policy, file in zip(policies, files, strict=True)]
    context = multiprocessing.get_context("spawn")
    results: dict[int, Run] = {}
    todo = list(range(len(policies)))
    active: dict[Connection, tuple[int, Any]] = {}
    interrupted = False

    def launch() -> None:
        index = todo.pop(0)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_worker, args=(theirs, experiment, policies[index], files[index]), daemon=True)
        process.start()
        theirs.close()
        active[ours] = (index, process)

    while active or (todo and not interrupted):
        try:
            while todo and len(active) < workers and not interrupted:
                launch()
            for connection in wait(list(active), timeout=1.0):
                assert isinstance(connection, Connection)
                index, process = active[connection]
                message = _receive(connection, policies[index])
                if message[0] == "progress":
                    if report is not None:
                        report(policies[index], *message[1:])
                    continue
                del active[connection]
                process.join()
                if message[0] == "error":
                    _end(active)
                    raise message[1]
                results[index] = message[1]
        except KeyboardInterrupt:
            interrupted = True  # the workers were interrupted as well and will hand over what they have
    return [results[index] for index in sorted(results)]


def _here(experiment: Experiment, policy: str, file: str | None, report: Report | None) -> Run:
    def progress(now: float, ended: int, jobs: int) -> bool:
        if report is not None:
            report(policy, now, ended, jobs)
        return True

    return experiment.run(policy, journal=file, progress=progress)


def _receive(connection: Connection, policy: str) -> tuple[Any, ...]:
    try:
        message: tuple[Any, ...] = connection.recv()
        return message
    except EOFError:
        return ("error", UserError(f"the worker that ran {policy!r} died (out of memory?)"))


def _end(active: dict[Connection, tuple[int, Any]]) -> None:
    for _, process in active.values():
        process.terminate()


def _worker(connection: Connection, experiment: Experiment, policy: str, file: str | None) -> None:
    import time

    signal.signal(signal.SIGINT, signal.default_int_handler)
    last = time.monotonic()

    def progress(now: float, ended: int, jobs: int) -> bool:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            connection.send(("progress", now, ended, jobs))
        return True

    try:
        connection.send(("done", experiment.run(policy, journal=file, progress=progress)))
    except (UserError, PlanError) as error:
        connection.send(("error", error))
    except KeyboardInterrupt:
        connection.close()
